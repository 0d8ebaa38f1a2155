"""What a model said → an opinion, or AiAnswerInvalid; and what an opinion may change: only hold reclaim back."""

from collections.abc import Iterable, Mapping

import msgspec

from vgpuscope.model.errors import AiAnswerInvalid
from vgpuscope.model.opinion import Answer, ModelReply, NoOpinion, Opinion, Stance
from vgpuscope.model.quantity import Ratio, UnixTime

_TEXT_MOST = 600  # characters of a reason or a recommendation
_DECODER = msgspec.json.Decoder(Answer)
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
        return _DECODER.decode(text[begin : end + 1].encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError) as e:  # ValidationError is one
        raise AiAnswerInvalid(f"the answer is not as asked for: {e}") from e


def opinion_of(answer: Answer, *, key: str, at: UnixTime, model: str) -> Opinion:
    """The opinion to keep; the model's texts become one line each, of bounded length."""
    return Opinion(
        key=key,
        status=answer.status,
        confidence=round(answer.confidence, 3),
        reason=_line(answer.reason),
        recommendation=_line(answer.recommendation),
        ai_adjusted_score=round(answer.ai_adjusted_score, 1) + 0.0,
        at=at,
        model=model,
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


def _line(text: str) -> str:
    printable = "".join(one if one.isprintable() else " " for one in text[: 4 * _TEXT_MOST])
    return " ".join(printable.split())[:_TEXT_MOST]
