"""The node beside its GPUs, through the whole agent: files of a host in, a page and an API out."""

import json
import shutil
import threading
from typing import cast

import pytest

from tests.native.scenario import GIB, gpu_uuid
from tests.services.agent.noderoot import NodeRoot, Samples
from vgpuscope.logic.node.snapshot import NodeSample
from vgpuscope.model.errors import CgroupsHung
from vgpuscope.services.agent.host import HostReader
from vgpuscope.services.agent.waits import SampleWaits


def a_node(path) -> tuple[NodeRoot, str]:
    node = NodeRoot(path)
    node.host()
    node.nvml.gpu(0, memory_used=6 * GIB, utilization=0).process(0, 101, memory=5 * GIB)
    uid = node.pod("loader", annotations={"hami.io/vgpu-devices-allocated": f"{gpu_uuid(0)},NVIDIA,8192,30:;"})
    node.process(101, uid, command="python3")
    (node.proc / "101" / "status").write_text("Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    (node.proc / "101" / "cmdline").write_bytes(b"python3\0train.py\0--token\0hunter2hunter2\0")
    node.network(101)
    node.beside(uid, cpu=100.0, memory=3 * GIB, limit=str(4 * GIB), moved=9 * GIB)
    return node, uid


def test_a_container_that_holds_a_gpu_is_shown_with_its_cpu_memory_io_and_network(tmp_path):
    node, _ = a_node(tmp_path)
    page = Samples.of(node.once())
    assert page.one("vgpuscope_host_cpu_seconds_total", pod="loader") == 100.0
    assert page.one("vgpuscope_host_memory_used_bytes", pod="loader") == 3 * GIB
    assert page.one("vgpuscope_host_memory_limit_bytes", pod="loader") == 4 * GIB
    assert page.one("vgpuscope_host_io_read_bytes_total", pod="loader") == 9 * GIB
    assert page.one("vgpuscope_host_network_received_bytes_total", pod="loader") == 98765432101
    assert page.one("vgpuscope_node_memory_total_bytes") > 0
    assert page.one("vgpuscope_source_up", source="cgroup") == 1


def test_a_container_without_a_gpu_has_no_series(tmp_path):
    node, _ = a_node(tmp_path)
    node.beside(node.pod("web"), cpu=5.0, memory=GIB)
    page = Samples.of(node.once())
    assert {labels["pod"] for labels, _ in page.named("vgpuscope_host_cpu_seconds_total")} == {"loader"}


def test_without_cgroups_the_agent_works_and_says_so(tmp_path):
    node, _ = a_node(tmp_path)
    shutil.rmtree(node.cgroup)
    page = Samples.of(node.once())
    assert page.one("vgpuscope_source_up", source="cgroup") == 0
    assert page.one("vgpuscope_source_absent", source="cgroup") == 1
    assert page.one("vgpuscope_source_error_info", source="cgroup", code="CGROUPS_ABSENT") == 1
    assert not page.has("vgpuscope_host_cpu_seconds_total")
    assert page.has("vgpuscope_node_cpus")
    assert page.one("vgpuscope_container_memory_used_bytes", pod="loader") == 5 * GIB


def test_cpu_use_is_a_rate_that_follows_the_counter(tmp_path):
    node, uid = a_node(tmp_path)
    with node.agent() as agent:
        agent.until(lambda page: page.has("vgpuscope_host_cpu_seconds_total", pod="loader"))
        node.beside(uid, cpu=1000.0, memory=GIB)
        # on a slow machine the counter may have been read twice before it grew: then the first rate is 0
        agent.until(lambda page: page.has("vgpuscope_container_cpu_cores", pod="loader") and _cores(page) > 1)


def _cores(page: Samples) -> float:
    return page.one("vgpuscope_container_cpu_cores", pod="loader", gpu_uuid=gpu_uuid(0))


@pytest.mark.parametrize(("chosen", "line"), [("auto", "python3 train.py --token [redacted]"), ("hide", None)])
def test_the_api_lists_processes_under_their_container(tmp_path, chosen, line):
    node, uid = a_node(tmp_path)
    with node.agent("--command-lines", chosen) as agent:  # which listens on a loopback address
        agent.until(lambda page: page.has("vgpuscope_container_memory_used_bytes", pod="loader"))
        (process,) = json.loads(agent.get("/api/v1/node")[2])["processes"]
    assert process["pid"] == 101
    assert (process["key"]["pod"], process["key"]["pod_uid"]) == ("loader", uid)
    assert (process["uid"], process["command"], process["memory"]) == (1000, "python3", 5 * GIB)
    assert process["command_line"] == line
    assert process["started"] > 1_000_000_000


def test_a_reading_that_hangs_leaves_no_old_values_and_stops_nothing_else(tmp_path, monkeypatch):
    waits = SampleWaits(host=0.05)
    made = HostReader(cgroup_root=str(tmp_path), proc_root=str(tmp_path), window=60.0, waits=waits)
    sample, never = _Sample(), threading.Event()
    monkeypatch.setattr(made._files, "read", lambda: never.wait(30))
    for _ in range(3):  # also between two readings: it is down until it comes back
        with pytest.raises(CgroupsHung):
            made.side(cast(NodeSample, sample), {}, tick=1e9, clock=lambda: 0.0)
    assert made._latest.containers == ()
    never.set()


class _Sample:
    def sought(self, owners):
        return ()
