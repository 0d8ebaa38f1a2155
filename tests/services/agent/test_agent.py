"""The whole agent as a process: what it serves, what it survives."""

import gzip
import json
import socket
import subprocess
import sys

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from tests.native.scenario import GIB, NO_PERMISSION, UNKNOWN, gpu_uuid
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, NodeRoot, Samples
from vgpuscope.catalog import agent as m
from vgpuscope.model.usage import NodeSnapshot

A, B = gpu_uuid(0), gpu_uuid(1)


@pytest.fixture
def node(tmp_path):
    made = NodeRoot(tmp_path)
    made.nvml.gpu(0, memory_used=4 * GIB, utilization=50).process(0, 11, memory=3 * GIB).sample(0, 11, sm=45)
    made.nvml.gpu(1, memory_used=0, utilization=0)
    made.process(11, made.pod("train"))
    return made


# ── what is served ───────────────────────────────────────────────────────────────────────────────────────────────
def test_it_is_ready_after_the_first_sample_and_says_what_it_lacks(node):
    with node.agent() as agent:
        agent.wait(lambda: agent.status("/readyz") == 200)
        node.pods_file.write_text("{ not json")
        # On a busy machine another source may be late too, for a moment.
        missing = {"ready": False, "missing": ["source pods"]}
        agent.wait(lambda: json.loads(agent.get("/readyz")[2]) == missing)
        assert agent.status("/readyz") == 503
        node.write()
        agent.wait(lambda: agent.status("/readyz") == 200)


def test_openmetrics_and_gzip_are_given_to_those_who_ask(node):
    with node.agent() as agent:
        agent.until(lambda page: page.has(m.GPU_INFO.name))
        status, headers, body = agent.get(Accept="application/openmetrics-text; version=1.0.0")
        assert (status, headers["content-type"].split(";")[0]) == (200, "application/openmetrics-text")
        assert any(family.name == m.GPU_INFO.name for family in parse_openmetrics(body.decode()))
        _, headers, body = agent.get(**{"Accept-Encoding": "gzip"})
        assert headers["content-encoding"] == "gzip"
        assert Samples.of(gzip.decompress(body).decode()).has(m.GPU_INFO.name)


def test_the_whole_snapshot_is_served_as_json(node):
    import msgspec

    with node.agent() as agent:
        agent.until(lambda page: page.has(m.CONTAINER_INFO.name, pod="train"))
        snapshot = msgspec.json.decode(agent.get("/api/v1/node")[2], type=NodeSnapshot)
        assert [(u.key.pod, u.memory) for u in snapshot.containers] == [("train", 3 * GIB)]


def test_the_document_describes_the_snapshot_and_reads_are_compressed(node):
    with node.agent() as agent:
        document = json.loads(agent.get("/openapi.json")[2])
        _, headers, body = agent.get("/api/v1/node", **{"Accept-Encoding": "gzip"})
    assert document["paths"].keys() == {"/api/v1/node", "/openapi.json", "/metrics", "/healthz", "/readyz"}
    assert "NodeSnapshot" in document["components"]["schemas"]
    assert (headers["content-encoding"], json.loads(gzip.decompress(body))["node"]) == ("gzip", node.name)


def test_an_agent_pays_for_no_page_document_or_identity_that_nobody_asked_for():
    heavy = ["vgpuscope.http.docs", "vgpuscope.http.identity", "importlib.resources"]
    program = f"import sys, vgpuscope.services.agent.process\nprint([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def samples_of_json(agent):
    return json.loads(agent.get("/api/v1/node")[2])["samples"]


def test_a_scrape_shows_the_sample_that_was_taken_last(node):
    with node.agent() as agent:
        for headers in ({}, {"Accept-Encoding": "gzip"}) * 5:
            earliest = samples_of_json(agent)
            body = agent.get(**headers)[2]
            page = Samples.of((gzip.decompress(body) if headers else body).decode())
            latest = samples_of_json(agent)
            assert earliest <= page.one(m.SAMPLES.name) <= latest
            agent.wait(lambda seen=latest: samples_of_json(agent) > seen + 1)


