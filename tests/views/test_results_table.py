"""Results in the terminal."""

import io

import pytest
from rich.console import Console

from tests.sinks import fleets
from vgpuscope.model.analysis import Evidence, Score, Stat
from vgpuscope.views.results import rows
from vgpuscope.views.results_table import results_table


def drawn(*gpus, width: int, color: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system="standard" if color else None, force_terminal=color)
    console.print(results_table(rows(fleets.analysis(fleets.NOON, *gpus)), width))
    return out.getvalue()


def card(number: int = 0, **more):
    terms = {"gpu_util": Stat(mean=0.5), "mem_used": Stat(mean=4.0 * 1024**3), "mem_total": Stat(mean=8.0 * 1024**3)}
    fields = {
        "gpu_index": "0",
        "score": Score(value=42.0),
        "status": "normal",
        "verdict": "in_use",
        "use_class": "busy",
        "terms": terms,
    }
    evidence = Evidence(coverage=0.95)
    return fleets.gpu(number, **(fields | {"tenants": (fleets.tenant("train-0"),), "evidence": evidence} | more))


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_what_matters_is_there_at_any_width(width):
    text = drawn(card(), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("42", "in_use", "ml/train-0"):
        assert word in text, text
    assert fleets.gpu(0).gpu_id in text or "node-0" in text


def test_a_card_without_an_index_is_named_by_its_uuid_however_narrow():
    assert fleets.gpu(0).gpu_id in drawn(card(gpu_index=""), width=80)
    assert fleets.gpu(0).gpu_id not in drawn(card(), width=80)


def test_a_wide_terminal_shows_everything():
    text = drawn(card(), width=200)
    assert all(word in text for word in ("node-0", "NVIDIA A100", "50%", "4.0Gi 50%", "normal", "95%"))


def test_names_cannot_draw_on_the_terminal():
    text = drawn(card(tenants=(fleets.tenant("\x1b[31mred\x07"),), hostname="[bold]x[/]"), width=200)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/]" in text


def test_what_is_not_known_is_shown_as_such():
    assert "unknown" in drawn(fleets.gpu(0), width=120)


def test_an_instance_is_named_by_its_own_uuid_where_it_has_one():
    assert "MIG-abc" in drawn(card(mig="MIG-abc"), width=160)
    assert "/GI-3" in drawn(card(mig="GI-3"), width=160)
