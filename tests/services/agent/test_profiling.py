"""Profiling values in the agent: a round that hangs or disturbs is switched off, and everything else goes on."""

import logging
import os
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import pytest

from tests.native import build
from tests.native.scenario import GIB, Scenario, gpu_uuid, mig_uuid
from tests.services.agent.noderoot import NodeRoot
from vgpuscope.catalog import agent as m
from vgpuscope.model.activity import Activity, ActivityReading
from vgpuscope.model.device import DeviceReading, Gpu, MigInstance
from vgpuscope.model.errors import ProfilingAbsent, ProfilingOff
from vgpuscope.model.pod import SourceState
from vgpuscope.services.agent.profiling import Profiling
from vgpuscope.services.agent.sampler import Sampler
from vgpuscope.services.agent.waits import WAITS
from vgpuscope.sources.node.nvml.driver import Nvml

A, B = gpu_uuid(0), gpu_uuid(1)
ENGINE, SM, PCIE_TX = 1, 2, 20
GPU = Gpu(uuid=A, index=0, model="NVIDIA H100 80GB HBM3")
READING = DeviceReading(at=0.0, gpus=(GPU,))
PATIENT = 60.0  # seconds: a sample of a busy machine waits so long for a round that does not hang


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """The part of the driver that profiling needs."""

    profiling = "nvmlGpmSampleGet GPU-x"

    def __init__(self) -> None:
        self.answer: ActivityReading | Exception | None = ActivityReading(
            source="gpm", places={(A, None): Activity(sm=0.5)}
        )
        self.hangs: threading.Event | None = None
        self.began = threading.Event()  # the first round
        self.rounds = 0
        self.disturbs: str | None = None

    def profile(self, gpus):
        self.rounds += 1
        self.began.set()
        if self.hangs:
            self.hangs.wait(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def disturbed(self, reading):
        found, self.disturbs = self.disturbs, None
        return found


class Told:
    def __init__(self) -> None:
        self.good: list[float] = []
        self.bad: list[Exception] = []


def patient(nvml, told, clock):
    return Profiling(nvml, deadline=5.0, good=told.good.append, bad=told.bad.append, patience=PATIENT, clock=clock)


def impatient(profiling):
    """From now on, a sample waits for a round as briefly as it really does."""
    profiling.patience = WAITS.profiling


@pytest.fixture
def made():
    driver, told, clock = Driver(), Told(), Clock()
    profiling = patient(cast(Nvml, driver), told, clock)
    yield profiling, driver, told, clock
    if driver.hangs:
        driver.hangs.set()


def sampled(profiling, gpus=(GPU,)):
    profiling.begin(READING)
    return profiling.take(gpus)


def test_a_round_is_in_the_sample_that_began_it(made):
    profiling, _, told, _ = made
    assert sampled(profiling).of(A).activity == Activity(sm=0.5)
    assert (len(told.good), told.bad) == (1, [])


def test_a_call_that_hangs_is_switched_off_after_its_deadline_and_said_so_once(made, caplog):
    profiling, driver, told, clock = made
    driver.hangs = threading.Event()
    impatient(profiling)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            found = sampled(profiling)
            clock.now += 1.0
    assert driver.began.wait(60)
    assert driver.rounds == 1
    assert found.blind == {A: "hung"}
    assert found.of(A) is None
    assert [type(error) for error in told.bad] == [ProfilingOff]
    assert "nvmlGpmSampleGet GPU-x" in str(told.bad[0])
    assert [r.message for r in caplog.records] == ["profiling is switched off"]


def test_what_a_hung_call_returns_in_the_end_is_not_used(made):
    profiling, driver, _, clock = made
    driver.hangs = threading.Event()
    impatient(profiling)
    for _ in range(8):
        sampled(profiling)
        clock.now += 1.0
    assert driver.began.wait(60)
    driver.hangs.set()
    for _ in range(3):
        found = sampled(profiling)
    assert (found.of(A), driver.rounds) == (None, 1)


def test_a_slow_round_keeps_the_values_before_it_for_a_few_seconds(made):
    profiling, driver, _, clock = made
    assert sampled(profiling).of(A) is not None
    driver.hangs = threading.Event()
    impatient(profiling)
    clock.now += 1.0
    assert sampled(profiling).of(A) is not None
    clock.now += 4.9
    assert sampled(profiling).of(A) is None
    driver.hangs.set()


def test_an_unexpected_error_of_a_round_costs_that_round_only(made):
    profiling, driver, told, clock = made
    answer, driver.answer = driver.answer, RuntimeError("boom")
    assert sampled(profiling).of(A) is None
    assert "boom" in str(told.bad[0])
    driver.answer = answer
    clock.now += 1.0
    assert sampled(profiling).of(A) is not None


def test_gpus_without_counters_make_the_source_absent_with_the_reason(made):
    profiling, driver, told, _ = made
    driver.answer = ActivityReading(source="gpm", blind={A: "no-symbols"})
    assert sampled(profiling).blind == {A: "no-symbols"}
    assert [type(error) for error in told.bad] == [ProfilingAbsent]
    assert "no-symbols" in str(told.bad[0])


def test_gpus_without_counters_are_asked_once_a_minute_and_the_reason_stays_on_the_page(made):
    profiling, driver, _, clock = made
    driver.answer = ActivityReading(source="gpm", blind={A: "unsupported"})
    for _ in range(121):
        assert sampled(profiling).blind == {A: "unsupported"}
        clock.now += 1.0
    assert driver.rounds == 3


@pytest.mark.parametrize("answer", [ActivityReading(source="gpm"), None, RuntimeError("boom")])
def test_two_rounds_are_never_closer_than_the_driver_needs(made, answer):
    profiling, driver, _, clock = made
    driver.answer = answer
    for _ in range(100):
        sampled(profiling)
        clock.now += 1 / 16
    assert driver.rounds == 25


def test_the_gap_between_two_rounds_begins_when_the_first_has_ended(made):
    profiling, driver, _, clock = made
    profiling.begin(READING)
    clock.now += 0.19
    profiling.take((GPU,))
    clock.now += 0.19
    sampled(profiling)
    assert driver.rounds == 1
    clock.now += 0.02
    sampled(profiling)
    assert driver.rounds == 2


def test_on_a_mixed_node_the_first_round_without_values_does_not_stop_profiling(made):
    profiling, driver, told, clock = made
    answer, driver.answer = (
        driver.answer,
        ActivityReading(source="gpm", blind={B: "unsupported"}, waiting=frozenset({A})),
    )
    sampled(profiling)
    driver.answer = answer
    clock.now += 1.0
    assert sampled(profiling).of(A) is not None
    assert (driver.rounds, told.bad) == (2, [])


def test_a_round_without_usable_values_is_not_good_and_is_not_the_last_for_a_minute(made):
    profiling, driver, told, clock = made
    driver.answer = ActivityReading(source="gpm", blind={A: "no-values"})
    for _ in range(3):
        sampled(profiling)
        clock.now += 1.0
    assert ([type(error) for error in told.bad], told.good) == ([ProfilingAbsent] * 3, [])
    assert driver.rounds == 3


def test_a_gpu_that_is_disturbed_is_said_so(made, caplog):
    profiling, driver, told, _ = made
    driver.disturbs = A
    with caplog.at_level(logging.WARNING):
        sampled(profiling)
    assert isinstance(told.bad[0], ProfilingOff)
    assert A in str(told.bad[0])
    assert [r.message for r in caplog.records] == ["profiling is switched off"]


def test_an_exporters_values_end_thirty_seconds_after_its_last_page(made):
    profiling, driver, _, clock = made
    driver.answer = None
    profiling.show(ActivityReading(source="dcgm", places={(A, None): Activity(sm=0.25)}))
    assert sampled(profiling).of(A).source == "dcgm"
    clock.now += 31.0
    assert sampled(profiling).of(A) is None


def cut(mig):
    made = MigInstance(uuid=mig, index=0, gpu_instance=3, compute_instance=0)
    gpu = Gpu(uuid=A, index=0, model="NVIDIA H100 80GB HBM3", mig_enabled=True, instances=(made,))
    return DeviceReading(at=0.0, gpus=(gpu,))


def test_a_replaced_instance_does_not_have_the_values_of_a_slow_round_or_of_an_older_page(made):
    profiling, driver, _, clock = made
    old, new = cut("MIG-old"), cut("MIG-new")
    driver.answer = ActivityReading(source="gpm", places={(A, 3): Activity(sm=0.5)})
    profiling.begin(old)
    profiling.show(ActivityReading(source="dcgm", places={(A, 3): Activity(sm=0.25)}))
    assert profiling.take(old.gpus).of(A, 3).source == "gpm"
    driver.hangs = threading.Event()
    impatient(profiling)
    clock.now += 1.0
    profiling.begin(old)
    assert profiling.take(old.gpus).of(A, 3).source == "gpm"
    clock.now += 1.0
    profiling.begin(new)
    assert profiling.take(new.gpus).of(A, 3) is None
    driver.hangs.set()
    profiling.patience = PATIENT
    assert profiling._round is not None
    profiling._round[0].result(60)  # the slow round, which began before the instance was there
    rounds = driver.rounds
    clock.now += 0.5
    profiling.begin(new)
    assert profiling.take(new.gpus).of(A, 3) is None
    clock.now += 0.5
    profiling.begin(new)
    found = profiling.take(new.gpus).of(A, 3)
    assert (found.source, driver.rounds) == ("gpm", rounds + 1)


def test_an_exporters_strangers_are_counted_once_for_each_page(made):
    profiling, _, _, _ = made
    for _ in range(2):
        profiling.show(ActivityReading(source="dcgm", places={("GPU-elsewhere", None): Activity(sm=0.25)}))
        for _ in range(3):
            found = sampled(profiling)
    assert found.dropped == {"dcgm-other-gpu": 2}


# ── on the stand-in driver ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def node(tmp_path, monkeypatch):
    build.preload(build.library_or_skip())
    root = NodeRoot(tmp_path)
    scenario = Scenario(tmp_path / "nvml").gpu(0, name="NVIDIA H100 80GB HBM3", utilization=None)
    scenario.mig(0, 0, gi=3, profile="1g.10gb", memory_used=2 * GIB).mig(0, 1, gi=5, profile="2g.20gb")
    scenario.process(0, 11, memory=GIB, gi=3, ci=0)
    monkeypatch.setenv("FAKENVML_STATE", str(scenario.path))
    root.process(11, root.pod("busy"))
    root.write()
    scenario.gpm(0, {SM: 10.0, PCIE_TX: 1.0}).gpm(0, {ENGINE: 70.0, SM: 50.0}, index=0).gpm(0, {ENGINE: 0.0}, index=1)
    scenario.write()
    sampler = Sampler(
        node="n",
        families=("native", "dcgm"),
        containers_dir=os.path.join(tmp_path, "none"),
        proc_root=str(root.proc),
        window=60.0,
        driver_deadline=PATIENT,
        clock=Clock(),
    )
    sampler.profiling.patience = PATIENT
    yield scenario, sampler
    scenario.heal().write()
    sampler.nvml.close()


def pages(sampler, count):
    for _ in range(count):
        sampler._clock.now += 0.21  # two samples of the driver are never closer
        page = sampler.cycle()[1].text().decode()
    return page


def test_an_instances_values_are_on_the_page_in_our_names_and_in_dcgms(node):
    _, sampler = node
    page = pages(sampler, 3)
    place = f'gpu_uuid="{A}",mig_uuid="{mig_uuid(0, 0)}"'
    assert f'vgpuscope_mig_engine_active_ratio{{node="n",{place}}} 0.7' in page
    assert f'vgpuscope_mig_sm_active_ratio{{node="n",{place}}} 0.5' in page
    [line] = [one for one in page.splitlines() if one.startswith("DCGM_FI_PROF_SM_ACTIVE{")]
    assert 'GPU_I_PROFILE="1g.10gb",GPU_I_ID="3"' in line
    assert f'UUID="{A}"' in line
    assert line.endswith("} 0.5")
    assert f'vgpuscope_gpu_pcie_sent_bytes_per_second{{node="n",gpu_uuid="{A}"}} 1048576' in page
    assert f'vgpuscope_gpu_profiling_info{{node="n",gpu_uuid="{A}",source="gpm"}} 1' in page
    assert 'vgpuscope_source_up{node="n",source="gpm"} 1' in page


def test_a_hang_leaves_the_rest_of_the_page_and_the_agent_ready(node):
    scenario, sampler = node
    pages(sampler, 2)
    sampler.profiling._deadline = 0.5
    impatient(sampler.profiling)
    scenario.hang("nvmlGpmMigSampleGet").write()
    end = time.monotonic() + 60
    states: dict[str, SourceState] = {}
    while time.monotonic() < end and ("gpm" not in states or states["gpm"].code is None):
        sample, page = sampler.cycle()
        states = {state.source: state for state in sample.outline.sources}
        sampler._clock.now += 0.2
    assert states["gpm"].code == ProfilingOff.code
    assert states["gpm"].absent  # so the agent stays ready
    text = page.text().decode()
    assert f'vgpuscope_gpu_profiling_info{{node="n",gpu_uuid="{A}",source="none",reason="hung"}} 1' in text
    assert f'{m.MIG_MEMORY_USED.name}{{node="n",gpu_uuid="{A}",mig_uuid="{mig_uuid(0, 0)}"}}' in text
    assert m.MIG_ENGINE_ACTIVE.name not in text
    assert sampler.counters.errors[ProfilingOff.code] == 1


def test_an_older_gpu_beside_it_does_not_pause_the_profiling_of_a_gpu(tmp_path, monkeypatch):
    build.preload(build.library_or_skip())
    scenario = Scenario(tmp_path / "nvml").gpu(0).gpu(1, name="NVIDIA H100 80GB HBM3").gpm(1, {SM: 10.0}).write()
    monkeypatch.setenv("FAKENVML_STATE", str(scenario.path))
    told, nvml, clock = Told(), Nvml(), Clock()
    profiling = patient(nvml, told, clock)
    try:
        for _ in range(2):
            reading = nvml.read()
            profiling.begin(reading)
            found = profiling.take(reading.gpus)
            clock.now += 1.0
    finally:
        nvml.close()
    assert found.of(B).activity == Activity(sm=0.1)
    assert (found.blind, told.bad) == ({A: "unsupported"}, [])


def test_garbage_is_absent_and_counted_by_reason(node):
    scenario, sampler = node
    scenario.gpm(0, {SM: 4294967280.0, ENGINE: float("nan")}, index=0).write()
    page = pages(sampler, 3)
    assert f'mig_uuid="{mig_uuid(0, 0)}"}}' not in "".join(
        line for line in page.splitlines() if line.startswith("vgpuscope_mig_sm_active_ratio")
    )
    assert 'vgpuscope_dropped_values_total{node="n",reason="gpm-over-100"}' in page
    assert 'vgpuscope_dropped_values_total{node="n",reason="gpm-nan"}' in page


# ── a whole agent beside a dcgm-exporter ─────────────────────────────────────────────────────────────────────────


@contextmanager
def exporter(page):
    """A dcgm-exporter that serves what `page` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_an_agent_shows_the_fields_of_the_exporter_beside_it_and_says_when_it_is_another_nodes(tmp_path):
    root = NodeRoot(tmp_path)
    root.nvml.gpu(0, utilization=None).mig(0, 0, gi=3, profile="1g.10gb", memory_used=2 * GIB)
    root.nvml.process(0, 11, memory=GIB, gi=3, ci=0)
    root.process(11, root.pod("busy"))
    shown = [A]
    line = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{}",GPU_I_ID="3",GPU_I_PROFILE="1g.10gb"}} 0.7\n'
    with exporter(lambda: line.format(shown[0])) as url, root.agent("--dcgm", url, "--families", "all") as agent:
        # The driver's own answer comes from another thread and may be a sample later.
        page = agent.until(lambda page: page.has(m.GPU_PROFILING_INFO.name, source="dcgm", reason="unsupported"))
        assert page.one(m.MIG_ENGINE_ACTIVE.name, mig_uuid=mig_uuid(0, 0)) == 0.7
        assert page.one(m.CONTAINER_SM.name, pod="busy") == pytest.approx(0.1)
        assert page.has("DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU_I_ID="3", pod="busy")
        assert not page.has("DCGM_FI_DEV_GPU_UTIL", GPU_I_ID="3")
        shown[0] = "GPU-elsewhere"
        # A sample that was under way may show the error of the source with the values of the page before.
        page = agent.until(
            lambda page: (
                page.has(m.SOURCE_ERROR.name, source="dcgm", code="PROFILING_UNUSABLE")
                and page.has(m.DROPPED.name, reason="dcgm-other-gpu")
            )
        )
        assert page.one(m.DROPPED.name, reason="dcgm-other-gpu") >= 1
        assert not page.has(m.MIG_ENGINE_ACTIVE.name)
        assert "PROFILING_UNUSABLE" in agent.log.read_text()


def test_an_exporter_whose_fields_have_another_unit_is_counted_and_said_so(tmp_path):
    root = NodeRoot(tmp_path)
    root.nvml.gpu(0)
    line = f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="{A}"}} 55\n'
    with exporter(lambda: line) as url, root.agent("--dcgm", url) as agent:
        page = agent.until(lambda page: page.has(m.SOURCE_ERROR.name, source="dcgm", code="PROFILING_UNUSABLE"))
        page = agent.until(lambda page: page.has(m.DROPPED.name, reason="dcgm-over-1"))
        assert not page.has(m.GPU_SM_ACTIVE.name)
