"""A pod and its node beside the GPUs: from an agent's sample, and from stored samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.console.host_usage import (
    SeriesSamples,
    node_of_sample,
    node_of_tracks,
    pod_of_sample,
    pod_of_tracks,
)
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.host import HostSide, HostUse, NodeHost, ProcessUse
from vgpuscope.model.usage import ContainerUsage, NodeSnapshot

KEY = ContainerKey(namespace="ml", pod="train", pod_uid="u", container="main")
OTHER = ContainerKey(namespace="ml", pod="other", pod_uid="v", container="main")
POD = {"namespace": "ml", "pod": "train", "pod_uid": "u", "container": "main", "node": "n"}


def snapshot(**more):
    return NodeSnapshot(at=1000.0, node="n", ratio=1.0, **more)


def track(name, *values, every=15.0, end=1000.0, **labels):
    times = [end - every * (len(values) - 1 - n) for n in range(len(values))]
    return SeriesSamples(f"vgpuscope_{name}", labels, list(zip(times, values, strict=True)))


# ── an agent's sample ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_has_its_own_containers_figures_and_processes_and_nobody_else_s():
    uses = (
        HostUse(key=KEY, cpu_cores=6.5, over=60.0, memory_working_set=5, received_rate=7.0),
        HostUse(key=OTHER, cpu_cores=1.0),
    )
    held = tuple(
        ContainerUsage(
            key=key,
            gpu="GPU-0",
            mode="hami",
            state="idle",
            allocated=True,
            memory_method="hami-region",
            memory_certainty="measured",
            memory_error=4,
        )
        for key in (KEY, OTHER)
    )
    processes = tuple(ProcessUse(gpu="GPU-0", pid=pid, key=key) for pid, key in ((7, KEY), (8, OTHER), (9, None)))
    found = pod_of_sample(snapshot(host=HostSide(containers=uses), containers=held, processes=processes), "ml", "train")
    assert [(row.container, row.cpu_cores, row.memory) for row in found.containers] == [("main", 6.5, 5)]
    assert [(row.resource, row.certainty, row.error) for row in found.figures] == [("memory", "measured", 4)]
    assert [row.pid for row in found.processes or ()] == [7]
    assert (found.received_rate, found.sent_rate, found.seconds, found.source) == (7.0, None, 60.0, "agent")


def test_what_an_agent_has_not_measured_is_null():
    (row,) = pod_of_sample(snapshot(host=HostSide(containers=(HostUse(key=KEY),))), "ml", "train").containers
    shown = (row.cpu_cores, row.cpu_limit, row.throttled, row.memory, row.memory_limit, row.read_rate, row.written_rate)
    assert set(shown) == {None}


def test_a_command_line_is_never_shown():
    process = ProcessUse(gpu="GPU-0", pid=7, key=KEY, command="python3", command_line="python3 --token secret")
    found = pod_of_sample(snapshot(processes=(process,)), "ml", "train")
    assert "secret" not in repr(found)


def test_a_node_is_shown_as_its_agent_measures_it():
    host = NodeHost(cpus=8, cpu_used=0.25, iowait=0.05, memory_total=100, memory_available=40, load=(1.0, 2.0, 3.0))
    found = node_of_sample(snapshot(host=HostSide(node=host)))
    assert (found.cpus, found.cpu_used, found.memory_available, found.load) == (8, 0.25, 40, (1.0, 2.0, 3.0))
    assert node_of_sample(snapshot()).load == (None, None, None)


# ── stored samples ───────────────────────────────────────────────────────────────────────────────────────────────


def test_counters_become_rates_and_gauges_their_last_value():
    found = pod_of_tracks(
        [
            track("host_cpu_seconds_total", 10.0, 40.0, 70.0, **POD),
            track("host_cpu_periods_total", 0, 100, 200, **POD),
            track("host_cpu_throttled_periods_total", 0, 10, 50, **POD),
            track("host_memory_working_set_bytes", 1, 2, 3, **POD),
            track("host_network_received_bytes_total", 0, 1500, 3000, namespace="ml", pod="train"),
        ]
    )
    assert found is not None
    (row,) = found.containers
    assert (row.cpu_cores, row.throttled, row.memory, row.read_rate) == (2.0, 0.25, 3, None)
    assert (found.received_rate, found.seconds, found.processes) == (100.0, 30.0, None)


def test_a_counter_that_fell_is_counted_from_there():
    found = pod_of_tracks([track("host_cpu_seconds_total", 900.0, 990.0, 0.0, 30.0, **POD)])
    assert found is not None
    assert found.containers[0].cpu_cores == 2.0


def test_one_sample_has_no_rate():
    found = pod_of_tracks([track("host_cpu_seconds_total", 900.0, **POD)])
    assert found is not None
    assert (found.containers[0].cpu_cores, found.seconds) == (None, None)


def test_a_series_that_lacks_the_last_scrape_has_ended():
    """A container's limit was removed: its series ends, and the others go on."""
    found = pod_of_tracks(
        [
            track("host_memory_working_set_bytes", 1, 2, 3, **POD),
            track("host_memory_limit_bytes", 8, 8, 8, end=985.0, **POD),
        ]
    )
    assert found is not None
    assert (found.containers[0].memory, found.containers[0].memory_limit) == (3, None)


def test_names_that_a_scrape_has_moved_away_are_found():
    moved = {"exported_container": "main", "container": "agent", "pod_uid": "u"}
    found = pod_of_tracks([track("host_memory_working_set_bytes", 5, **moved)])
    assert found is not None
    assert found.containers[0].container == "main"


def test_a_figure_has_its_certainty_and_its_bound():
    at = {**POD, "gpu_uuid": "GPU-0", "mig_uuid": ""}
    found = pod_of_tracks(
        [
            track("container_method_info", 1, resource="sm", method="nvml-process", certainty="measured", **at),
            track("container_method_info", 1, resource="energy", method="share", certainty="shared-out", **at),
            track("container_sm_error_bound_ratio", 0.01, **at),
        ]
    )
    assert found is not None
    shown = [(one.resource, one.method, one.certainty, one.error) for one in found.figures]
    assert shown == [("sm", "nvml-process", "measured", 0.01), ("energy", "share", "shared-out", None)]


def test_a_node_s_use_is_what_is_neither_idle_nor_waiting():
    gains = {"user": 10.0, "system": 5.0, "iowait": 5.0, "steal": 0.0, "idle": 80.0}
    found = node_of_tracks(
        [track("node_cpu_seconds_total", 100.0, 100.0 + gain, mode=mode) for mode, gain in gains.items()]
        + [track("node_load_average", 1.5, 2.5, minutes="1")]
    )
    assert found is not None
    assert (found.cpu_used, found.iowait, found.load) == (0.15, 0.05, (2.5, None, None))


def test_a_node_without_its_idle_time_has_no_use():
    found = node_of_tracks([track("node_cpu_seconds_total", 0.0, 9.0, mode="user")])
    assert found is not None
    assert found.cpu_used is None


@pytest.mark.parametrize("of", [pod_of_tracks, node_of_tracks])
def test_without_samples_nothing_is_known(of):
    assert of([]) is None
    assert of([track("host_memory_working_set_bytes", **POD)]) is None


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=10))
def test_a_rate_is_never_negative(values):
    found = pod_of_tracks([track("host_io_read_bytes_total", *values, **POD)])
    assert found is not None
    rate = found.containers[0].read_rate
    assert rate is None or rate >= 0.0