def test_two_scrapes_between_two_samples_get_the_same_page_whatever_form_they_ask_for(node):
    with node.agent(interval="3600") as agent:
        plain, again = agent.get()[2], agent.get()[2]
        assert plain == again
        assert gzip.decompress(agent.get(**{"Accept-Encoding": "gzip"})[2]) == plain


def test_families_are_switched(node):
    names = {key[0] for key in Samples.of(node.once("--families", "pod,dcgm"))}
    assert {"pod_gpu_memory_used", "DCGM_FI_DEV_GPU_UTIL"} <= names
    assert not any(name.startswith(("vgpuscope_", "hami_", "process_")) for name in names)
    by_default = {key[0] for key in Samples.of(node.once())}
    assert "pod_gpu_memory_used" in by_default
    assert not any(name.startswith("DCGM") for name in by_default)


def test_a_device_value_is_never_copied_to_several_pods(node):
    node.nvml.process(0, 12, memory=GIB).sample(0, 12, sm=5)
    node.process(12, node.pod("other"))
    page = Samples.of(node.once("--families", "all"))
    values = {labels.get("pod"): value for labels, value in page.named("DCGM_FI_DEV_GPU_UTIL", UUID=A)}
    assert values == {None: 50.0}
    parts = Samples.of(node.once("--families", "dcgm,dcgm-pods"))
    values = {labels.get("pod"): value for labels, value in parts.named("DCGM_FI_DEV_GPU_UTIL", UUID=A)}
    assert values == {None: 50.0, "train": 45.0, "other": 5.0}
    memory = {labels.get("pod"): value for labels, value in parts.named("DCGM_FI_DEV_FB_USED", UUID=A)}
    assert memory.keys() == {None, "train", "other"}
    assert memory["other"] == 1024


def test_with_a_web_configuration_the_page_needs_a_token_and_the_probes_do_not(node):
    import hashlib

    config = node.path / "web.yaml"
    config.write_text(f"bearer_tokens: [{{name: prom, sha256: {hashlib.sha256(b'sesame').hexdigest()}}}]\n")
    with node.agent("--web.config.file", str(config), ready="/readyz") as agent:
        assert agent.status("/metrics") == agent.status("/api/v1/node") == 401
        assert agent.get("/metrics", Authorization="Bearer sesame")[0] == 200
        config.write_text("basic_auth_users: {")
        agent.wait(lambda: "WEB_CONFIG_INVALID" in agent.log.read_text())
        page = Samples.of(agent.get("/metrics", Authorization="Bearer sesame")[2].decode())
        assert page.has(m.GPU_INFO.name)  # the last good file is still in force


# ── what comes and goes ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_pod_that_ends_takes_its_series_with_it(node):
    with node.agent("--families", "all") as agent:
        agent.until(lambda page: page.has(m.CONTAINER_MEMORY_USED.name, pod="train"))
        node.nvml.empty(0).write()
        node.end_process(11)
        node.pods.clear()
        node.write()
        page = agent.until(lambda page: page.one(m.ENDED.name) == 1)
        assert not any(dict(key[1]).get("pod") == "train" for key in page)


def test_a_finished_pod_has_no_series_though_its_object_is_still_there(node):
    uid = node.pod("done", phase="Succeeded")
    node.region(uid, "main", A, p1=(0, GIB, 5))
    page = Samples.of(node.once("--families", "all"))
    assert not any(dict(key[1]).get("pod") == "done" for key in page)
    assert page.one(m.REGIONS_ORPHANED.name) == 1


def test_four_kinds_of_quiet_can_be_told_apart(node):
    """Not started, exclusive without a region, idle, and vanished."""
    hami = {"hami.io/vgpu-devices-allocated": f"{B},NVIDIA,4096,10:;"}
    node.pod("not-started", annotations=hami)
    idle = node.pod("idle", annotations=hami)
    node.region(idle, "main", B, p1=(21, GIB, 0))
    node.nvml.gpu(1, memory_used=GIB).process(1, 21, memory=GIB)
    node.process(21, idle)
    page = Samples.of(node.once())
    state = {labels["pod"]: labels["state"] for labels, value in page.named(m.CONTAINER_STATE.name) if value == 1}
    mode = {labels["pod"]: labels["mode"] for labels, _ in page.named(m.CONTAINER_INFO.name)}
    assert state == {"train": "active", "not-started": "not-started", "idle": "idle"}
    assert mode == {"train": "unallocated", "not-started": "hami", "idle": "hami"}


