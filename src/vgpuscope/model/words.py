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

    def text_in(self, language: Language) -> str:
        """The text in a language; in the other one if it is absent there."""
        return (self.zh or self.en) if language == "zh" else (self.en or self.zh)


NO_WORDS = Words("", "")
