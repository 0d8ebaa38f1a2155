"""Times as Kubernetes and HAMi write them."""

from datetime import UTC, datetime
from functools import lru_cache

from vgpuscope.model.quantity import UnixTime


@lru_cache(maxsize=512)  # a pod that changes says the same times again
def from_rfc3339(text: str | None) -> UnixTime | None:
    """2026-11-15T08:00:00Z, with or without fractions; None for what is no time, or has no zone and so is none."""
    if not text or len(text) > 40:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def micro_time(moment: UnixTime) -> str:
    """A MicroTime of Kubernetes, which always has six digits: 2026-11-15T08:00:00.000000Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_unix(text: str | None) -> UnixTime | None:
    """Whole seconds since 1970, as text; None for what is none."""
    if not text or len(text) > 12 or not (text.isascii() and text.isdigit()):
        return None
    return float(text)
