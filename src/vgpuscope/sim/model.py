"""A stand-in for a language model: an OpenAI-compatible server that answers by rules, without a network.

POST /…/chat/completions   an opinion on the evidence in the last message

The same evidence always gets the same answer. Of the evidence only the class and the idle time are read, where they
first occur: before the names, which anybody may choose.
"""

import re
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.sim.posts import Answer, Asked

_PATH = "/chat/completions"
_CLASS = re.compile(r'\b(?:use_)?class"?\s*[:=]\s*"?([a-z][a-z-]+)', re.IGNORECASE)
_IDLE_MINUTES = re.compile(r'"idle_minutes"\s*:\s*(\d+)')
_SHORT = 10  # minutes; who has been idle for a shorter time may only pause
_LETTERS_PER_TOKEN = 4
_FIRST_WIDE = 0x3000  # of Chinese characters and punctuation


class Opinion(NamedTuple):
    """One answer, in Chinese and English."""

    status: Literal["active", "idle", "suspicious"]
    confidence: float
    zh: tuple[str, str]  # reason, recommendation
    en: tuple[str, str]
    adjusted: float  # the score that it would give


_SURE = Opinion(
    "idle",
    0.92,
    ("整个窗口内没有计算活动，功率接近空闲水平。", "联系负责人，确认后即可收回。"),
    ("Nothing was computed in the whole window, and power is near idle.", "Ask the owner, then take the GPU back."),
    2.0,
)
_HELD = Opinion(
    "idle",
    0.85,
    ("没有计算活动，但一直占用显存：像是被遗忘的 notebook。", "先通知负责人保存数据，再收回。"),
    ("Nothing is computed, but memory is held: it looks like a forgotten notebook.", "Let the owner save, then act."),
    5.0,
)
_PREPARES = Opinion(
    "active",
    0.8,
    ("GPU 空闲，但 CPU 很忙：正在加载或准备数据。", "等待数据准备完成，不要收回。"),
    ("The GPU is idle, but the CPUs are busy: data are being prepared.", "Wait until the data are there."),
    30.0,
)
_PAUSES = Opinion(
    "suspicious",
    0.75,
    ("空闲时间很短，可能只是两批请求之间的间歇。", "继续观察，暂不收回。"),
    ("It has been idle for a short time only: it may pause between requests.", "Watch it, and keep the GPU for now."),
    30.0,
)
_STALLED = Opinion(
    "suspicious",
    0.8,
    ("利用率很高而功率接近空闲：集合通信可能卡住了。", "检查训练日志，不要收回。"),
    ("Utilisation is high while power is near idle: a collective operation may hang.", "Read the logs; keep the GPU."),
    40.0,
)
_ACTIVE = Opinion(
    "active",
    0.9,
    ("窗口内有真实的计算活动。", "无需处理。"),
    ("There is real work in the window.", "Nothing to do."),
    70.0,
)
_UNSURE = Opinion(
    "suspicious",
    0.3,
    ("数据太少，无法判断。", "等待更多数据。"),
    ("There is too little data to tell.", "Wait for more data."),
    50.0,
)
_BY_CLASS = {
    "idle": _SURE,
    "idle-held": _HELD,
    "idle-preparing": _PREPARES,
    "stalled": _STALLED,
    "busy": _ACTIVE,
    "low": _ACTIVE,
    "busy-unproductive": _ACTIVE,
}


class _Message(Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[dict[str, Any]] = ""


class _Request(Struct, frozen=True, kw_only=True):
    messages: list[_Message]
    model: str = "stand-in"


def answer(asked: Asked) -> Answer:
    """The answer of the server to one request."""
    if asked.method != "POST" or not asked.path.endswith(_PATH):
        return _refused(404, f"only POST …{_PATH} is served here")
    try:
        request = msgspec.json.decode(asked.body, type=_Request)
    except msgspec.DecodeError as e:
        return _refused(400, f"not a chat request: {e}")
    texts = [_text(message) for message in request.messages]
    said = msgspec.json.encode(_said(texts)).decode()
    used = [sum(map(_tokens, texts)), _tokens(said)]
    return Answer(
        200,
        {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": request.model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": said},
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)},
        },
    )


def _said(texts: list[str]) -> dict[str, object]:
    opinion = _opinion(texts[-1] if texts else "")
    (reason, recommendation), (reason_zh, recommendation_zh) = opinion.en, opinion.zh
    return {
        "status": opinion.status,
        "confidence": opinion.confidence,
        "reason": reason,
        "recommendation": recommendation,
        "reason_zh": reason_zh,
        "recommendation_zh": recommendation_zh,
        "ai_adjusted_score": opinion.adjusted,
    }


def _opinion(evidence: str) -> Opinion:
    found, minutes = _CLASS.search(evidence), _IDLE_MINUTES.search(evidence)
    opinion = _BY_CLASS.get(found[1].lower(), _UNSURE) if found else _UNSURE
    pauses = opinion.status == "idle" and minutes is not None and int(minutes[1]) < _SHORT
    return _PAUSES if pauses else opinion


def _tokens(text: str) -> int:
    """About as many as a tokenizer makes: one for each Chinese character, and for some letters of other text."""
    wide = sum(ord(letter) >= _FIRST_WIDE for letter in text)
    return wide + (len(text) - wide) // _LETTERS_PER_TOKEN


def _text(message: _Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part.get("text", "")) for part in message.content)


def _refused(status: int, why: str) -> Answer:
    return Answer(status, {"error": {"message": why, "type": "invalid_request_error", "param": None, "code": None}})
