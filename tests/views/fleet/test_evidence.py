"""Every reason for a verdict can be read, in both languages, with its numbers."""

import re
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vgpuscope.logic
from vgpuscope.logic.fleet.verdict import ACTIVITY, VerdictRules, judge
from vgpuscope.model.analysis import Evidence, Signal, Stat, Term, Window
from vgpuscope.views.fleet.evidence import LANGUAGES, SENTENCES, SIGNAL_NAMES, sentences

WINDOW = Window(begin=0.0, end=600.0, interval=30.0)


def codes():
    """Every code that the thinking can give."""
    texts = [path.read_text() for path in Path(vgpuscope.logic.__path__[0]).rglob("*.py")]
    return {code for text in texts for code in re.findall(r"VERDICT_[A-Z_]+", text)}


def fields(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_code_has_its_sentence_and_every_sentence_its_code():
    assert set(SENTENCES) == codes()


@pytest.mark.parametrize("code", SENTENCES)
def test_both_languages_say_the_same_numbers(code):
    english, chinese = SENTENCES[code]
    assert fields(english) == fields(chinese)


@pytest.mark.parametrize("code", SENTENCES)
def test_the_languages_are_what_they_are_called(code):
    english, chinese = SENTENCES[code]
    assert english.isascii()
    assert english.endswith(".")
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert chinese.endswith("。")


@pytest.mark.parametrize("code", SENTENCES)
def test_chinese_sentences_have_chinese_punctuation(code):
    assert not re.search(r"[\u4e00-\u9fff}][,:;()]|[,:;(][\u4e00-\u9fff{]", SENTENCES[code][1])


def test_whatever_can_show_work_has_a_name_in_both_languages():
    assert set(ACTIVITY) == set(SIGNAL_NAMES)
    assert all(english.isascii() and chinese for english, chinese in SIGNAL_NAMES.values())


numbers = st.one_of(st.none(), st.floats(0, 1))
times = st.one_of(st.none(), st.floats(-1e10, 1e10))
evidences = st.builds(
    Evidence,
    reasons=st.lists(st.sampled_from(sorted(SENTENCES))).map(tuple),
    signal=st.sampled_from((None, *get_args(Signal))),
    signal_mean=numbers,
    signal_max=numbers,
    coverage=numbers,
    freshness=times,
    window_begin=times,
    window_end=times,
    held_since=times,
    held_memory=numbers,
    threshold=numbers,
    min_coverage=numbers,
    max_age=times,
    other=st.sampled_from((None, *get_args(Term))),
    other_max=numbers,
    power_share=numbers,
    power_limit=st.sampled_from(("", "400 W (table: NVIDIA A100-SXM4-80GB)")),
)


@given(evidences, st.sampled_from(LANGUAGES))
def test_any_evidence_can_be_said_one_sentence_for_each_reason(evidence, lang):
    said = sentences(evidence, lang)
    assert len(said) == len(evidence.reasons)
    assert not any(re.search(r"[{}]|None|\bnan\b|\binf\b", text) for text in said)


def evidence(stat, **more):
    given = {
        "window": WINDOW,
        "first": 10.0,
        "last": 580.0,
        "previous": None,
        "rules": VerdictRules(),
        "status": "idle",
        "schema": "dcgm",
    }
    return judge({"gpu_util": stat}, **{**given, **more})[2]


def test_an_idle_gpu_is_explained_with_its_numbers():
    idle = evidence(Stat(mean=0.012, max=0.04, samples=18))
    assert sentences(idle, "en") == (
        "Idle: no work was seen in 10 min. Highest GPU utilisation: 4 % (mean 1.2 %); all other activity stayed below "
        "5 %. 90 % of the window was seen (18 of 20 samples).",
    )
    assert sentences(idle, "zh") == (
        "空闲：10 分钟内未检测到计算活动。GPU 利用率最高 4 %（平均 1.2 %），其他活动均低于 5 %；"
        "窗口覆盖率 90 %（18/20 个样本）。",
    )


def test_a_gap_is_explained_with_what_is_missing():
    assert sentences(evidence(Stat(mean=0.0, max=0.0, samples=7)), "en") == (
        "Unknown: only 35 % of the window was seen (7 of 20 samples of GPU utilisation); 80 % is needed.",
    )


def test_a_code_that_is_new_to_the_table_stands_for_itself():
    assert sentences(Evidence(reasons=("VERDICT_OF_TOMORROW",)), "zh") == ("VERDICT_OF_TOMORROW",)


def test_no_more_samples_were_seen_than_a_window_has():
    """With a sample on each end of the window there is one more than intervals."""
    assert "(21 of 21 samples)" in sentences(evidence(Stat(mean=0.0, max=0.0, samples=21)), "en")[0]
