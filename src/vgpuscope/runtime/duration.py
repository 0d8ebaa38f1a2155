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


def long_seconds(text: str) -> float:
    """The seconds in a duration that may also have weeks and days ("7d", "1w", "1d12h"); ValueError for others."""
    found = _LONG.fullmatch(text.strip())
    if not found or not text.strip():
        raise ValueError("expected a duration such as 24h, 7d or 1d12h")
    weeks, days, rest = found.groups()
    return 604800.0 * int(weeks or 0) + 86400.0 * int(days or 0) + (seconds(rest) if rest else 0.0)


_LONG = re.compile(r"(?:(\d{1,4})w)?(?:(\d{1,5})d)?((?:[\d.]{1,9}[a-zµμ]{1,2})+)?")


def _bare(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected seconds, or a duration such as 5m, 1h30m, 300ms") from None
