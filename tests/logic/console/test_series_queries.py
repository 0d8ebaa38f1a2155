"""The queries of charts, evaluated by Prometheus' own engine: an hour of scrapes, one a minute."""

import json
import subprocess

import pytest

from tests.needed import needed
from vgpuscope.logic.console.series_queries import ChartSubject, series_queries

HOUR = 3600
POD = 'node="n1",namespace="ml",pod="{0}",pod_uid="{1}",container="c",gpu_uuid="g{2}"'


def always(name: str, value: float) -> tuple[str, str]:
    return name, f"{value:g}x60"


def between(name: str, value: float, first: int, last: int) -> tuple[str, str]:
    """Samples of the minutes from `first` to `last`."""
    before, after = f"_x{first} " if first else "", f" stale _x{60 - last}" if last < 60 else ""
    return name, f"{before}{value:g}x{last - first}{after}"


def evaluated(tmp_path, of: ChartSubject, quantity: str, series: list[tuple[str, str]]) -> list[float]:
    """What the query finds at the end of the hour, as promtool says it."""
    needed("promtool", package="prometheus")
    expr = series_queries(of, window=HOUR, step=HOUR)[quantity]  # type: ignore[index]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [{"expr": expr, "eval_time": "1h", "exp_samples": [{"labels": "{}", "value": -1}]}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    said = done.stdout + done.stderr
    [found] = [line.strip() for line in said.splitlines() if line.strip().startswith("got:")]
    return [
        float(part.split()[-1]) for part in found.removeprefix("got:").split(",") if part.strip() not in ("", "nil")
    ]


def memory(pod: str, uid: str, gpu: int = 1) -> str:
    return f"vgpuscope_container_memory_used_bytes{{{POD.format(pod, uid, gpu)}}}"


SCRAPES = always('vgpuscope_sample_timestamp_seconds{node="n1"}', 1)
TEAM = ChartSubject(namespaces=("ml",))


@pytest.mark.real
def test_a_pod_that_was_there_for_a_part_of_the_step_counts_for_that_part(tmp_path):
    series = [SCRAPES, always(memory("a", "1"), 10), between(memory("b", "2"), 60, 20, 30)]
    [found] = evaluated(tmp_path, TEAM, "memory_used", series)
    assert found == pytest.approx(10 + 60 * 11 / 60, rel=0.02)


@pytest.mark.real
def test_a_pod_that_returns_under_its_name_is_added_up(tmp_path):
    series = [SCRAPES, between(memory("a", "1"), 60, 0, 19), between(memory("a", "2"), 60, 40, 60)]
    [found] = evaluated(tmp_path, TEAM, "memory_used", series)
    assert found == pytest.approx(60 * 40 / 60, rel=0.03)


@pytest.mark.real
def test_an_agent_that_is_scraped_twice_counts_once(tmp_path):
    twice = [
        (name.replace("}", f',instance="{n}"}}'), values)
        for name, values in (SCRAPES, always(memory("a", "1"), 8))
        for n in (1, 2)
    ]
    assert evaluated(tmp_path, TEAM, "memory_used", twice) == [pytest.approx(8)]


@pytest.mark.real
def test_time_in_which_a_node_was_not_scraped_is_not_zero(tmp_path):
    series = [between(SCRAPES[0], 1, 0, 29), between(memory("a", "1"), 8, 0, 29)]
    assert evaluated(tmp_path, TEAM, "memory_used", series) == [pytest.approx(8)]


@pytest.mark.real
def test_a_mean_over_pods_counts_each_for_its_time(tmp_path):
    name = "vgpuscope_container_sm_mean_ratio"
    series = [
        always(memory("a", "1").replace("vgpuscope_container_memory_used_bytes", name), 0.1),
        between(memory("b", "2").replace("vgpuscope_container_memory_used_bytes", name), 0.8, 20, 30),
    ]
    [found] = evaluated(tmp_path, TEAM, "use", series)
    assert found == pytest.approx((0.1 * 60 + 0.8 * 11) / 71, rel=0.02)


@pytest.mark.real
def test_the_peak_is_that_of_one_pod_only(tmp_path):
    one, two = always(memory("a", "1"), 8), always(memory("b", "2"), 9)
    assert evaluated(tmp_path, TEAM, "memory_max", [one]) == [8]
    assert evaluated(tmp_path, TEAM, "memory_max", [one, two]) == []


@pytest.mark.real
def test_the_use_of_the_fleet_is_that_of_the_best_signal_and_a_gpu_that_mig_divides_counts_once(tmp_path):
    def signal(name, gpu, value, mig=""):
        labels = f'node="n1",gpu_uuid="{gpu}"' + (f',mig_uuid="{mig}"' if mig else "")
        return always(f"vgpuscope_{name}_ratio{{{labels}}}", value)

    for kind, divided in (("mean", 0.3), ("max", 0.6)):
        series = [
            signal(f"gpu_sm_active_{kind}", "profiled", 0.5),
            signal(f"gpu_utilization_{kind}", "profiled", 0.9),
            signal(f"gpu_utilization_{kind}", "plain", 0.1),
            signal(f"mig_sm_active_{kind}", "divided", 0.6, "m1"),
            signal(f"mig_sm_active_{kind}", "divided", 0.0, "m2"),
        ]
        [found] = evaluated(tmp_path, ChartSubject(), {"mean": "use", "max": "use_max"}[kind], series)
        assert found == pytest.approx((0.5 + 0.1 + divided) / 3 if kind == "mean" else divided)
