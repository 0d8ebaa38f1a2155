"""What a model said → an opinion, or AiAnswerInvalid; and what an opinion may change: only hold reclaim back."""

import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from vgpuscope.model.errors import AiAnswerInvalid
from vgpuscope.model.opinion import Answer, ModelReply, NoOpinion, Opinion, Stance
from vgpuscope.model.quantity import Ratio, UnixTime
from vgpuscope.model.words import Words

_TEXT_MOST = 600  # characters of a reason or a recommendation
_DECODER = msgspec.json.Decoder(Answer)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN_WORD = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
Known = Mapping[str, Opinion | NoOpinion]  # by the key of the evidence


def answer_of(reply: ModelReply) -> Answer:
    """The answer in a reply: a JSON object, also one within a fence or between sentences."""
    if reply.cut_off:
        raise AiAnswerInvalid("the answer was cut off at ai.max_tokens")
    text = reply.text
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise AiAnswerInvalid("the answer has no JSON object")
    try:
        answer = _DECODER.decode(text[begin : end + 1].encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as e:  # ValidationError is one
        raise AiAnswerInvalid(f"the answer is not as asked for: {e}") from e
    if answer.reason is answer.reason_zh is UNSET or answer.recommendation is answer.recommendation_zh is UNSET:
        raise AiAnswerInvalid("the answer has no reason or no recommendation, in either language")
    return answer


def opinion_of(answer: Answer, *, key: str, at: UnixTime, model: str) -> Opinion:
    """The opinion to keep; the model's texts become one line each, of bounded length, under their own language."""
    return in_its_languages(
        Opinion(
            key=key,
            status=answer.status,
            confidence=round(answer.confidence, 3),
            reason=_line(answer.reason),
            recommendation=_line(answer.recommendation),
            reason_zh=_line(answer.reason_zh),
            recommendation_zh=_line(answer.recommendation_zh),
            ai_adjusted_score=round(answer.ai_adjusted_score, 1) + 0.0,
            at=at,
            model=model,
        )
    )


def in_its_languages(opinion: Opinion) -> Opinion:
    """Each text under the language that it is written in; a copy, or a text in the wrong language, is none.

    Models mix languages up, and opinions that were stored when one language was asked for have one text.
    """
    reason = _by_language(opinion.reason, opinion.reason_zh)
    recommendation = _by_language(opinion.recommendation, opinion.recommendation_zh)
    return replace(
        opinion,
        reason=reason.en,
        reason_zh=reason.zh,
        recommendation=recommendation.en,
        recommendation_zh=recommendation.zh,
    )


def stance(keys: Iterable[str], known: Known, *, threshold: Ratio, required: bool) -> Stance:
    """What the model says about all evidence on one workload: one veto is enough, and one open question waits."""
    found = [known.get(key) for key in keys]
    if any(isinstance(one, Opinion) and one.vetoes(threshold) for one in found):
        return "veto"
    if not found or None in found:
        return "waiting"
    if any(isinstance(one, NoOpinion) for one in found):
        return "waiting" if required else "silent"
    return "agrees"


def _by_language(en: str, zh: str) -> Words:
    return Words(
        en=next((text for text in (en, zh) if text and not _chinese(text)), ""),
        zh=next((text for text in (zh, en) if text and _chinese(text)), ""),
    )


def _chinese(text: str) -> bool:
    """Names stay Latin in a Chinese text, and an English one may quote Chinese."""
    han = len(_HAN.findall(text))
    return han > 0 and han >= len(_LATIN_WORD.findall(text))


def _line(text: str | UnsetType) -> str:
    if text is UNSET:
        return ""
    printable = "".join(one if one.isprintable() else " " for one in text[: 4 * _TEXT_MOST])
    return " ".join(printable.split())[:_TEXT_MOST]
