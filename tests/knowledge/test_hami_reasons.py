"""HAMi's words for its reasons and our codes, in both directions."""

import re

from tests.paths import REPOSITORY
from vgpuscope.formats.scheduler_messages.phrases import code_of
from vgpuscope.knowledge.hami_reasons import HAMI_REASONS, hami_words
from vgpuscope.logic.scheduler import verdicts
from vgpuscope.model.scheduling_codes import BY_CODE

# The words of HAMi v2.10, as its source has them; NodeFitPod is no reason to refuse.
PUBLISHED = {
    "CardNotHealth",
    "CardCordoned",
    "CardTypeMismatch",
    "NumaNotFit",
    "CardUuidMismatch",
    "CardTimeSlicingExhausted",
    "ExclusiveDeviceAllocateConflict",
    "ResourceQuotaNotFit",
    "CardInsufficientMemory",
    "CardInsufficientCore",
    "CardComputeUnitsExhausted",
    "CardMigTopologyInfeasible",
    "CardNotFoundCustomFilterRule",
    "AllocatedCardsInsufficientRequest",
    "NodeInsufficientDevice",
    "ModeNotFit",
    "NodeUnfitPod",
    "CardUnhealthy",
    "CardQosPolicyMismatch",
    "CardAppClassMismatch",
}
OURS = {"CardHeldByClaim"}  # of our extender: HAMi does not read ResourceClaims


def test_every_word_of_hami_has_one_code_of_ours():
    assert set(HAMI_REASONS) == {*PUBLISHED, *OURS, "node unregistered", "node usage unavailable"}
    assert set(HAMI_REASONS.values()) <= set(BY_CODE)


def test_what_is_read_in_an_event_has_the_code_that_the_extender_would_give():
    assert {word: code_of(word) for word in HAMI_REASONS} == HAMI_REASONS


def test_each_code_lists_its_words_and_each_word_is_listed_once():
    listed = [word for code in BY_CODE for word in hami_words(code)]
    assert sorted(listed) == sorted(HAMI_REASONS)
    assert all(HAMI_REASONS[word] == code for code in BY_CODE for word in hami_words(code))


def test_the_page_of_codes_lists_the_words_beside_their_code():
    page = (REPOSITORY / "docs" / "scheduling-codes.md").read_text()
    rows = dict(re.findall(r"^\| `(SCHED_\w+)` \|.*\|(.*)\|$", page, re.MULTILINE))
    written = {code: set(re.findall(r"`([^`]+)`", words)) for code, words in rows.items()}
    assert written == {code: set(hami_words(code)) for code in BY_CODE}


def test_every_reason_that_the_extender_gives_is_ranked_and_has_a_sentence():
    for reason in verdicts._RANK:
        assert HAMI_REASONS[reason] in BY_CODE
        assert verdicts.primary({reason: 1}) == reason
