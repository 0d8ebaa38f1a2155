"""Moments and small numbers as every answer of the console writes them."""

from datetime import UTC, datetime
from functools import lru_cache

from vgpuscope.model.analysis import Stat, Term
from vgpuscope.model.quantity import UnixTime


@lru_cache(maxsize=4096)  # most rows of an analysis share a few moments
def iso(moment: UnixTime) -> str:
    """A moment in UTC, to the second, with its zone."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def iso_or_none(moment: UnixTime | None) -> str | None:
    return None if moment is None else iso(moment)


def mean(terms: dict[Term, Stat], term: Term) -> float | None:
    """The mean of a term; None: not measured."""
    found = terms.get(term)
    return None if found is None else found.mean


def whole(value: float | None) -> int | None:
    """A number of bytes, or a count."""
    return None if value is None else round(value)


def short(value: float | None, digits: int = 4) -> float | None:
    """A ratio or another number without digits that mean nothing."""
    return None if value is None else round(value, digits)


def total(values: "list[int | None]") -> int | None:
    """The sum of what is known; None if nothing is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def average(values: "list[float | None]") -> float | None:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


def share(part: float | None, of: float | None) -> float | None:
    """A ratio; None if one of both is not known, or there is nothing to share."""
    return None if part is None or not of else round(part / of, 4)
