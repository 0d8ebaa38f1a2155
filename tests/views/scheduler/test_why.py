"""What the terminal says about verdicts."""

import pytest

from vgpuscope.model.decision_answers import DecidedNode
from vgpuscope.model.verdict_words import said
from vgpuscope.views.scheduler.why import message_of


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
