"""Durations as people write them."""

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


LONG = "[1-9][0-9]{0,3}[mhdw]"  # a duration that long_seconds() accepts, as a regular expression
_LONG_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def long_seconds(text: str) -> float:
    """The seconds in a number of minutes, hours, days or weeks: 90m, 24h, 7d, 2w; ValueError for anything else."""
    if not re.fullmatch(LONG, text):
        raise ValueError("expected a time such as 90m, 24h, 7d or 2w")
    return int(text[:-1]) * _LONG_UNITS[text[-1]]


def _bare(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected seconds, or a duration such as 5m, 1h30m, 300ms") from None


def text(seconds: float) -> str:
    """The duration as seconds() reads it: 30m, 1h30m, 0.5s."""
    if seconds < 60 or seconds != int(seconds):
        return f"{seconds:g}s"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number)