# ── what it survives ─────────────────────────────────────────────────────────────────────────────────────────────
def hurried(node):
    """An agent that does not wait long for the driver, but longer than a busy machine keeps it waiting."""
    config = node.path / "agent.yaml"
    config.write_text("agent: {driver_deadline: 2.0}\n")
    return node.agent("--config", str(config))


def test_a_hung_driver_is_named_and_neither_a_scrape_nor_other_sources_wait_for_it(node):
    uid = node.pod("hami-pod")
    node.region(uid, "main", A, p1=(0, GIB, 5))
    with hurried(node) as agent:
        agent.until(lambda page: page.has(m.GPU_POWER.name, gpu_uuid=A))
        node.nvml.hang("nvmlDeviceGetCount_v2").write()
        page = agent.until(lambda page: page.one(m.SOURCE_UP.name, source="nvml") == 0)
        assert page.one(m.GPU_HEALTH.name, gpu_uuid=A, health="unresponsive") == 1
        assert not page.has(m.GPU_POWER.name)
        assert page.one(m.VGPU_MEMORY_USED.name, pod="hami-pod") == GIB
        assert page.one(m.ERRORS.name, code="DRIVER_HUNG") >= 1
        told = agent.log.read_text().count("error_code=DRIVER_HUNG")
        agent.samples_after(3)
        assert "nvmlDeviceGetCount" in agent.log.read_text()
        assert agent.log.read_text().count("error_code=DRIVER_HUNG") == told  # not at each sample
        node.nvml.heal().write()
        agent.until(lambda page: page.one(m.SOURCE_UP.name, source="nvml") == 1 and page.has(m.GPU_POWER.name))


def test_a_call_that_hangs_in_one_gpu_costs_that_gpu_only(node):
    with hurried(node) as agent:
        agent.until(lambda page: page.has(m.GPU_POWER.name, gpu_uuid=B))
        node.nvml.hang("nvmlDeviceGetPowerUsage", slot=1).write()
        page = agent.until(lambda page: page.one(m.GPU_HEALTH.name, gpu_uuid=B, health="unresponsive") == 1)
        page = agent.until(lambda page: page.one(m.SOURCE_UP.name, source="nvml") == 1)
        assert page.has(m.GPU_POWER.name, gpu_uuid=A)
        assert not page.has(m.GPU_POWER.name, gpu_uuid=B)
        assert page.one(m.CONTAINER_SM.name, pod="train") == 0.45
        assert "nvmlDeviceGetPowerUsage" in agent.log.read_text()
        node.nvml.heal().write()
        agent.until(lambda page: page.one(m.GPU_HEALTH.name, gpu_uuid=B, health="ok") == 1)


def test_a_lost_gpu_keeps_its_name_and_the_others_their_numbers(node):
    with node.agent() as agent:
        agent.until(lambda page: page.has(m.GPU_UTILIZATION.name, gpu_uuid=A))
        node.nvml.lost(0).write()
        page = agent.until(lambda page: page.one(m.GPU_HEALTH.name, gpu_uuid=A, health="lost") == 1)
        assert page.has(m.GPU_INFO.name, gpu_uuid=A)
        assert not page.has(m.GPU_UTILIZATION.name, gpu_uuid=A)
        assert page.has(m.GPU_UTILIZATION.name, gpu_uuid=B)
        assert page.one(m.SOURCE_UP.name, source="nvml") == 1


def test_a_driver_reload_is_survived_without_a_restart(node):
    with node.agent() as agent:
        agent.until(lambda page: page.has(m.GPU_UTILIZATION.name, gpu_uuid=A))
        node.nvml.gpu(0, energy=1000).reload().write()
        agent.samples_after(3)
        agent.until(lambda page: page.has(m.GPU_UTILIZATION.name, gpu_uuid=A))
        assert "Traceback" not in agent.log.read_text()


