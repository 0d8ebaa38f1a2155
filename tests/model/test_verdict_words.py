"""Every sentence about a refusal is there in both languages, with the same values in its braces."""

import re
import string
from typing import get_args

import pytest

from vgpuscope.model.verdict_words import SENTENCES, Sentence, lacking, said


def places(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def test_every_sentence_is_in_the_table():
    assert set(SENTENCES) == set(get_args(Sentence))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_both_languages_have_the_same_values(sentence: Sentence):
    words = SENTENCES[sentence]
    assert places(words.en) == places(words.zh) == [str(place) for place in range(len(places(words.en)))]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_chinese_sentence_is_chinese_with_chinese_punctuation(sentence: Sentence):
    text = SENTENCES[sentence].zh
    assert re.search(r"[\u4e00-\u9fff]", text)
    assert not re.search(r"[\u4e00-\u9fff][,:;()]|[,:;(][\u4e00-\u9fff]", text)
    assert not re.search(r"[\u4e00-\u9fff][{A-Za-z]|[}A-Za-z][\u4e00-\u9fff]", text), "no space beside a name or number"


def test_the_handbooks_sentences_are_the_handbooks():
    assert said("memory", "8000MB", "4000MB").en == "GPU memory insufficient (requested 8000MB, available 4000MB)"
    assert said("type", "A100", "T4").en == "device type mismatch (requested A100, has T4)"
    assert said("quota", "ai-team").en == "quota exceeded (namespace ai-team)"


def test_values_keep_their_braces():
    assert said("undecodable", "{0} {x}").zh == "无法解析该 Pod：{0} {x}"


@pytest.mark.parametrize("sentence", ["memory", "cores", "numa", "suitable", "count"])
@pytest.mark.parametrize(("requested", "available"), [("8000MB", "4000MB"), ("{1}", "{0}"), ("", "0")])
def test_a_sentence_about_an_amount_is_the_sentence(sentence: Sentence, requested: str, available: str):
    for _ in range(2):  # also from memory
        assert lacking(sentence, requested, available) == said(sentence, requested, available)
