"""What one tenant, one GPU or one source does unexpectedly is its own: the agent goes on with all others."""

import asyncio
import gzip
import logging

import pytest

from tests.fuzz import survives
from tests.logic.node.builders import GIB, A, grant, make_gpu, owner, pod, process, sample, share
from tests.paths import TESTS
from tests.services.agent.sampling import bare_sampler
from tests.waiting import until
from vgpuscope.catalog import agent as catalog
from vgpuscope.config import AgentConfig
from vgpuscope.formats.hami.region import decode, identify
from vgpuscope.model.errors import RegionRefused
from vgpuscope.model.pod import Pod
from vgpuscope.model.region import ContainerRegion
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.log import SUMMARY
from vgpuscope.services.agent.process import Agent
from vgpuscope.sim.regions import RegionFile
from vgpuscope.sources.node import regions as region_files
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.node.metrics import SelfUse, node_samples

pytestmark = pytest.mark.attack
SOON = 60.0


@pytest.fixture
def root(tmp_path):
    for name in ("uid-good_main", "uid-bad_main"):
        (tmp_path / "containers" / name).mkdir(parents=True)
        RegionFile(tmp_path / "containers" / name / "a.cache", layout="v1.2", uuids=[A], memory_limits=[8 * GIB], now=0)
    (tmp_path / "proc").mkdir()
    return tmp_path


def sampler_of(root, **more):
    return bare_sampler(root, driver_deadline=SOON, **more)


def config(root, **more):
    return AgentConfig(
        node_name="n1",
        hook_path=str(root),
        proc_root=str(root / "proc"),
        pods="none",
        podresources_socket="none",
        **more,
    )


def broken(*_, **__):
    raise ZeroDivisionError("a broken promise of our own")