def test_xids_are_counted(node):
    with node.agent() as agent:
        agent.until(lambda page: page.has(m.GPU_INFO.name))

        def reported(page):
            node.nvml.xid(0, 79).write()  # a set that was not there yet misses an event: report until one is seen
            return page.has(m.GPU_XIDS.name, gpu_uuid=A, xid="79")

        agent.until(reported)


def test_garbage_of_the_driver_is_dropped_and_counted(node):
    node.nvml.gpu(0, utilization=808334905)
    page = Samples.of(node.once())
    assert not page.has(m.GPU_UTILIZATION.name, gpu_uuid=A)
    assert sum(value for _, value in page.named(m.DROPPED.name)) >= 1


def test_without_a_driver_regions_are_still_reported(node):
    uid = node.pod("hami-pod")
    node.region(uid, "main", A, p1=(0, GIB, 5))
    command, environment = node.command("--once")
    del environment["LD_LIBRARY_PATH"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WITHIN)
    page = Samples.of(done.stdout)
    assert page.one(m.SOURCE_ABSENT.name, source="nvml") == 1
    assert page.one(m.VGPU_MEMORY_USED.name, pod="hami-pod") == GIB
    assert page.one(m.CONTAINER_MEMORY_USED.name, pod="hami-pod") == GIB


def test_a_plain_gpu_server_needs_no_kubernetes(node):
    page = Samples.of(node.once("--pods", "none"))
    ((labels, value),) = page.named(m.CONTAINER_MEMORY_USED.name)
    assert value == 3 * GIB
    assert "pod" not in labels
    assert page.one(m.SOURCE_ABSENT.name, source="pods") == 1


def test_nothing_below_the_hook_path_is_ever_written_or_removed(node):
    uid = node.pod("hami-pod")
    node.region(uid, "main", A, p1=(0, GIB, 5))
    orphan = node.region_dir("long-gone", "main")
    (orphan / "x.cache").write_bytes(b"garbage")
    before = {path: path.stat()[:9] for path in sorted(node.hook.rglob("*"))}
    with node.agent() as agent:
        agent.samples_after(5)
    after = {path: path.stat()[:9] for path in sorted(node.hook.rglob("*"))}
    assert {p: (s[6], s[8]) for p, s in after.items()} == {p: (s[6], s[8]) for p, s in before.items()}


def test_a_refused_region_is_counted_now_and_logged_once(node):
    (node.region_dir(node.pod("bad"), "main") / "x.cache").write_bytes(b"\0" * 100)
    with node.agent() as agent:
        page = agent.samples_after(5)
        assert sum(value for _, value in page.named(m.REGIONS_REFUSED.name)) == 1
        assert agent.log.read_text().count("REGION_REFUSED") == 1


def test_a_killed_process_that_its_region_still_counts_is_left_out(node):
    uid = node.pod("hami-pod")
    node.region(uid, "main", A, p1=(11, GIB, 5), p2=(12, 5 * GIB, 5))
    page = Samples.of(node.once())
    assert page.one(m.VGPU_MEMORY_USED.name, pod="hami-pod") == 0  # 12 is gone, and 11 is another pod's by now
    assert page.one(m.CORRECTIONS.name, kind="dead-process") == 2


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────
def refused(node, *flags, **environment):
    command, env = node.command(*flags)
    done = subprocess.run(
        command, env={**env, **environment}, capture_output=True, text=True, timeout=WITHIN, cwd=node.path
    )
    assert "Traceback" not in done.stderr
    return done


