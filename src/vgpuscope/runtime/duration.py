"""Lengths of time as people write them."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_WHOLE = re.compile(rf"[-+]?(?:{_PART})+")


def seconds(text: str) -> float:
    """The seconds in a Go duration ("5m", "1h30m", "300ms") or a bare number; ValueError for anything else."""
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        return _bare(text)
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    return -total if text.startswith("-") else total


def _bare(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected seconds, or a duration such as 5m, 1h30m, 300ms") from None
