"""What the terminal says about verdicts."""

import io

import pytest
from rich.console import Console

from tests.logic.scheduler.decided import decision
from vgpuscope.model.decision_answers import DecidedNode
from vgpuscope.model.logged_decision import logged
from vgpuscope.model.placement import NodeVerdict
from vgpuscope.model.verdict_words import said
from vgpuscope.views.scheduler.decisions import decision_bodies
from vgpuscope.views.scheduler.why import message_of, why_view


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "quota exceeded (namespace ai-team): requested 8000MB, available 6000MB"),
        ("zh", "超出配额（命名空间 ai-team）：申请 8000MB，可用 6000MB"),
    ],
)
def test_a_quota_is_told_with_its_numbers_which_its_sentence_has_not(language, text):
    words = said("quota", "ai-team")
    one = DecidedNode(
        node="n",
        code="SCHED_QUOTA_EXCEEDED",
        message=words.en,
        message_zh=words.zh,
        requested="8000MB",
        available="6000MB",
        score=None,
    )
    assert message_of(one, language) == text


def test_other_sentences_have_their_numbers():
    words = said("memory", "8000MB", "4000MB")
    one = DecidedNode(
        node="n",
        code="SCHED_INSUFFICIENT_GPU_MEMORY",
        message=words.en,
        requested="8000MB",
        available="4000MB",
        score=None,
    )
    assert message_of(one, "en") == words.en


@pytest.mark.parametrize(
    ("language", "text"), [("en", "ml/train could not be decided"), ("zh", "未能做出决定")], ids=["en", "zh"]
)
def test_a_filter_that_could_not_be_decided_is_no_failed_binding(language, text):
    verdict = NodeVerdict(node="n1", code="SCHED_NO_EXTENDER", message="EXTENDER_STANDBY: the lease is not held")
    made = decision(1, pod="train", outcome="failed", nodes=(verdict,))
    out = io.StringIO()
    Console(file=out, width=200).print(why_view(decision_bodies([logged(made)]), 5.0, 200, language=language))
    assert text in out.getvalue()
    assert "EXTENDER_STANDBY: the lease is not held" in out.getvalue()
