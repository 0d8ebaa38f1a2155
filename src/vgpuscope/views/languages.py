"""Texts in the language of a reader."""

from typing import TypeAlias

from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language
from vgpuscope.views.text import span

Pair: TypeAlias = tuple[str, str]  # English, Chinese
_UNITS = {"s": "秒", "min": "分钟", "h": "小时", "d": "天"}


def one_of(pair: Pair, language: Language) -> str:
    """The text in one language."""
    return pair[language == "zh"]


def lasting(seconds: Seconds, language: Language) -> str:
    """A duration, in one unit."""
    text = span(max(0.0, seconds))
    amount, _, unit = text.partition(" ")
    return f"{amount} {_UNITS[unit]}" if language == "zh" else text
