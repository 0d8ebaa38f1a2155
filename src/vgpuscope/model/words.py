"""Texts in both languages."""

from typing import Literal, TypeAlias

from msgspec import Struct

Language: TypeAlias = Literal["en", "zh"]


class Words(Struct, frozen=True):
    """One text in both languages."""

    en: str
    zh: str

    def __add__(self, other: "Words") -> "Words":
        return Words(self.en + other.en, self.zh + other.zh)


NO_WORDS = Words("", "")
