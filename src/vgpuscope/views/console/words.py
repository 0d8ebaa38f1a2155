"""The vocabulary of the console: every code with its names in English and Chinese."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from vgpuscope.model.console.words import Vocabulary, Word
from vgpuscope.model.errors import error_types
from vgpuscope.model.scheduling_codes import BY_CODE, CODES
from vgpuscope.model.words import Words
from vgpuscope.views import names
from vgpuscope.views.console import named


@cache
def vocabulary() -> Vocabulary:
    """All codes."""
    return Vocabulary(
        use_class=_pairs(named.CLASSES),
        status=_both(named.STATUS, names.STATUS_NAMES),
        verdict=_both(named.VERDICT, names.VERDICT_NAMES),
        reason=_pairs(named.REASON),
        error=_errors(),
        scheduling=tuple(_scheduling(code.code) for code in CODES),
        stage=_both(named.STAGE, names.STAGE_NAMES),
        step=_pairs(named.STEP),
        outcome=_both(named.OUTCOME, names.OUTCOME_NAMES),
        finding=_pairs(names.FINDING_NAMES),
        attention=_pairs(named.ATTENTION),
        event=_pairs(named.EVENT),
        mode=_pairs(named.MODE),
        health=_pairs(named.HEALTH),
        lost=_pairs(names.LOST_NAMES),
        part=_pairs(named.PART),
        part_state=_pairs(named.PART_STATE),
    )


def scheduling_words(code: str) -> tuple[Words, Words] | None:
    """What a scheduling code means, and what to do about it; None: the code is not known."""
    known, chinese = BY_CODE.get(code), names.REASON_NAMES.get(code)
    if known is None or chinese is None:
        return None
    return Words(known.meaning, chinese.meaning), Words(known.runbook, chinese.runbook)


def _scheduling(code: str) -> Word:
    words = scheduling_words(code)
    assert words is not None
    return Word(code=code, name=words[0], advice=words[1])


def _errors() -> tuple[Word, ...]:
    english = {kind.code: kind.meaning for kind in error_types()} | named.HTTP_ERRORS
    return _both(english, names.ERROR_NAMES)


def _pairs(table: Mapping[Any, named.Pair]) -> tuple[Word, ...]:
    return tuple(Word(code=code, name=Words(*pair)) for code, pair in table.items())


def _both(english: Mapping[Any, str], chinese: Mapping[Any, str]) -> tuple[Word, ...]:
    return tuple(Word(code=code, name=Words(text, chinese[code])) for code, text in english.items())
