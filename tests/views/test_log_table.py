"""The table in the log."""

from hypothesis import given

from tests.sinks import fleets
from vgpuscope.model.analysis import Score, Stat
from vgpuscope.views.log_table import low_lines, table_lines
from vgpuscope.views.results import rows


def card(number: int, score: float | None, **more):
    terms = {"gpu_util": Stat(mean=0.5, max=0.5)}
    return fleets.gpu(number, **({"score": Score(value=score), "status": "low", "terms": terms} | more))


def shown(*gpus) -> list[str]:
    return list(table_lines(rows(fleets.analysis(fleets.NOON, *gpus))))


def test_a_line_says_who_has_the_card_and_what_is_concluded():
    used = card(0, 86.8, status="high", verdict="in_use", tenants=(fleets.tenant("train"),))
    found, head, rule, line = shown(used)
    assert found == "Found 1 active GPUs"
    assert head.split() == ["Namespace/Pod", "Score", "Util", "Status", "Verdict", "GPU"]
    assert set(rule) == {"-"}
    assert line.split() == ["ml/train", "86.8", "50.0%", "high", "in_use", used.gpu_id]
    assert line[:40].rstrip() == "ml/train"


def test_what_is_not_known_is_a_dash():
    assert shown(fleets.gpu(0))[-1].split()[:3] == ["(nobody)", "–", "–"]


def test_a_shared_card_is_told_as_one():
    both = (fleets.tenant("a"), fleets.tenant("b", namespace="other"))
    assert shown(card(0, 1.0, tenants=both))[-1].startswith("*/(2 share it)")
    assert shown(card(0, 1.0, tenants=(both[0], fleets.tenant("a", container="side"))))[-1].startswith("ml/a ")


def test_an_instance_is_named_with_its_card():
    assert shown(card(0, 1.0, mig="GI-3"))[-1].endswith("/GI-3")


def test_an_empty_fleet_has_no_table():
    assert shown() == ["Found 0 active GPUs"]


def test_a_large_fleet_takes_few_lines_and_the_lowest_come_first():
    many = [card(number, 100 - number / 10) for number in range(900)]
    lines = shown(*many)
    assert lines[0] == "Found 900 active GPUs"
    assert len(lines) < 50
    assert lines[3].split()[1] == "10.1"
    assert "860 more" in lines[-1]


def test_low_cards_are_warned_of():
    made = rows(fleets.analysis(fleets.NOON, card(0, 5.0, tenants=(fleets.tenant("a"),)), card(1, 50.0), fleets.gpu(2)))
    head, line = low_lines(made, threshold=20)
    assert head == "⚠️  Found 1 GPU(s) with utilization below 20%:"
    assert "ml/a" in line
    assert "5.0" in line
    assert list(low_lines(made, threshold=1)) == []
    assert len(list(low_lines(rows(fleets.fleet(fleets.NOON, 500)), threshold=99))) == 42


@given(fleets.analyses())
def test_any_fleet_can_be_told(analysis):
    made = rows(analysis)
    assert all(isinstance(line, str) for line in (*table_lines(made), *low_lines(made, threshold=50)))
