"""Sentences in two languages that must say the same."""

import re

from vgpuscope.model.words import Words

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ENGLISH = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")


def english(words: Words) -> str:
    """The English text, after a look at the Chinese: the same numbers, no English in it, full-width punctuation."""
    assert sorted(_NUMBER.findall(words.zh)) == sorted(_NUMBER.findall(words.en)) or "等" in words.zh, words
    assert not _ENGLISH.search(words.zh), words
    assert words.zh.endswith("。"), words
    assert not re.search("[\u4e00-\u9fff][,;:]|[,;:] ?[\u4e00-\u9fff]", words.zh), words
    return words.en
