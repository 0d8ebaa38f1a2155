"""How words and times become integers of a table: a word is a small number, a time is in milliseconds."""

from typing import TypeAlias

from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.quantity import Seconds, UnixTime

Millis: TypeAlias = int
TIME = 1000  # divisor of stored times

# A word is stored as its index in these tuples. Never reorder them; add new words at the end, with a migration.
STATUS_CODES: tuple[Status, ...] = ("idle", "low", "normal", "high", "unknown")
VERDICT_CODES: tuple[Verdict, ...] = ("in_use", "idle", "unknown")
CLASS_CODES: tuple[UseClass, ...] = (
    "busy",
    "busy-unproductive",
    "low",
    "idle",
    "idle-held",
    "unknown",
    "stalled",
    "not-started",
    "idle-preparing",
)


def millis(time: UnixTime | Seconds) -> Millis:
    return round(time * TIME)
