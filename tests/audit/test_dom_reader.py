"""The reader of the console's pages understands what the console writes, in both languages."""

import pytest

from tests.audit.dom import parsed

GIB = 1024.0**3


@pytest.mark.parametrize(
    ("text", "value", "margin"),
    [
        ("–", None, 0.0),
        ("no limit", None, 0.0),
        ("waits 2 min", 120.0, 60.0),
        ("9 h ago", 9 * 3600.0, 3600.0),
        ("9 小时前", 9 * 3600.0, 3600.0),
        ("18", 18.0, 0.5),
        ("1,446 W", 1446.0, 0.5),
        ("3.6 kW", 3600.0, 50.0),
        ("59 GiB", 59 * GIB, 0.5 * GIB),
        ("5.9 GiB", 5.9 * GIB, 0.05 * GIB),
        ("0.4 %", 0.004, 0.0005),
        ("9 h", 9 * 3600.0, 3600.0),
        ("3 d 4 h", 3 * 86400.0 + 4 * 3600.0, 3600.0),
        ("3 天 4 小时", 3 * 86400.0 + 4 * 3600.0, 3600.0),
        ("12 Wh", 12 * 3600.0, 1800.0),
    ],
)
def test_a_shown_number_is_read_with_what_rounding_hides(text: str, value: float | None, margin: float):
    found, off = parsed(text)
    assert found == (None if value is None else pytest.approx(value))
    assert off == pytest.approx(margin)


@pytest.mark.parametrize("text", ["3 of 8", "12 quux", "1 GiB 2 W"])
def test_what_is_no_single_number_is_refused(text: str):
    with pytest.raises(ValueError):
        parsed(text)
