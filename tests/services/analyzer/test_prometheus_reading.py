"""What an engine says of a fleet is read as it is; what it does not say stays unknown, whatever comes in between."""

import asyncio
import gzip
import json
import math
import time

import pytest
from msgspec.structs import replace

from tests.loopclock import forward
from tests.services.analyzer.promstub import END, STEP, WINDOW, Cut, Drop, Engine, Hang, Reply, SpoilingServer
from tests.sources.proxy import refusing_proxy
from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.exporters import CONTAINERS, DCGM, GPUS, INSTANCES
from vgpuscope.logic.fleet.queries import record_name
from vgpuscope.model.analysis import Stat, Tenant
from vgpuscope.model.errors import ConfigInvalid, QueryForbidden, SourceDown
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

FULL = WINDOW // STEP
MIB = 1024 * 1024
UTIL, COPY, USED, FREE, POWER, CLOCK = (
    f"DCGM_FI_DEV_{name}" for name in ("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "POWER_USAGE", "SM_CLOCK")
)
SIX = {UTIL: 95.0, COPY: 40.0, USED: 30_000.0, FREE: 50_000.0, POWER: 380.0, CLOCK: 1400.0}
BLANK = 2147483632.0
SOON = 60.0
FOREVER = 1e6


def about(value):
    """What a computed number may be, within rounding; for the field of a struct."""
    return pytest.approx(value)


def labels(number: int = 0, **more: str) -> dict[str, str]:
    tenant = {"pod": f"train-{number}", "namespace": "ml", "container": "main"}
    gpu = {"UUID": f"GPU-{number:08d}", "gpu": str(number), "modelName": "NVIDIA A100", "Hostname": "node-1"}
    return {**gpu, **tenant, "job": "dcgm", **more}


def add(engine, number=0, *, count=FULL, until=END, more=None, **values):
    """A GPU with the six metrics, each constant or given as a list."""
    for name, usual in SIX.items():
        given = values.get(name.removeprefix("DCGM_FI_DEV_").lower(), usual)
        engine.add(
            name, given if isinstance(given, list) else [given] * count, until=until, **labels(number, **(more or {}))
        )


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
async def server(engine):
    async with SpoilingServer(engine) as server:
        yield server


@pytest.fixture(params=[0, 400_000], ids=["by statistics", "by samples"])
def either(server, request):
    """Both ways to ask, which must tell the same."""
    server.samples = request.param
    return server


def source(server, **more) -> PrometheusSource:
    samples = getattr(server, "samples", 0)
    return PrometheusSource(**{"url": server.url, "deadline": SOON, "retries": 0, "samples": samples} | more)


async def read(server, *, end=END, seconds=WINDOW, **more):
    async with source(server, **more) as prometheus:
        return await prometheus.read(end=end, seconds=seconds)


async def read_while_one_hangs(server, **more):
    """A reading that has everything but one answer when its deadline comes, which is then."""
    left = [2]
    told = lambda done, total: left.append(total - done)  # noqa: E731
    reading = asyncio.create_task(read(server, deadline=FOREVER, progress=told, **more))
    async with asyncio.timeout(SOON):
        while left[-1] > 1:  # noqa: ASYNC110 - the source tells it by a call
            await asyncio.sleep(0)
    forward(FOREVER)
    async with asyncio.timeout(SOON):
        return await reading


def bare(stat: Stat) -> Stat:
    """Without what is known of holes, which statistics do not show."""
    return replace(stat, holes=None)


def by_name(track):
    return repr(replace(track, terms={term: bare(stat) for term, stat in sorted(track.terms.items())}))


def by_pod(reading):
    return {track.tenant.pod if track.tenant else None: track for track in reading.tracks}


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_term_is_read_in_base_units(engine, either):
    add(engine, gpu_util=[float(v) for v in range(0, 100, 5)])
    reading = await read(either)
    [track] = reading.tracks
    assert {term: bare(stat) for term, stat in track.terms.items()} == {
        "gpu_util": Stat(mean=0.475, max=0.95, p95=about(0.9025), samples=20),
        "mem_copy": Stat(mean=0.4, max=0.4, samples=20),
        "mem_used": Stat(mean=30_000 * MIB, samples=20),
        "mem_total": Stat(mean=80_000 * MIB, max=80_000 * MIB, samples=20),
        "power": Stat(mean=380.0, samples=20),
        "sm_clock": Stat(mean=about(1.4e9), samples=20),
    }
    assert (track.gpu_id, track.gpu_index, track.hostname, track.model) == (
        "GPU-00000000",
        "0",
        "node-1",
        "NVIDIA A100",
    )
    assert track.tenant == Tenant(namespace="ml", pod="train-0", container="main")
    assert (track.first, track.last, reading.window.interval) == (END - WINDOW + STEP, END, STEP)
    assert reading.faults == ()
    assert reading.schemas == ("dcgm",)


@pytest.mark.parametrize("name", ["DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"])
async def test_a_burst_on_the_memory_of_an_instance_is_read_beside_the_zeros_for_whole_gpus(engine, either, name):
    at = labels(GPU_I_ID="7", GPU_I_PROFILE="1g.5gb")
    engine.add(COPY, [0.0] * FULL, **at)
    engine.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", [0.0] * FULL, **at)
    engine.add(name, [0.0] * (FULL - 1) + [0.4], **at)
    [track] = (await read(either)).tracks
    assert (track.mig, track.terms["mem_copy"].max) == ("GI-7", 0.0)
    assert bare(track.terms["dram_active"]) == Stat(mean=about(0.02), max=0.4, samples=FULL)


async def test_the_number_of_requests_does_not_depend_on_the_number_of_gpus(engine, either):
    add(engine)
    alone = await read(either)
    for number in range(1, 300):
        add(engine, number)
    assert (await read(either)).requests == alone.requests <= 15


async def test_only_metrics_that_exist_are_asked_for_and_their_names_are_remembered(engine, server):
    add(engine)
    async with source(server) as prometheus:
        await prometheus.read(end=END, seconds=WINDOW)
        first = len(server.queries)
        await prometheus.read(end=END, seconds=WINDOW)
    assert not any("PROF" in query or "vgpuscope" in query for query in server.queries[1:])
    assert len(server.queries) == 2 * first - 2  # neither names nor sizes are asked for again


async def test_metrics_that_come_later_are_found(engine, server):
    async with source(server) as prometheus:
        assert (await prometheus.read(end=END, seconds=WINDOW)).tracks == ()
        add(engine)
        assert len((await prometheus.read(end=END, seconds=WINDOW)).tracks) == 1


async def test_profiling_video_and_limits_are_read_where_they_exist(engine, either):
    add(engine)
    for name, value in (("PROF_SM_ACTIVE", 0.2), ("PROF_GR_ENGINE_ACTIVE", 0.6), ("DEV_ENC_UTIL", 30.0)):
        engine.add(f"DCGM_FI_{name}", [value] * FULL, **labels())
    engine.add("DCGM_FI_DEV_FB_RESERVED", [500.0] * FULL, **labels())
    engine.add("DCGM_FI_DEV_POWER_MGMT_LIMIT", [400.0] * FULL, **labels())
    [track] = (await read(either)).tracks
    assert bare(track.terms["sm_active"]) == Stat(mean=0.2, max=0.2, p95=0.2, samples=20)
    assert track.terms["engine_active"].max == 0.6
    assert bare(track.terms["encoder"]) == Stat(mean=0.3, max=0.3, samples=20)
    assert bare(track.terms["power_limit"]) == Stat(mean=400.0, max=400.0, samples=20)
    assert track.terms["mem_total"].mean == 80_500 * MIB


async def test_our_own_agent_gives_gpus_instances_and_what_is_the_containers_own(engine, either):
    gpu = {"node": "n1", "gpu_uuid": "GPU-a", "job": "agents"}
    for metric, value in (
        (m.GPU_UTILIZATION, 0.5),
        (m.GPU_UTILIZATION_MEAN, 0.4),
        (m.GPU_UTILIZATION_MAX, 0.9),
        (m.GPU_MEMORY_USED, 4e9),
        (m.GPU_MEMORY_TOTAL, 8e9),
        (m.GPU_POWER_LIMIT, 300.0),
    ):
        engine.add(metric.name, [value] * FULL, **gpu)
    engine.add(m.GPU_INFO.name, [1] * FULL, **gpu, gpu_index="3", model="NVIDIA A10")
    instance = gpu | {"mig_uuid": "MIG-1"}
    engine.add(m.MIG_MEMORY_USED.name, [1e9] * FULL, **instance)
    engine.add(m.MIG_INFO.name, [1] * FULL, **instance, profile="1g.5gb")
    tenant = gpu | {"namespace": "ml", "pod": "p", "container": "c", "pod_uid": "u", "mig_uuid": ""}
    for metric, value in ((m.CONTAINER_PROCESSES, 2), (m.CONTAINER_SM, 0.2), (m.CONTAINER_SM_MAX, 0.7)):
        engine.add(metric.name, [value] * FULL, **tenant)
    reading = await read(either)
    device, part, container = reading.tracks
    assert reading.schemas == ("vgpuscope",)
    assert bare(device.terms["gpu_util"]) == Stat(mean=0.4, max=0.9, p95=0.4, samples=20)
    assert (device.gpu_index, device.model, device.hostname, device.tenant) == ("3", "NVIDIA A10", "n1", None)
    assert (part.mig, part.profile, part.terms["mem_used"].mean) == ("MIG-1", "1g.5gb", 1e9)
    assert container.tenant == Tenant(namespace="ml", pod="p", container="c", pod_uid="u")
    assert container.own
    assert bare(container.terms["process_sm"]) == Stat(mean=0.2, max=0.7, p95=0.2, samples=20)


async def test_the_highest_cpu_use_of_a_tenant_is_read_beside_its_mean(engine, either):
    who = {"node": "n1", "gpu_uuid": "GPU-a", "namespace": "ml", "pod": "p", "container": "c", "pod_uid": "u"}
    engine.add(m.CONTAINER_PROCESSES.name, [1.0] * FULL, **who)
    engine.add(m.CONTAINER_CPU.name, [0.0] * (FULL - 2) + [2.0] * 2, **who)
    [track] = (await read(either)).tracks
    assert bare(track.terms["cpu"]) == Stat(mean=about(0.2), max=2.0, samples=FULL)


async def test_both_schemas_are_delivered_side_by_side(engine, either):
    add(engine)
    engine.add(m.GPU_UTILIZATION.name, [0.5] * FULL, node="node-1", gpu_uuid="GPU-00000000")
    reading = await read(either)
    assert set(reading.schemas) == {"dcgm", "vgpuscope"}


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York", "UTC"])
async def test_the_time_zone_changes_nothing(engine, either, zone, monkeypatch):
    add(engine)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        [track] = (await read(either)).tracks
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (track.terms["gpu_util"].samples, track.last) == (20, END)


# ── whose GPU it is ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_handover_splits_the_gpu_at_its_moment(engine, either):
    add(engine, gpu_util=0.0, count=30, until=END - 300, more={"pod": "before"})
    add(engine, gpu_util=95.0, count=10, more={"pod": "after"})
    tracks = by_pod(await read(either))
    assert tracks["before"].terms["gpu_util"].max == 0.0
    assert bare(tracks["after"].terms["gpu_util"]) == Stat(mean=0.95, max=0.95, p95=0.95, samples=10)
    assert (tracks["before"].first, tracks["before"].last) == (END - WINDOW + STEP, END - 300)
    assert (tracks["after"].first, tracks["after"].last) == (END - 270, END)


async def test_a_pod_that_ended_is_seen_to_have_ended(engine, either):
    add(engine, 0)
    add(engine, 1, until=END - 400)
    add(engine, 2, until=END - 1800)
    tracks = by_pod(await read(either))
    assert tracks["train-0"].last == END
    assert tracks["train-1"].last == END - 400
    assert "train-2" not in tracks


async def test_an_end_is_known_even_if_raw_samples_are_not_to_be_had(engine, server):
    add(engine, 0)
    add(engine, 1, count=30, until=END - 330)
    server.spoil = lambda query, reply: Reply(500) if query.startswith("{") else reply
    reading = await read(server)
    assert by_pod(reading)["train-1"].last <= END - 300
    assert [fault.part for fault in reading.faults] == ["raw samples"]


async def test_mig_instances_are_apart(engine, either):
    add(engine, gpu_util=95.0, more={"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb", "pod": "a"})
    add(engine, gpu_util=0.0, more={"GPU_I_ID": "2", "GPU_I_PROFILE": "3g.40gb", "pod": "b"})
    found = {(t.mig, t.profile): t.terms["gpu_util"].mean for t in (await read(either)).tracks}
    assert found == {("GI-1", "3g.40gb"): 0.95, ("GI-2", "3g.40gb"): 0.0}


async def test_a_gpu_that_pods_share_needs_no_closer_look(engine, either):
    for pod in "abcd":
        add(engine, more={"pod": pod})
    reading = await read(either)
    assert set(by_pod(reading)) == set("abcd")
    looks = [query for query in either.queries if query.startswith("{")]
    assert len(looks) == (0 if either.samples else 1)  # statistics do not show how often there are samples


async def test_with_honor_labels_off_the_exporter_is_nobodys_tenant(engine, either):
    own = {"pod": "dcgm-exporter-x7k2p", "namespace": "monitoring", "container": "exporter", "job": "gpu"}
    theirs = {"exported_pod": "train", "exported_namespace": "ml", "exported_container": "main"}
    add(engine, 0, more=own | theirs)
    add(engine, 1, more=own)
    add(engine, 2, more=own | {"pod": "metrics-9"})
    tracks = {track.gpu_id[-1]: track for track in (await read(either)).tracks}
    assert tracks["0"].tenant == Tenant(namespace="ml", pod="train", container="main")
    assert tracks["1"].tenant is None
    assert tracks["2"].tenant is None


async def test_with_honor_labels_off_a_pod_of_the_same_name_is_another_by_its_uid(engine, either):
    own = {"pod": "agent-x7k2p", "namespace": "monitoring", "job": "agents", "node": "n1", "gpu_uuid": "GPU-a"}
    for uid, until in (("old", END - 150), ("new", END)):
        theirs = {"exported_pod": "train-0", "exported_namespace": "ml", "exported_container": "main", "pod_uid": uid}
        engine.add(m.CONTAINER_PROCESSES.name, [1.0] * 5, until=until, **own, **theirs)
    assert {track.tenant.pod_uid for track in (await read(either)).tracks} == {"old", "new"}


async def test_an_exporter_on_free_gpus_only_is_recognised_by_its_name(engine, either):
    add(engine, 0, more={"pod": "nvidia-dcgm-exporter-abcde", "container": "x"})
    add(engine, 1, more={"pod": "gpu-metrics-1", "container": "x", "job": "monitoring/gpu-metrics"})
    assert [track.tenant for track in (await read(either)).tracks] == [None, None]


@pytest.mark.parametrize("label", ["Hostname", "hostname", "kubernetes_node", "node"])
async def test_the_node_is_found_under_all_its_labels(engine, either, label):
    engine.add(UTIL, [1.0] * FULL, UUID="GPU-a", pod="p", **{label: "n7"})
    assert (await read(either)).tracks[0].hostname == "n7"


async def test_a_hostname_that_is_the_exporters_pod_gives_way(engine, either):
    engine.add(UTIL, [1.0] * FULL, UUID="GPU-a", pod="dcgm-exporter-1", Hostname="dcgm-exporter-1", node="n7")
    assert (await read(either)).tracks[0].hostname == "n7"


async def test_the_condition_is_in_every_query_for_dcgm_and_raw_samples_too(engine, server):
    add(engine, gpu_util=[math.nan] + [5.0] * 19, more={"cluster": "a"})
    add(engine, 1, more={"cluster": "b"})
    reading = await read(server, condition='{pod!="",cluster="a"}')
    asked = [query for query in server.queries[1:] if not query.startswith(("count by", "up{"))]
    assert any(query.startswith("{") for query in asked)
    assert all('pod!="",cluster="a"}' in query for query in asked)
    assert [query for query in server.queries if query.startswith("up{")] == ['up{job=~"dcgm",cluster="a"}']
    assert set(by_pod(reading)) == {"train-0"}


async def test_the_condition_on_pods_does_not_hide_our_gpus(engine, either):
    engine.add(m.GPU_UTILIZATION.name, [0.5] * FULL, node="n", gpu_uuid="GPU-a", cluster="a")
    engine.add(m.GPU_UTILIZATION.name, [0.5] * FULL, node="n", gpu_uuid="GPU-b", cluster="b")
    reading = await read(either, condition='{pod!="",namespace=~"ml",cluster="a"}')
    assert [track.gpu_id for track in reading.tracks] == ["GPU-a"]


async def test_a_restarted_exporter_makes_no_second_gpu_and_no_gap(engine, either):
    add(engine, gpu_util=90.0, count=30, until=END - 300, more={"instance": "10.0.0.1:9400"})
    add(engine, gpu_util=10.0, count=10, more={"instance": "10.0.0.2:9400"})
    [track] = (await read(either)).tracks
    assert bare(track.terms["gpu_util"]) == Stat(mean=about(0.5), max=0.9, p95=0.9, samples=20)
    assert (track.first, track.last) == (END - WINDOW + STEP, END)


async def test_two_replicas_that_saw_the_same_count_once(engine, either):
    for replica, count in (("a", 10), ("b", 20)):
        add(engine, count=count, more={"prometheus_replica": replica})
    [track] = (await read(either)).tracks
    assert track.terms["gpu_util"].samples == 20


async def test_an_engine_that_keeps_names_says_the_same(engine, either):
    add(engine)
    add(engine, 1, gpu_util=[BLANK] + [50.0] * 19)
    plain = await read(either)
    engine.keeps_names = True
    engine.series = [(dict(reversed(labels.items())), samples) for labels, samples in engine.series]
    assert (await read(either)).tracks == plain.tracks


# ── how much of it was seen ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_fleet_that_is_scraped_more_often_is_expected_to_be(engine, either):
    for number in range(3):
        engine.add(UTIL, [1.0] * 40, step=15, **labels(number))
    engine.add(UTIL, [1.0] * 20, step=15, **labels(3))
    reading = await read(either)
    assert (reading.window.interval, reading.window.expected) == (15.0, 40)
    assert by_pod(reading)["train-3"].terms["gpu_util"].samples == 20


async def test_a_fleet_that_is_scraped_less_often_than_configured_is_seen_to_be(engine, server):
    server.samples = 400_000  # statistics do not show when samples were
    for number in range(3):
        for name in SIX:
            engine.add(name, [1.0] * 10, step=60, **labels(number))
    assert (await read(server)).window.interval == 60.0


async def test_a_gap_that_all_series_have_is_not_taken_for_their_pace(engine, server):
    server.samples = 400_000
    for number in range(3):
        times = [END - 30 * i for i in range(6)] + [END - 450 - 30 * i for i in range(4)]
        for name in SIX:
            engine.series.append(({"__name__": name, **labels(number)}, [(at, 0.0) for at in sorted(times)]))
    reading = await read(server)
    assert (reading.window.interval, reading.window.expected) == (30.0, 20)


async def test_samples_that_all_series_lack_are_missed_nevertheless(engine, either):
    for number in range(3):
        add(engine, number, count=10)
    assert (await read(either)).window.expected == 20


async def test_jobs_have_their_own_pace(engine, either):
    engine.add(UTIL, [1.0] * 20, **labels(0, job="slow"))
    engine.add(UTIL, [1.0] * 60, step=10, **labels(1, job="fast"))
    tracks = by_pod(await read(either))
    assert (tracks["train-0"].interval, tracks["train-1"].interval) == (30.0, 10.0)


async def test_gaps_are_not_taken_for_a_late_begin(engine, either):
    engine.add(UTIL, [0.0] * 20, **labels(0))
    engine.series.append(({"__name__": UTIL, **labels(1)}, [(END - WINDOW + STEP, 0.0), (END, 0.0)]))
    track = by_pod(await read(either))["train-1"]
    assert (track.first, track.last, track.terms["gpu_util"].samples) == (END - WINDOW + STEP, END, 2)


def holes(track, term="gpu_util") -> list[tuple[float, float]] | None:
    found = track.terms[term].holes
    return None if found is None else [(hole.begin - END + WINDOW, hole.end - END + WINDOW) for hole in found]


def scraped(engine, number: int = 0, *, every: int, without: range = range(0), **more: str) -> None:
    """An idle GPU as a job that scrapes it sees it; seconds are those of the window."""
    for name in SIX:
        samples = [(END - WINDOW + at, 0.0) for at in range(every, WINDOW + 1, every) if at not in without]
        engine.series.append(({"__name__": name, **labels(number, **more)}, samples))


async def test_a_restart_of_prometheus_is_a_hole_in_every_gpu(engine, either):
    for number in range(30):
        scraped(engine, number, every=15, without=range(151, 451))
    reading = await read(either)
    assert {track.interval for track in reading.tracks} == {15.0}
    assert [holes(track) for track in reading.tracks] == [[(150, 465)]] * 30


async def test_with_only_the_last_five_minutes_the_beginning_is_a_hole(engine, either):
    scraped(engine, every=15, without=range(301))
    [track] = (await read(either)).tracks
    assert holes(track) == [(0, 315)]


@pytest.mark.parametrize("every", [15, 30, 60, 120])
async def test_the_pace_is_learned_whatever_is_configured(engine, either, every):
    for number in range(3):
        scraped(engine, number, every=every)
    reading = await read(either, interval=30.0)
    assert [track.interval for track in reading.tracks] == [every] * 3
    assert all(holes(track) in ([], None) for track in reading.tracks)
    assert reading.tracks[0].terms["gpu_util"].samples == WINDOW // every


async def test_a_hole_of_one_replica_that_the_other_filled_is_none(engine, either):
    scraped(engine, every=15, without=range(151, 451), replica="a")
    scraped(engine, every=15, replica="b")
    [track] = (await read(either)).tracks
    assert holes(track) == []


async def test_the_first_reading_and_the_third_say_the_same(engine, either):
    for number in range(3):
        scraped(engine, number, every=15, without=range(200, 400) if number else range(0))
    async with source(either) as prometheus:
        readings = [await prometheus.read(end=END, seconds=WINDOW) for _ in range(3)]
    assert readings[0].tracks == readings[2].tracks


async def test_where_no_samples_are_to_be_had_nothing_is_known_to_be_seen(engine, server):
    scraped(engine, every=15)
    server.spoil = lambda query, reply: Reply(422) if query.endswith("]") else reply
    [track] = (await read(server)).tracks
    assert track.interval is None
    assert holes(track) == [(0, WINDOW)]


# ── in how many requests ─────────────────────────────────────────────────────────────────────────────────────────


def add_everything(engine, *, agents: int) -> None:
    """GPUs, instances and containers of our agents with every metric that is read, and dcgm-exporter's too."""
    for number in range(agents):
        where = {"node": f"n{number}", "gpu_uuid": f"GPU-{number:08d}", "job": "agents", "instance": f"n{number}:9394"}
        names = {"namespace": "ml", "pod": f"train-{number}", "container": "main", "pod_uid": str(number)}
        for group, more in (
            (GPUS, {}),
            (INSTANCES, {"mig_uuid": f"MIG-{number}"}),
            (CONTAINERS, names | {"mig_uuid": ""}),
        ):
            for name in group.measures | group.facts:
                label = {group.state_label: "ok"} if name == group.state else {}
                engine.add(name, [0.5] * FULL, **where, **more, **label)
        for name in DCGM.measures:
            engine.add(name, [0.5] * FULL, **labels(number, instance=f"n{number}:9400"))


async def test_an_analysis_takes_at_most_twelve_requests_whatever_the_schemas(engine, server):
    add_everything(engine, agents=3)
    async with source(server, samples=400_000) as prometheus:
        first, *_, third = [await prometheus.read(end=END, seconds=WINDOW) for _ in range(3)]
    assert first.faults == third.faults == ()
    assert max(first.requests, third.requests) <= 12
    assert {track.schema for track in third.tracks} == {"dcgm", "vgpuscope"}


async def test_what_is_asked_together_and_one_by_one_says_the_same(engine, server):
    add_everything(engine, agents=2)
    together = await read(server, samples=400_000)
    apart = await read(server, samples=0)
    assert len(together.tracks) == len(apart.tracks) == 8
    assert set(map(by_name, together.tracks)) == set(map(by_name, apart.tracks))


async def test_an_engine_that_refuses_several_questions_in_one_is_asked_one_by_one(engine, server):
    add_everything(engine, agents=2)
    plain = await read(server, samples=400_000)
    server.spoil = lambda query, reply: Reply(422) if " or " in query and "label_replace" in query else reply
    refused = await read(server, samples=400_000)
    assert refused.faults == ()
    assert set(map(by_name, refused.tracks)) == set(map(by_name, plain.tracks))
    assert refused.requests > plain.requests


# ── other names, and what labels tell ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("values", "found"), [([0.0, 0.7], 0.7), ([0.0, 70.0], 0.7), ([0.0, 0.0], 0.0)])
async def test_base_unit_names_are_understood_by_their_values(engine, either, values, found):
    series = values * (FULL // 2)
    for name in ("DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_PROF_SM_UTIL_RATIO"):
        engine.add(name, series, **labels(instance="a:9400"))
    engine.add("DCGM_FI_DEV_FB_USED_BYTES", [4e9] * FULL, **labels(instance="a:9400"))
    engine.add("DCGM_FI_DEV_BOARD_POWER_WATTS", [60.0] * FULL, **labels(instance="a:9400"))
    [track] = (await read(either)).tracks
    assert track.terms["gpu_util"].max == track.terms["sm_active"].max == pytest.approx(found)
    assert (track.terms["mem_used"].mean, track.terms["power"].mean) == (4e9, 60.0)


async def test_one_exporter_in_percent_says_nothing_of_another(engine, either):
    engine.add("DCGM_FI_DEV_GPU_UTIL_RATIO", [0.9] * FULL, **labels(0, instance="a:9400"))
    engine.add("DCGM_FI_DEV_GPU_UTIL_RATIO", [90.0] * FULL, **labels(1, instance="b:9400"))
    tracks = (await read(either)).tracks
    assert [track.terms["gpu_util"].max for track in tracks] == pytest.approx([0.9, 0.9])


async def test_an_engine_without_a_known_metric_is_said_to_have_none(engine, either):
    engine.add("node_load1", [1.0] * FULL, instance="a")
    reading = await read(either)
    assert reading.tracks == ()
    assert [fault.code for fault in reading.faults] == ["METRICS_ABSENT"]


async def test_health_xids_targets_and_states_of_containers_are_read(engine, either):
    gpu = {"node": "n1", "gpu_uuid": "GPU-a", "job": "agents", "instance": "n1:9394"}
    engine.add(m.GPU_UTILIZATION.name, [0.0] * FULL, **gpu)
    for health in ("ok", "lost"):
        engine.add(m.GPU_HEALTH.name, [float(health == "lost")] * FULL, **gpu, health=health)
    engine.add(m.GPU_XIDS.name, [0.0] * 10 + [1.0] * 10, **gpu, xid="79")
    engine.add(m.GPU_XIDS.name, [3.0] * 60, **gpu, xid="31")  # of long ago
    tenant = gpu | {"namespace": "ml", "pod": "p", "container": "c", "pod_uid": "u", "mig_uuid": ""}
    engine.add(m.CONTAINER_PROCESSES.name, [0.0] * FULL, **tenant)
    for state in ("not-started", "active"):
        engine.add(m.CONTAINER_STATE.name, [float(state == "not-started")] * FULL, **tenant, state=state)
    engine.add("up", [1.0] * FULL, job="agents", instance="n1:9394")
    engine.add("up", [0.0] * FULL, job="agents", instance="n2:9394")
    engine.add("up", [0.0] * FULL, job="other", instance="n3:9100")
    reading = await read(either)
    device, container = reading.tracks
    assert (device.health, device.xids, device.target) == ("lost", (79,), "n1:9394")
    assert (container.state, container.health) == ("not-started", "")
    assert {target.name: target.up for target in reading.targets} == {"n1:9394": True, "n2:9394": False}


async def test_an_agent_whose_page_is_frozen_has_seen_nothing(engine, either):
    for number in range(2):
        gpu = {"node": f"n{number}", "gpu_uuid": f"GPU-{number}", "job": "agents", "instance": f"n{number}:9394"}
        engine.add(m.GPU_UTILIZATION.name, [0.0] * FULL, **gpu)
        clock = [END - 800.0 if number else END - STEP * (FULL - 1 - at) for at in range(FULL)]
        engine.add(m.SAMPLE_TIME.name, clock, job="agents", instance=f"n{number}:9394")
    reading = await read(either)
    assert [holes(track) for track in reading.tracks] in ([[], [(0, WINDOW)]], [None, [(0, WINDOW)]])
    assert [(fault.part, fault.code) for fault in reading.faults] == [("n1:9394", "SOURCE_DOWN")]


async def test_counters_are_read_as_rates(engine, either):
    gpu = {"node": "n1", "gpu_uuid": "GPU-a", "job": "agents"}
    engine.add(m.GPU_UTILIZATION.name, [0.0] * FULL, **gpu)
    engine.add(m.GPU_ENERGY.name, [1e6 + 266 * STEP * at for at in range(FULL)], **gpu)
    engine.add(m.GPU_PCIE_RECEIVED.name, [5e8 * STEP * at for at in range(FULL)], **gpu)
    [track] = (await read(either)).tracks
    assert (track.terms["energy"].mean, track.terms["pcie_in"].mean) == (266.0, 5e8)


# ── recording rules ──────────────────────────────────────────────────────────────────────────────────────────────


def record(engine, *, until=END) -> None:
    """Rules whose results can be told from what they record: every mean is half of the truth."""
    for name, value in SIX.items():
        engine.add(record_name(name, "mean"), [value / 2] * 3, until=until, **labels())
    engine.add(record_name(UTIL, "p95"), [SIX[UTIL] / 2] * 3, until=until, **labels())


async def test_means_are_read_from_recording_rules_and_what_decides_about_idleness_never(engine, server):
    add(engine)
    record(engine)
    terms = by_pod(await read(server))["train-0"].terms
    assert bare(terms["gpu_util"]) == Stat(mean=0.475, max=0.95, p95=0.475, samples=FULL)
    assert terms["power"].mean == 190.0
    assert not any("max" in query and "vgpuscope:" in query and "timestamp" not in query for query in server.queries)


async def test_rules_that_are_no_longer_evaluated_are_not_believed(engine, server):
    add(engine)
    record(engine, until=END - 120)
    reading = await read(server)
    assert by_pod(reading)["train-0"].terms["gpu_util"].mean == 0.95
    assert reading.faults == ()


async def test_rules_that_do_not_know_every_gpu_are_not_made_use_of(engine, server):
    add(engine)
    add(engine, 1)
    record(engine)
    assert by_pod(await read(server))["train-0"].terms["gpu_util"].mean == 0.95


async def test_rules_of_another_cluster_say_nothing_of_ours(engine, server):
    add(engine, more={"cluster": "a"})
    for name in SIX:
        engine.add(record_name(name, "mean"), [0.0] * 3, **labels(0, cluster="b"))
    found = by_pod(await read(server, condition='{pod!="",cluster="a"}'))
    assert found["train-0"].terms["gpu_util"].mean == 0.95


async def test_rules_of_another_window_are_not_made_use_of(engine, server):
    add(engine)
    record(engine)
    assert by_pod(await read(server, seconds=300))["train-0"].terms["gpu_util"].mean == 0.95


# ── values that cannot be true ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("false", [math.nan, math.inf, -math.inf, BLANK, 2.0**63 - 16, 2.0**47, 101.0, 65535.0])
async def test_a_false_sample_is_dropped_and_counted(engine, either, false):
    add(engine, 0, gpu_util=[10.0] * 5 + [false] + [50.0] * 14)
    add(engine, 1)
    tracks = by_pod(await read(either))
    good = [0.1] * 5 + [0.5] * 14
    stat = tracks["train-0"].terms["gpu_util"]
    assert bare(stat) == Stat(mean=about(sum(good) / 19), max=0.5, p95=0.5, samples=19, dropped=1)
    assert tracks["train-1"].terms["gpu_util"].dropped == 0


@pytest.mark.parametrize("name", ["fb_used", "power_usage", "sm_clock", "mem_copy_util"])
@pytest.mark.parametrize("false", [math.nan, BLANK, 2.0**47])
async def test_a_false_sample_of_any_term_is_dropped(engine, either, name, false):
    usual = SIX[f"DCGM_FI_DEV_{name.upper()}"]
    add(engine)
    before = (await read(either)).tracks[0].terms
    engine.series.clear()
    add(engine, **{name: [false] + [usual] * 19})
    after = (await read(either)).tracks[0].terms
    assert {term: stat.mean for term, stat in after.items()} == pytest.approx({t: s.mean for t, s in before.items()})


@pytest.mark.parametrize("false", [math.nan, BLANK])
async def test_a_gpu_that_never_says_anything_true_is_not_measured_and_not_looked_at(engine, either, false):
    add(engine, gpu_util=false)
    [track] = (await read(either)).tracks
    assert bare(track.terms["gpu_util"]) == Stat(dropped=20)
    looks = [query for query in either.queries if query.startswith("{")]
    assert len(looks) == (0 if either.samples else 1)  # for the pace


async def test_more_false_series_than_can_be_looked_at_are_left_out_by_name(engine, server):
    for number in range(6):
        add(engine, number, gpu_util=[BLANK] + [95.0] * 19)
    reading = await read(server, closer=4)
    found = [track.terms["gpu_util"] for track in reading.tracks]
    assert sorted(stat.dropped for stat in found) == [1, 1, 1, 1, 20, 20]
    assert [(f.code, f.part.split()[0]) for f in reading.faults] == [("SAMPLES_REFUSED", "gpu_util")]


async def test_raw_samples_of_many_gpus_are_asked_for_in_queries_that_every_engine_takes(engine, server):
    for number in range(600):
        engine.add(UTIL, [BLANK] + [95.0] * 19, **labels(number))
    reading = await read(server, closer=500)
    raw = [query for query in server.queries if query.startswith("{")]
    assert len(raw) == 3  # one of them for the pace
    assert max(map(len, raw)) < 16_000
    assert sum(track.terms["gpu_util"].dropped == 1 for track in reading.tracks) == 500


async def test_few_samples_are_asked_for_themselves_and_many_as_statistics(engine, server):
    add(engine)
    server.samples = 400_000
    few = await read(server)
    assert any(query == f'{UTIL}{{pod!=""}}[599999ms]' for query in server.queries)
    for number in range(1, 50):
        add(engine, number)
    many = await read(server, samples=40 * FULL)
    assert few.requests <= 12
    assert many.requests <= 12
    asked = [query for query in server.queries if query.startswith(f"{UTIL}{{")]
    assert len(asked) == 1  # the second time, statistics were
    assert set(map(by_name, many.tracks)) > set(map(by_name, few.tracks))


@pytest.mark.parametrize(("step", "requests"), [(STEP, (7, 7)), (STEP / 6, (7, 5))])
async def test_samples_of_many_gpus_are_asked_for_once_it_is_known_that_each_has_few(engine, server, step, requests):
    for number in range(40):
        for name, value in SIX.items():
            engine.add(name, [value] * int(WINDOW / step), step=step, **labels(number))
    async with source(server, samples=10 * FULL) as prometheus:
        readings = [await prometheus.read(end=END, seconds=WINDOW) for _ in range(2)]
    assert tuple(reading.requests for reading in readings) == requests
    assert [[track.terms["gpu_util"].max for track in reading.tracks] for reading in readings] == [[0.95] * 40] * 2


async def test_samples_below_zero_are_seen_where_samples_are_asked_for(engine, server):
    add(engine, gpu_util=[-5.0] + [50.0] * 19)
    [track] = (await read(server, samples=400_000)).tracks
    assert bare(track.terms["gpu_util"]) == Stat(mean=0.5, max=0.5, p95=0.5, samples=19, dropped=1)


async def test_where_samples_are_refused_there_are_statistics(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Reply(422) if query.startswith(UTIL) else reply
    told = []
    reading = await read(server, samples=400_000, progress=lambda done, total: told.append((done, total)))
    assert reading.faults == ()
    assert all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1]
    assert bare(reading.tracks[0].terms["gpu_util"]) == Stat(mean=0.95, max=0.95, p95=0.95, samples=20)


async def test_the_mark_that_a_series_ended_is_no_sample(engine, server):
    add(engine, gpu_util=[50.0] * 19 + [math.nan])  # VictoriaMetrics gives it among the samples
    [track] = (await read(server, samples=400_000)).tracks
    assert bare(track.terms["gpu_util"]) == Stat(mean=0.5, max=0.5, p95=0.5, samples=19)


@pytest.mark.parametrize("spoilt", [Drop(), Reply(200, b"<html>")])
async def test_samples_that_do_not_come_leave_their_term_unknown(engine, server, spoilt):
    add(engine)
    server.spoil = lambda query, reply: spoilt if query.startswith(UTIL) else reply
    reading = await read(server, samples=400_000)
    assert [fault.part.split()[0] for fault in reading.faults] == ["gpu_util"]
    assert "gpu_util" not in reading.tracks[0].terms


async def test_samples_and_statistics_that_are_refused_are_one_fault_each(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Reply(422) if UTIL in query else reply
    reading = await read(server, samples=400_000)
    assert {fault.part for fault in reading.faults} == {
        f"gpu_util {statistic} ({UTIL})" for statistic in ("mean", "max", "p95", "samples", "last")
    }
    assert "gpu_util" not in reading.tracks[0].terms


# ── what goes wrong on the way ───────────────────────────────────────────────────────────────────────────────────

FAULTS = {
    "503": (lambda reply: Reply(503, b"busy"), "QUERY_FAILED"),
    "400": (lambda reply: Reply(400, b'{"status":"error","errorType":"bad_data","error":"parse"}'), "QUERY_FAILED"),
    "error": (lambda reply: Reply(200, b'{"status":"error","errorType":"timeout","error":"slow"}'), "QUERY_FAILED"),
    "dropped": (lambda reply: Drop(), "QUERY_FAILED"),
    "cut": (lambda reply: Cut(reply.body), "QUERY_FAILED"),
    "html": (lambda reply: Reply(200, b"<!doctype html><title>Log in</title>"), "ANSWER_UNREADABLE"),
    "login": (lambda reply: Reply(302, b"", ("location: https://sso/",)), "ANSWER_UNREADABLE"),
    "empty": (lambda reply: Reply(200, b""), "ANSWER_UNREADABLE"),
    "half": (lambda reply: Reply(200, reply.body[: len(reply.body) // 2]), "ANSWER_UNREADABLE"),
    "scalar": (lambda reply: Reply(200, _result("scalar", [1, "0"])), "ANSWER_UNREADABLE"),
    "matrix": (lambda reply: Reply(200, _result("matrix", [])), "ANSWER_UNREADABLE"),
    "nonsense": (lambda reply: Reply(200, reply.body.replace(b'"0.95', b'"zero')), "ANSWER_UNREADABLE"),
    "gzip": (lambda reply: Reply(200, reply.body, ("content-encoding: gzip",)), "ANSWER_UNREADABLE"),
    "huge": (lambda reply: Reply(200, reply.body + b" " * 2_000_000), "ANSWER_UNREADABLE"),
    "401": (lambda reply: Reply(401, b"who?"), "QUERY_FORBIDDEN"),
    "hang": (lambda reply: Hang(), "QUERY_TIMEOUT"),
}


def _result(kind: str, result: list) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_query_that_fails_leaves_its_part_unknown_and_nothing_else(engine, server, kind):
    spoil, code = FAULTS[kind]
    add(engine, gpu_util=0.95)
    server.spoil = lambda query, reply: spoil(reply) if query.startswith(f"max_over_time({UTIL}") else reply
    if kind == "nonsense":
        server.spoil = lambda query, reply: spoil(reply) if query.startswith(f"avg_over_time({UTIL}") else reply
    answered = read_while_one_hangs if kind == "hang" else read
    reading = await answered(server, largest_answer=1_000_000)
    [fault] = reading.faults
    [track] = reading.tracks
    assert (fault.code, fault.part.split()[0]) == (code, "gpu_util")
    stat = track.terms["gpu_util"]
    assert stat.samples == 20
    assert (stat.mean if kind == "nonsense" else stat.max) is None
    assert (stat.max if kind == "nonsense" else stat.mean) == pytest.approx(0.0095)
    assert track.terms["power"].mean == 380.0


async def test_an_answer_that_goes_bad_late_is_not_taken_in_part(engine, server):
    for number in range(1200):
        engine.add(UTIL, [95.0 if number < 1199 else 7.0] * FULL, **labels(number))
    server.spoil = lambda query, reply: (
        Reply(body=reply.body.replace(b'"7.0"', b'"seven"')) if query.startswith("avg") else reply
    )
    reading = await read(server)
    assert [fault.code for fault in reading.faults] == ["ANSWER_UNREADABLE"]
    assert {track.terms["gpu_util"].mean for track in reading.tracks} == {None}


@pytest.mark.parametrize("name", [COPY, USED, FREE, POWER, CLOCK])
async def test_a_term_that_was_not_answered_is_absent_and_never_zero(engine, server, name):
    add(engine)
    server.spoil = lambda query, reply: Reply(503) if name in query else reply
    [track] = (await read(server)).tracks
    gone = {COPY: {"mem_copy"}, USED: {"mem_used", "mem_total"}, FREE: {"mem_total"}, POWER: {"power"}}
    expected = {"gpu_util", "mem_copy", "mem_used", "mem_total", "power", "sm_clock"} - gone.get(name, {"sm_clock"})
    assert set(track.terms) == expected


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "nonsense"])
async def test_nothing_answered_is_an_error_and_no_empty_fleet(engine, server, kind):
    add(engine)
    server.spoil = lambda query, reply: FAULTS[kind][0](reply)
    with pytest.raises(SourceDown, match="no query was answered"):
        await read(server, deadline=1.0, largest_answer=1_000_000)


async def test_a_server_that_is_not_there_is_down(server):
    gone = "http://127.0.0.1:1"
    async with source(server, url=gone) as prometheus:
        with pytest.raises(SourceDown):
            await prometheus.read(end=END, seconds=WINDOW)
        with pytest.raises(SourceDown):
            await prometheus.ready()


async def test_what_fails_for_a_moment_is_asked_again(engine, server):
    add(engine)
    failed: set[str] = set()

    def once(query, reply):
        first = query not in failed
        failed.add(query)
        return [Reply(503), Drop(), Reply(429, b"", ("retry-after: 0",))][len(failed) % 3] if first else reply

    server.spoil = once
    reading = await read(server, retries=2)
    assert reading.faults == ()
    assert len(reading.tracks[0].terms) == 6


async def test_a_refusal_is_not_repeated(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Reply(400) if "SM_CLOCK" in query else reply
    await read(server, retries=5)
    assert sum(f"({CLOCK}" in query for query in server.queries) == 1


async def test_an_engine_that_hangs_costs_the_deadline_and_no_more(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Hang() if query.startswith("quantile") else reply
    reading = await read_while_one_hangs(server, concurrency=2)
    assert [fault.code for fault in reading.faults] == ["QUERY_TIMEOUT"]
    assert reading.tracks[0].terms["gpu_util"].mean == pytest.approx(0.95)


async def test_names_that_are_not_told_are_all_asked_for(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Reply(404) if query.endswith("/values") else reply
    reading = await read(server)
    assert len(reading.tracks[0].terms) == 6
    assert [fault.part for fault in reading.faults] == ["names of metrics"]


@pytest.mark.parametrize("said", [{"warnings": ["store-3: connection refused"]}, {"isPartial": True}])
async def test_a_partial_answer_is_told_and_taken(engine, server, said):
    add(engine)
    server.spoil = lambda query, reply: Reply(body=json.dumps(json.loads(reply.body) | said).encode())
    reading = await read(server)
    assert {fault.code for fault in reading.faults} == {"ANSWER_PARTIAL"}
    assert reading.tracks[0].terms["gpu_util"].samples == 20


async def test_a_whole_count_does_not_vouch_for_a_partial_maximum(engine, server):
    add(engine)
    partial = {"warnings": ["store down"]}

    def spoil(query, reply):
        return Reply(body=json.dumps(json.loads(reply.body) | partial).encode()) if "max_over" in query else reply

    server.spoil = spoil
    assert (await read(server)).tracks[0].terms["gpu_util"].samples == 0


async def test_what_the_language_remarks_on_is_no_missing_data(engine, server):
    add(engine)
    remark = {"warnings": ["PromQL warning: something"], "infos": ["PromQL info: no counter"]}
    server.spoil = lambda query, reply: Reply(body=json.dumps(json.loads(reply.body) | remark).encode())
    assert (await read(server)).faults == ()


@pytest.mark.parametrize("part", ["timestamp", "count_over_time"])
async def test_without_times_or_counts_nobody_is_taken_for_gone_and_nothing_for_covered(engine, server, part):
    add(engine, 0)
    add(engine, 1)
    server.spoil = lambda query, reply: Reply(500) if query.startswith(part) else reply
    reading = await read(server)
    for track in reading.tracks:
        known = part == "count_over_time"
        assert track.first is None
        assert track.last == (END if known else None)
        assert track.terms["gpu_util"].samples == (0 if known else 20)


# ── the way there ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_credentials_and_tenants_are_sent_and_never_shown(engine, server, tmp_path):
    add(engine)
    address = server.url.removeprefix("http://")
    basic = await read(server, url=f"http://{address}", basic=("me", "secret"), headers={"X-Scope-OrgID": "team"})
    assert server.requests[-1][2]["authorization"].startswith("Basic ")
    assert server.requests[-1][2]["x-scope-orgid"] == "team"
    by_url = await read(server, url=f"http://me:secret@{address}/")
    assert server.requests[-1][2]["authorization"].startswith("Basic ")
    token = tmp_path / "token"
    token.write_text("first\n")
    async with source(server, url=f"http://u:secret@{address}/", token_file=str(token)) as prometheus:
        await prometheus.ready()
        token.write_text("second\n")
        reading = await prometheus.read(end=END, seconds=WINDOW)
    assert server.requests[-1][2]["authorization"] == "Bearer second"
    assert "secret" not in repr((basic, by_url, reading))


async def test_a_token_file_that_is_gone_is_a_lack_of_rights(server):
    async with source(server, token_file="/nowhere/token") as prometheus:
        with pytest.raises(QueryForbidden):
            await prometheus.ready()


async def test_a_gateway_that_only_lets_get_through_is_asked_by_get(engine, server):
    add(engine)
    server.spoil = lambda query, reply: Reply(405) if server.requests[-1][0] == "POST" else reply
    reading = await read(server, concurrency=1)
    assert reading.faults == ()
    assert sum(method == "POST" for method, _, _ in server.requests) == 1


async def test_connections_are_kept(engine, server):
    add(engine)
    async with source(server, concurrency=2) as prometheus:
        for _ in range(3):
            await prometheus.read(end=END, seconds=WINDOW)
    assert server.connections <= 2 < len(server.requests)


async def test_a_connection_that_died_meanwhile_costs_no_try(server):
    async with source(server, retries=0) as prometheus:
        await prometheus.ready()
        dead = [Drop()]
        server.spoil = lambda _, reply: dead.pop() if dead else reply
        await prometheus.ready()
    assert (server.connections, len(server.requests)) == (2, 3)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: Reply(503, b"busy", ("connection: close",)),
        lambda _: Reply(503, bytes(2**17)),
        lambda reply: Reply(200, reply.body + bytes(2_000_000)),
        lambda reply: Cut(reply.body),
    ],
    ids=["the last", "too long an error", "too large", "cut off"],
)
async def test_no_request_follows_an_answer_that_was_given_up_or_is_the_last(server, spoil):
    async with source(server, retries=0, largest_answer=1_000_000) as prometheus:
        server.spoil = lambda _, reply: spoil(reply)
        with pytest.raises(SourceDown):
            await prometheus.ready()
        server.spoil = lambda _, reply: reply
        await prometheus.ready()
    assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.attack
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "gzip, gzip", "deflate"])
async def test_an_answer_that_is_compressed_unasked_is_refused(engine, server, encoding):
    add(engine)
    header = f"content-encoding: {encoding}"
    server.spoil = lambda query, reply: (
        Reply(200, gzip.compress(reply.body), (header,)) if query.startswith(f"max_over_time({UTIL}") else reply
    )
    reading = await read(server)
    [fault] = reading.faults
    assert (fault.code, "which was not requested" in fault.message) == ("ANSWER_UNREADABLE", True)
    assert reading.tracks[0].terms["power"].mean == 380.0
    assert server.requests[-1][2]["accept-encoding"] == "identity"


async def test_a_long_question_arrives_whole(server):
    api = source(server)._api
    query = f'x{{pod="{"p" * 2**21}"}}'
    async with asyncio.timeout(SOON):
        await api.query(query, at=END, by=math.inf)
    await api.aclose()
    assert server.queries == [query]


async def test_where_there_is_a_proxy_it_is_asked(monkeypatch):
    async with refusing_proxy(403) as (url, asked):
        monkeypatch.setenv("HTTP_PROXY", url)
        async with PrometheusSource(url="http://prometheus.invalid:9090", retries=0) as prometheus:
            with pytest.raises(QueryForbidden):
                await prometheus.ready()
        assert (await asked).startswith("POST http://prometheus.invalid:9090/api/v1/query ")


async def test_who_asks_without_tls_loads_no_authorities(server, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    async with source(server) as prometheus:
        await prometheus.ready()
    with pytest.raises(ConfigInvalid):
        source(server, url="https://x")


async def test_a_path_before_the_api_is_kept(engine, server):
    add(engine)
    await read(server, url=f"{server.url}/select/0/prometheus/")
    assert {path for _, path, _ in server.requests[1:]} == {"/select/0/prometheus/api/v1/query"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "prometheus:9090"},
        {"url": "ftp://x"},
        {"url": "http://"},
        {"url": "http://x:99999"},
        {"condition": 'pod!=""'},
        {"condition": "{pod}"},
        {"condition": '{__name__="x"}'},
        {"ca_file": "/nowhere/ca.pem"},
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(wrong):
    with pytest.raises(ConfigInvalid):
        PrometheusSource(**{"url": "http://x"} | wrong)


async def test_progress_is_told_query_by_query(engine, server):
    add(engine)
    told: list[tuple[int, int]] = []
    await read(server, progress=lambda done, total: told.append((done, total)))
    assert told == [(n, len(told)) for n in range(1, len(told) + 1)]


async def test_others_in_the_event_loop_do_not_wait_for_a_large_answer(engine, server):
    for number in range(2000):
        engine.add(UTIL, [1.0], **labels(number))
    async with source(server) as prometheus:
        reading = asyncio.create_task(prometheus.read(end=END, seconds=WINDOW))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
    assert turns > 20
    assert len(reading.result().tracks) == 2000
