"""The audit in a terminal of 80 columns, in both languages."""

from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from vgpuscope.logic.audit.checks import CODES
from vgpuscope.model.consistency import (
    AuditedAddress,
    AuditReport,
    CheckCount,
    FigureComparison,
    FigureReading,
    Unread,
)
from vgpuscope.model.words import Language, Words
from vgpuscope.views.audit.report import difference
from vgpuscope.views.audit.terminal import drawn


def shown(language: Language = "en", **more: Any) -> str:
    report = AuditReport(
        at="2026-11-18T12:00:00Z",
        asked=(AuditedAddress(service="analyzer", url="http://127.0.0.1:8080", answered=True),),
        checks=tuple(CheckCount(code=code, compared=12) for code in CODES),
        differences=(),
    )
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    console = Console(file=StringIO(), width=80, highlight=False)
    console.print(drawn(AuditReport(**(fields | more)), language))
    return console.file.getvalue()  # type: ignore[attr-defined]


def place(path: str, value: float, figure: str) -> FigureReading:
    return FigureReading(surface="GET /api/v1/overview", path=path, figure=figure, subject=(), value=value)


def idle_held(number: int = 0) -> Any:
    first = place("now.idle_held", 1, "fleet.idle_held")
    second = place(f"count(rows[{number}])", 3, "fleet.idle_held")
    compared = FigureComparison(check="rows", subject="", first=first, second=second, rule="equal")
    return difference(compared, {"fleet.idle_held": Words("GPUs held and idle.", "被占用且空闲的 GPU。")})


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_line_is_longer_than_80_columns(language):
    checks = tuple(CheckCount(code=code, reason="not-shown", skipped=3) for code in CODES)
    text = shown(language, checks=checks, differences=tuple(idle_held(number) for number in range(5)))
    assert max(map(cell_len, text.splitlines())) <= 80


@pytest.mark.parametrize(("language", "words"), [("en", "not checked: "), ("zh", "未检查：")])
def test_a_check_that_compared_nothing_has_no_tick(language, words):
    text = shown(language, checks=(CheckCount(code="same", reason="no-answer"),))
    assert words in text
    assert "✓ same" not in text
    assert "– same" in text


def test_both_numbers_both_places_and_both_definitions_are_shown():
    text = shown(differences=(idle_held(),))
    for part in ("1  GET /api/v1/overview  now.idle_held", "must be equal to", "3  GET", "GPUs held and idle."):
        assert part in text
    assert "被占用且空闲的 GPU。" in shown("zh", differences=(idle_held(),))


def test_many_differences_of_one_kind_are_shown_once_with_their_number():
    text = shown(differences=tuple(idle_held(number) for number in range(40)))
    assert text.count("✗ rows") == 3
    assert "37 more" in text


def test_nothing_is_said_to_agree_if_the_time_was_too_short_or_nothing_was_compared():
    agree = "No two places contradict each other."
    assert agree in shown()
    assert agree not in shown(undecided=2)
    assert "--deadline" in shown(undecided=2)
    assert agree not in shown(checks=(CheckCount(code="same", reason="no-answer"),))


def test_what_was_not_read_is_listed():
    unread = (Unread(what="analyzer /metrics", why="/metrics: 403"), Unread(what="vgpuscope top", why="no-time"))
    text = shown(unread=unread)
    assert "analyzer /metrics: /metrics: 403" in text
    assert "vgpuscope top: the time limit was reached" in text
