"""The words of `why`, `fit` and `pending` are there in both languages, with the same values in their braces."""

import re
import string
from typing import get_args

import pytest

from vgpuscope.model.decision_answers import IdleState
from vgpuscope.model.fit import RemedyKind
from vgpuscope.model.pending import Outcome
from vgpuscope.model.placement import DecisionOutcome
from vgpuscope.views.cluster.pending import words as pending_words
from vgpuscope.views.languages import Pair, lasting
from vgpuscope.views.scheduler.words import IDLE, OUTCOMES, REMEDIES, TEXTS, ago

PAIRS: dict[str, Pair] = {
    **TEXTS,
    **{f"outcome {name}": pair for name, pair in OUTCOMES.items()},
    **{f"remedy {name}": pair for name, pair in REMEDIES.items()},
    **{f"idle {name}": pair for name, pair in IDLE.items()},
    **{f"pending {name}": pair for name, pair in pending_words.TEXTS.items()},
    **{f"pending outcome {name}": pair for name, pair in pending_words.OUTCOMES.items()},
}
# Titles and names that both languages share, and texts with only values.
SAME = {"uid", "gpus", "GPUS", "memory", "pod", "of_30", "gpu", "idle ok", "code_at", "said", "code_on"} | {
    f"pending {name}" for name in ("POD", "uid", "at", "with_fact", "once")
}


def values(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_outcome_remedy_and_state_has_words():
    assert set(OUTCOMES) == set(get_args(DecisionOutcome))
    assert set(REMEDIES) == set(get_args(RemedyKind))
    assert set(IDLE) == set(get_args(IdleState))
    assert set(pending_words.OUTCOMES) == set(get_args(Outcome))


@pytest.mark.parametrize("name", PAIRS)
def test_both_languages_have_the_same_values(name: str):
    english, chinese = PAIRS[name]
    assert (
        values(english) - {"nth"} == values(chinese) - {"n"} if name == "again" else values(english) == values(chinese)
    )


@pytest.mark.parametrize("name", PAIRS)
def test_the_chinese_text_is_chinese_with_chinese_punctuation(name: str):
    english, chinese = PAIRS[name]
    assert english.isascii()
    assert name in SAME or re.search(r"[\u4e00-\u9fff]", chinese)
    assert not re.search(r"[\u4e00-\u9fff][,:;()]|[,:;(][\u4e00-\u9fff]", chinese)


def test_a_time_has_its_unit_in_both_languages():
    assert [lasting(time, "en") for time in (0.5, 30, 600, 7300, 400_000)] == ["0.5 s", "30 s", "10 min", "2 h", "5 d"]
    assert [lasting(time, "zh") for time in (0.5, 30, 600, 7300, 400_000)] == [
        "0.5 秒",
        "30 秒",
        "10 分钟",
        "2 小时",
        "5 天",
    ]
    assert ago(-3, "en") == "0.0 s ago"
