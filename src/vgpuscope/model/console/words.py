"""The vocabulary: the names of all codes in English and Chinese."""

from msgspec import Struct

from vgpuscope.model.words import Words


class Word(Struct, frozen=True, kw_only=True):
    """One code, its name, and what to do about it."""

    code: str
    name: Words
    advice: Words | None = None


class Vocabulary(Struct, frozen=True, kw_only=True):
    """All codes, by kind."""

    use_class: tuple[Word, ...]
    status: tuple[Word, ...]
    verdict: tuple[Word, ...]
    reason: tuple[Word, ...]  # of a verdict
    error: tuple[Word, ...]
    scheduling: tuple[Word, ...]  # why a pod waits
    stage: tuple[Word, ...]
    step: tuple[Word, ...]  # of scheduling times
    outcome: tuple[Word, ...]
    finding: tuple[Word, ...]
    attention: tuple[Word, ...]
    event: tuple[Word, ...]
    mode: tuple[Word, ...]
    health: tuple[Word, ...]
    lost: tuple[Word, ...]
    part: tuple[Word, ...]
    part_state: tuple[Word, ...]