def test_a_busy_port_is_said_so(node):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused(node, "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert "PORT_BUSY" in done.stderr
    assert str(port) in done.stderr


@pytest.mark.parametrize(
    ("flags", "code", "word"),
    [
        (("--sample-interval", "0"), "CONFIG_INVALID", "agent.sample_interval"),
        (("--families", "nativ"), "CONFIG_INVALID", "agent.families"),
        (("--pods", "files:x"), "CONFIG_INVALID", "agent.pods"),
        (("--ratio", "0"), "RATIO_INVALID", "agent.ratio"),
        (("--ratio-file", "none.txt"), "RATIO_INVALID", "none.txt"),
        (("--pods", "kube", "--kubeconfig", "none.yaml"), "CONFIG_INVALID", "none.yaml"),
        (("--web.config.file", "none.yaml"), "WEB_CONFIG_INVALID", "none.yaml"),
    ],
)
def test_a_bad_setting_ends_the_start_with_code_two_and_its_name(node, flags, code, word):
    done = refused(node, "--listen", f"127.0.0.1:{free_port()}", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert code in done.stderr
    assert word in done.stderr
    assert "hint" in done.stderr


def test_a_pods_file_that_is_not_json_costs_the_names_only(node):
    with node.agent() as agent:
        agent.until(lambda page: page.has(m.CONTAINER_MEMORY_USED.name, pod="train"))
        node.pods_file.write_text("not json")
        # A sample that was under way may show the state of the source before the count of its errors.
        page = agent.until(
            lambda page: (
                page.one(m.SOURCE_UP.name, source="pods") == 0 and page.has(m.ERRORS.name, code="KUBE_UNREADABLE")
            )
        )
        assert page.has(m.CONTAINER_MEMORY_USED.name, pod="train")  # the last good list stays, its age says how old
        assert page.one(m.ERRORS.name, code="KUBE_UNREADABLE") >= 1


def test_a_malformed_annotation_costs_only_itself_and_is_told_once(node):
    node.pod("odd", annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA:;"})
    with node.agent() as agent:
        page = agent.until(lambda page: page.has(m.ERRORS.name, code="ANNOTATION_MALFORMED"))
        assert page.one(m.CONTAINER_MEMORY_USED.name, pod="train") == 3 * GIB
        assert agent.samples_after(3).one(m.ERRORS.name, code="ANNOTATION_MALFORMED") == 1
        assert agent.log.read_text().count("ANNOTATION_MALFORMED") == 1


# ── the ratio ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("text", "megabytes"), [("2", 40960), ("0.5\n", 163840), (" 4.0 ", 20480)])
def test_the_ratio_is_an_integer_or_a_float(node, text, megabytes):
    (node.path / "gpu_allocation.txt").write_text(text)
    page = Samples.of(node.once("--families", "pod"))
    assert page.one("pod_total_gpu_memory", pod="train", namespace="ml", gpu_id="0") == megabytes


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "nan", "inf", "1 2"])
def test_a_bad_ratio_file_is_a_clear_error_at_start(node, text):
    (node.path / "gpu_allocation.txt").write_text(text)
    done = refused(node, "--once")
    assert (done.returncode, "RATIO_INVALID" in done.stderr) == (2, True)


def test_a_ratio_file_that_turns_bad_keeps_the_last_good_ratio(node):
    file = node.path / "ratio.txt"
    file.write_text("2")
    with node.agent("--ratio-file", str(file)) as agent:
        agent.until(lambda page: page.one(m.RATIO.name) == 2)
        file.write_text("oops")
        page = agent.until(lambda page: page.one(m.SOURCE_UP.name, source="ratio") == 0)
        assert page.one(m.RATIO.name) == 2
        file.write_text("8")
        agent.until(lambda page: page.one(m.RATIO.name) == 8 and page.one(m.SOURCE_UP.name, source="ratio") == 1)


def test_hamis_limit_goes_before_the_ratio(node):
    uid = node.pod("hami-pod")
    node.region(uid, "main", A, limit=6 * GIB, p1=(0, GIB, 5))
    page = Samples.of(node.once("--ratio", "2", "--families", "pod"))
    assert page.one("pod_total_gpu_memory", pod="hami-pod") == 6144
    assert page.one("pod_total_gpu_memory", pod="train") == 40960


def test_one_gpu_without_rights_does_not_end_the_others(node):
    node.nvml.fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, slot=1)
    assert Samples.of(node.once()).has(m.GPU_UTILIZATION.name, gpu_uuid=A)


def test_an_unknown_error_of_one_call_costs_that_value_only(node):
    node.nvml.fail("nvmlDeviceGetPowerUsage", UNKNOWN, slot=0)
    page = Samples.of(node.once())
    assert not page.has(m.GPU_POWER.name, gpu_uuid=A)
    assert page.has(m.GPU_TEMPERATURE.name, gpu_uuid=A)