def units(caplog):
    return [record.fields["unit"] for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("source", ["regions", "proc", "cgroup"])
def test_a_page_that_shows_a_source_down_counts_its_error(root, monkeypatch, source):
    """Each source is read at another moment of a sample; a page is of one moment."""
    made = sampler_of(root)
    usual = made._read
    monkeypatch.setattr(made, "_read", lambda name, read: usual(name, broken if name == source else read))
    sample, _ = made.cycle()
    states = {one.source: one.up for one in sample.outline.sources}
    assert (states[source], sample.outline.tally.errors["INTERNAL"]) == (False, 1)


def test_a_region_that_breaks_its_reader_is_refused_and_named_and_the_others_are_read(root, monkeypatch, caplog):
    usual = region_files._read
    monkeypatch.setattr(region_files, "_read", lambda path, known: (broken if "bad" in path else usual)(path, known))
    made = sampler_of(root)
    for _ in range(2):
        made.cycle()
    reading = made._regions()
    assert reading is not None
    assert [(refusal.reason, "bad" in refusal.path) for refusal in reading.refusals] == [("unexpected", True)]
    assert [container.pod_uid for container in reading.containers] == ["uid-good"]
    assert len(units(caplog)) == 1
    assert "uid-bad_main" in units(caplog)[0]
    assert made.counters.errors["INTERNAL"] >= 2


@pytest.mark.parametrize(
    ("source", "part"), [("regions", "_region_probe"), ("nvml", "_driver_probe"), ("proc", "_proc")]
)
def test_a_source_that_breaks_is_down_and_the_sample_goes_on(root, monkeypatch, caplog, source, part):
    made = sampler_of(root)
    monkeypatch.setattr(getattr(made, part), "owners" if part == "_proc" else "read", broken)
    for _ in range(2):
        sample, page = made.cycle()
    states = {state.source: state for state in sample.complete().sources}
    assert (states[source].up, states[source].code) == (False, "INTERNAL")
    assert units(caplog) == [f"source {source}"]
    assert catalog.SOURCE_UP.name.encode() in page.text()


def test_a_sample_has_the_time_of_the_clocks_that_the_sampler_got_and_is_summarised_once_an_hour(root, caplog):
    caplog.set_level(SUMMARY)
    now = 1000.0
    made = sampler_of(root, clock=lambda: now, wall=lambda: now + 1_700_000_000.0)
    summaries = []
    for _ in range(5):
        sample, _ = made.cycle()
        assert sample.outline.at == now + 1_700_000_000.0
        summaries.append([record.message for record in caplog.records].count("node"))
        now += 30.0
    assert summaries == [1, 1, 1, 1, 1]
    now += 3500.0
    made.cycle()
    assert [record.message for record in caplog.records].count("node") == 2
    made.source_health["pods"].good()
    now += 45.0
    assert made.source_health["pods"].state().age_seconds == 45.0


@pytest.mark.parametrize(("lasts", "pause"), [(0.0, 5.0), (2.0, 3.0), (7.0, 0.0)])
def test_a_sample_that_takes_long_shortens_the_pause_after_it(root, monkeypatch, lasts, pause):
    now, pauses = 1000.0, []

    class Stop:
        def wait(self, seconds):
            pauses.append(seconds)
            return len(pauses) > 2

    def cycle():
        nonlocal now
        now += lasts
        return sampled

    made = Agent(config(root, sample_interval=5.0), clock=lambda: now)
    sampled = made.sampler.cycle()
    monkeypatch.setattr(made.sampler, "cycle", cycle)
    monkeypatch.setattr(made, "_stop", Stop())
    made._beat()
    assert pauses == [0.0, pause, pause]


@pytest.fixture
async def agent(root):
    made = Agent(config(root, sample_interval=0.01), retry=(0.01, 0.01))
    running = asyncio.create_task(made._sample())
    yield made
    await made.close()
    await running


async def test_a_sample_that_fails_ends_no_agent_and_the_next_one_is_taken(agent, monkeypatch, caplog):
    await until(lambda: agent._latest)
    usual = agent.sampler.cycle
    agent.sampler.cycle = broken
    await until(lambda: agent.counters.errors.get("INTERNAL", 0) >= 3)
    assert agent.readiness().missing == ("a new sample",)
    before = agent._latest
    agent.sampler.cycle = usual
    await until(lambda: agent._latest is not before)
    await until(lambda: "a new sample" not in agent.readiness().missing)
    assert units(caplog) == ["sample"]


class BrokenPods:
    faults = ()

    def __init__(self):
        self.asked = 0

    async def follow(self):
        self.asked += 1
        if self.asked == 1:
            broken()
        yield (Pod(uid="u", namespace="ml", name="p"),)
        await asyncio.Event().wait()


async def test_a_source_of_pods_that_breaks_is_asked_again(agent, caplog):
    agent._pods = BrokenPods()
    following = asyncio.create_task(agent._follow_pods())
    await until(lambda: agent.sampler.pods)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert units(caplog) == ["source pods"]
    assert agent.counters.errors["INTERNAL"] == 1


class BrokenGrants:
    async def read(self):
        broken()


async def test_a_kubelet_that_breaks_its_reader_is_a_source_that_is_down(agent, caplog):
    agent._grants = BrokenGrants()
    await agent._read_grants()
    assert agent.sampler.source_health["podresources"].state().code == "INTERNAL"
    assert units(caplog) == ["source podresources"]


# ── whatever is written into a region ───────────────────────────────────────────────────────────────────────────────

REGIONS = ("real_v12_single", "real_v12_multi_gpu", "real_v0_single")


@pytest.mark.parametrize("name", REGIONS)
def test_any_region_that_is_read_can_be_shown(name):
    whole = gzip.decompress((TESTS / f"fixtures/regions/{name}.cache.gz").read_bytes())
    layout = identify(len(whole), whole)
    begin, length = layout.tail
    head = whole[layout.devices : layout.slots + 2 * layout.slot_size]
    uuid = decode(layout, whole, whole[begin : begin + length]).devices[0].uuid
    renderer = Renderer(catalog.METRICS, ["native", "hami", "hami-legacy"])

    def shown(data):
        start, end = whole[: layout.devices] + data[: len(head)], data[len(head) :]
        if len(end) < length:
            return
        rest = whole[len(start) : layout.head_length(layout.process_count(end))]
        region = ContainerRegion(pod_uid="uid-a", container="main", region=decode(layout, start + rest, end))
        snapshot = sample(
            make_gpu(uuid, used=9 * GIB, processes=(process(1, memory=GIB), process(2, memory=GIB))),
            regions=(region,),
            owners=(owner(1, "a"), owner(2, "b")),
            pods=(pod("a", shares=(share(gpu=uuid),)), pod("b")),
            grants=(grant("b", uuid),),
        )
        renderer.render(node_samples(snapshot, build=this_build(), self_use=USE)).text()

    survives(shown, head + whole[begin : begin + length], RegionRefused, cases=len(REGIONS), thin=5)


USE = SelfUse(cpu_seconds=0.0, resident_bytes=0, open_fds=0, start_time=0.0, loop_restarts={})
