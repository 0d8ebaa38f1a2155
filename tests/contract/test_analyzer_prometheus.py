"""A fleet of known samples in a real Prometheus and a real VictoriaMetrics: what is read of it is true, whatever fails.

The first part compares with the samples themselves, the second stands between source and Prometheus and spoils what
passes. The worst that may come of it is `unknown`: who is busy is never called idle.
"""

import asyncio
import json
import math
import random
import time
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.contract.promworld import prometheus, victoria_metrics, write
from tests.services.analyzer.promstub import STALE, Cut, Drop, Engine, Hang, Reply, SpoilingServer
from vgpuscope.catalog import agent as m
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Reading, Tenant, Track
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("promql")]

STEP, WINDOW = 30, 600
MIB = 1024 * 1024
END = int(time.time()) // STEP * STEP - 60
BUSY, IDLE = 24, 8
BLANK = 2147483632.0


def dcgm(name: str) -> str:
    return f"DCGM_FI_DEV_{name}"


class Fleet(Engine):
    """What is fed to the real ones, with an engine of the tests' own beside them."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(4)
        for number in range(BUSY + IDLE):
            self.gpu(number, low=85 if number < BUSY else 0, high=100 if number < BUSY else 2)
        self.gpu(100, pod="before", low=0, high=0, count=30, until=END - 300, ends=True)
        self.gpu(100, pod="after", low=95, high=95, count=10)
        self.gpu(101, pod="ended", low=0, high=0, count=50, until=END - 240, ends=True)
        self.gpu(102, pod="long-gone", low=0, high=0, until=END - 1800, ends=True)
        self.gpu(103, pod="mig-a", low=95, high=95, GPU_I_ID="1", GPU_I_PROFILE="3g.40gb")
        self.gpu(103, pod="mig-b", low=0, high=0, GPU_I_ID="2", GPU_I_PROFILE="3g.40gb")
        for pod in ("slice-a", "slice-b"):
            self.gpu(104, pod=pod, low=50, high=50)
        self.gpu(105, pod="blank", low=95, high=95, false=BLANK)
        self.gpu(106, pod="infinite", low=95, high=95, false=math.inf)
        exporter = {"job": "off", "pod": "gpu-exporter-1", "namespace": "monitoring", "container": "exporter"}
        self.gpu(107, low=60, high=60, **exporter, exported_pod="train", exported_namespace="ml")
        self.gpu(108, low=0, high=0, **exporter)
        self.gpu(109, pod="elsewhere", low=30, high=30, cluster="b")
        self._agent()

    def gpu(self, number, *, low, high, count=40, until=END, ends=False, false=None, **more) -> None:
        labels = {"UUID": f"GPU-{number:08d}-0000", "gpu": str(number % 8), "modelName": "NVIDIA A100-SXM4-80GB"}
        labels |= {"Hostname": f"node-{number // 8}", "job": "dcgm", "cluster": "a"}
        labels |= {"pod": f"train-{number}", "namespace": "ml", "container": "main"} | more
        util = [float(self._random.randint(low, high)) for _ in range(count)]
        if false is not None:
            util[-7] = false
        constant = {"MEM_COPY_UTIL": low / 2, "FB_USED": 800.0 * low + 4, "FB_FREE": 80_000 - 800.0 * low}
        constant |= {"POWER_USAGE": 60 + 3.0 * low, "SM_CLOCK": 1410.0, "POWER_MGMT_LIMIT": 400.0}
        for name, values in ({"GPU_UTIL": util} | {k: [v] * count for k, v in constant.items()}).items():
            self.add(dcgm(name), values, until=until, **labels)
            if ends:
                self.series[-1][1].append((until + STEP, STALE))

    def _agent(self) -> None:
        for number in range(2):
            gpu = {"node": "n1", "gpu_uuid": f"GPU-own-{number}", "job": "agents", "cluster": "a"}
            util = [self._random.random() for _ in range(80)]
            for metric, values in {
                m.GPU_UTILIZATION: util,
                m.GPU_UTILIZATION_MEAN: util,
                m.GPU_UTILIZATION_MAX: [min(1.0, v + 0.1) for v in util],
                m.GPU_MEMORY_USED: [4e9] * 80,
                m.GPU_MEMORY_TOTAL: [8e9] * 80,
            }.items():
                self.add(metric.name, values, until=END, step=15, **gpu)
            self.add(m.GPU_INFO.name, [1.0] * 80, until=END, step=15, **gpu, gpu_index=str(number), model="NVIDIA A10")
            tenant = {"namespace": "ml", "pod": f"own-{number}", "container": "c", "pod_uid": f"u{number}"}
            for metric, value in ((m.CONTAINER_PROCESSES, 1.0), (m.CONTAINER_SM, 0.25), (m.CONTAINER_SM_MAX, 0.5)):
                self.add(metric.name, [value] * 80, until=END, step=15, **gpu, **tenant)

    def samples(self, name: str, **labels: str) -> list[float]:
        """The true samples of the one such series in the window."""
        [found] = [samples for have, samples in self.series if {"__name__": name, **labels}.items() <= have.items()]
        return [v for at, v in found if END - WINDOW < at <= END and not math.isnan(v)]


@pytest.fixture(scope="module")
def fleet():
    return Fleet()


@pytest.fixture(scope="module")
def urls(fleet, tmp_path_factory):
    with (
        prometheus(tmp_path_factory.mktemp("prometheus")) as one,
        victoria_metrics(tmp_path_factory.mktemp("victoria")) as two,
    ):
        for url in (one, two):
            write(url, fleet.series)
        yield {"prometheus": one, "victoria-metrics": two}


@pytest.fixture(params=["prometheus", "victoria-metrics"])
def url(urls, request):
    return urls[request.param]


async def read(url: str, *, end=END, seconds=WINDOW, condition='{pod!=""}', **more) -> Reading:
    async with PrometheusSource(**{"url": url, "condition": condition, "retries": 0} | more) as source:
        return await source.read(end=end, seconds=seconds)


def track(reading: Reading, pod: str) -> Track:
    [found] = [track for track in reading.tracks if track.tenant and track.tenant.pod == pod]
    return found


def concluded(reading: Reading):
    return assemble(
        reading, previous={}, weights=ScoreWeights(), thresholds=Thresholds(), rules=VerdictRules(), owners={}
    )


def pods_of(uses, verdict: str) -> set[str]:
    return {one.tenant.pod for use in uses for one in use.tenants if one.verdict == verdict}


BUSY_PODS = {f"train-{number}" for number in range(BUSY)} | {
    "after",
    "mig-a",
    "slice-a",
    "slice-b",
    "train",
    "elsewhere",
}


# ── what is read is true ─────────────────────────────────────────────────────────────────────────────────────────


async def test_statistics_are_those_of_the_raw_samples(url, fleet):
    reading = await read(url)
    assert reading.faults == ()
    for number in range(BUSY + IDLE):
        raw = sorted(v / 100 for v in fleet.samples(dcgm("GPU_UTIL"), pod=f"train-{number}"))
        stat = track(reading, f"train-{number}").terms["gpu_util"]
        assert (stat.samples, stat.dropped, len(raw)) == (20, 0, 20)
        assert stat.mean == pytest.approx(sum(raw) / 20)
        assert stat.max == raw[-1]
        assert stat.p95 == pytest.approx(raw[18] + 0.05 * (raw[19] - raw[18]))


async def test_scores_are_those_of_a_computation_from_raw_samples(url, fleet):
    uses = {use.gpu_id: use for use in concluded(await read(url, interval=STEP, condition='{pod!="",job="dcgm"}'))}
    for number in range(BUSY + IDLE):
        util, copy, used, free, power = (
            sum(raw) / len(raw)
            for name in ("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "POWER_USAGE")
            if (raw := fleet.samples(dcgm(name), pod=f"train-{number}"))
        )
        score = 0.5 * util + 0.2 * copy + 20 * used / (used + free) + 10 * min(1.0, power / 400)
        found = uses[f"GPU-{number:08d}-0000"]
        assert found.score.value == pytest.approx(score, abs=0.06)
        assert (found.verdict == "in_use") == (number < BUSY)


@pytest.mark.parametrize("samples", [0, 400_000], ids=["by statistics", "by samples"])
async def test_both_engines_and_ours_say_the_same(urls, fleet, samples):
    async with SpoilingServer(fleet) as stub:
        ours = await read(stub.url)
    for url in urls.values():
        theirs = await read(url, samples=samples)
        assert {_rounded(one) for one in theirs.tracks} == {_rounded(one) for one in ours.tracks}


def _rounded(one: Track) -> str:
    terms = {
        name: [None if v is None else f"{v:.6g}" for v in (s.mean, s.max, s.p95, s.samples, s.dropped)]
        for name, s in sorted(one.terms.items())
    }
    return f"{one.gpu_id} {one.mig} {one.tenant} {one.hostname} {one.model} {one.first} {one.last} {terms}"


async def test_a_gpu_that_changed_hands_is_split_there(url):
    reading = await read(url)
    before, after = track(reading, "before"), track(reading, "after")
    assert (before.first, before.last, before.terms["gpu_util"].max) == (END - WINDOW + STEP, END - 300, 0.0)
    assert (after.first, after.last, after.terms["gpu_util"].mean) == (END - 270, END, 0.95)
    uses = concluded(reading)
    assert "after" not in pods_of(uses, "idle")
    assert all(one.tenant.pod != "before" for use in uses for one in use.tenants)


async def test_pods_that_ended_are_not_there(url):
    reading = await read(url)
    assert track(reading, "ended").last == END - 240
    assert not any(one.tenant and one.tenant.pod == "long-gone" for one in reading.tracks)
    assert not {"ended", "long-gone"} & {one.tenant.pod for use in concluded(reading) for one in use.tenants}


async def test_instances_are_apart_and_a_shared_gpu_is_one(url):
    uses = concluded(await read(url))
    instances = {use.mig: use.verdict for use in uses if use.gpu_id == "GPU-00000103-0000"}
    [shared] = [use for use in uses if use.gpu_id == "GPU-00000104-0000"]
    assert instances == {"GI-1": "in_use", "GI-2": "unknown"}  # utilisation of 0 proves nothing of an instance
    assert [one.tenant.pod for one in shared.tenants] == ["slice-a", "slice-b"]


@pytest.mark.parametrize("pod", ["blank", "infinite"])
async def test_false_samples_are_dropped_and_counted(url, pod):
    stat = track(await read(url), pod).terms["gpu_util"]
    assert stat.mean == pytest.approx(0.95)
    assert (stat.max, stat.samples, stat.dropped) == (0.95, 19, 1)


async def test_with_honor_labels_off_the_tenant_is_the_exported_one(url):
    reading = await read(url)
    assert track(reading, "train").tenant == Tenant(namespace="ml", pod="train")
    [free] = [one for one in reading.tracks if one.gpu_id == "GPU-00000108-0000"]
    assert free.tenant is None


async def test_our_own_schema_is_read_beside_the_other(url, fleet):
    reading = await read(url)
    assert set(reading.schemas) == {"dcgm", "vgpuscope"}
    [gpu] = [one for one in reading.tracks if one.gpu_id == "GPU-own-1" and not one.own]
    raw = fleet.samples(m.GPU_UTILIZATION.name, gpu_uuid="GPU-own-1")
    assert gpu.terms["gpu_util"].mean == pytest.approx(sum(raw) / 40)
    assert gpu.interval == 15.0
    assert (gpu.model, gpu.gpu_index, gpu.terms["mem_total"].mean) == ("NVIDIA A10", "1", 8e9)
    container = track(reading, "own-1")
    assert container.own
    assert (container.terms["process_sm"].max, container.tenant.pod_uid) == (0.5, "u1")


async def test_the_condition_holds_for_everything(url):
    reading = await read(url, condition='{pod!="",cluster="b"}')
    assert {one.tenant.pod for one in reading.tracks} == {"elsewhere"}


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
async def test_the_time_zone_does_not_move_the_window(url, zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        stat = track(await read(url), "train-0").terms["gpu_util"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert stat.samples == 20


async def test_an_hour_later_nothing_is_there_and_nothing_is_idle(url):
    reading = await read(url, end=END + 3600)
    assert reading.tracks == ()
    assert {fault.code for fault in reading.faults} <= {"METRICS_ABSENT"}  # some engines still know old names


# ── whatever fails ───────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def between(url: str):
    """A server that passes everything on to a real one, until told otherwise."""
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:

        async def passed_on(path: str, form: dict[str, str]) -> Reply:
            answer = await (client.get(path, params=form) if "values" in path else client.post(path, data=form))
            return Reply(answer.status_code, answer.content)

        async with SpoilingServer(passed_on) as server:
            yield server


def no_number(reply: Reply) -> Reply:
    body = json.loads(reply.body)
    for row in body["data"]["result"] if isinstance(body["data"], dict) else ():
        if "value" in row:
            row["value"][1] = "NaN"
    return Reply(body=json.dumps(body).encode())


SPOILT = {
    "503": lambda reply: Reply(503),
    "status error": lambda reply: Reply(body=b'{"status":"error","errorType":"timeout","error":"query timed out"}'),
    "dropped": lambda reply: Drop(),
    "cut": lambda reply: Cut(reply.body),
    "half": lambda reply: Reply(body=reply.body[: len(reply.body) // 2]),
    "html": lambda reply: Reply(body=b"<html>Sign in</html>"),
    "nan": no_number,
    "nothing found": lambda reply: Reply(body=b'{"status":"success","data":{"resultType":"vector","result":[]}}'),
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("share", [0.15, 0.6])
async def test_however_many_answers_are_spoilt_nobody_who_is_busy_becomes_idle(urls, kind, share):
    dice = random.Random(f"{kind}{share}")
    async with between(urls["prometheus"]) as server:
        server.spoil = lambda _, reply: SPOILT[kind](reply) if dice.random() < share else reply
        for _ in range(3):
            try:
                reading = await read(server.url, samples=dice.choice([0, 400_000]))
            except SourceDown:
                continue
            uses = concluded(reading)
            assert not BUSY_PODS & pods_of(uses, "idle")
            for use in uses:
                for one in use.tenants:
                    # slices and handovers aside, a busy GPU's score rests on what was measured and is no lower for it
                    if use.score.value is not None and one.tenant.pod in {f"train-{n}" for n in range(BUSY)}:
                        assert use.score.value > 40 or "gpu_util" not in use.terms or not use.terms["gpu_util"].mean


async def test_a_term_that_is_never_answered_weighs_on_the_others(urls):
    async with between(urls["prometheus"]) as server:
        server.spoil = lambda query, reply: Reply(503) if "FB_USED" in query else reply
        reading = await read(server.url)
    assert "mem_used" not in track(reading, "train-0").terms
    assert {fault.part.split()[0] for fault in reading.faults} == {"mem_used"}
    [use] = [use for use in concluded(reading) if use.gpu_id == "GPU-00000000-0000"]
    assert use.score.value > 65


async def test_a_slow_engine_costs_the_deadline_once(urls):
    async with between(urls["prometheus"]) as server:
        server.spoil = lambda query, reply: Hang() if "UTIL" in query else reply
        began = time.monotonic()
        reading = await read(server.url, deadline=8.0, concurrency=32)
        assert time.monotonic() - began < 2 * 8.0
    assert track(reading, "train-0").terms["power"].mean > 0
    assert {fault.code for fault in reading.faults} == {"QUERY_TIMEOUT"}
    assert pods_of(concluded(reading), "idle") == set()


async def test_what_was_down_for_a_moment_is_read_in_full(urls):
    whole = await read(urls["prometheus"])
    async with between(urls["prometheus"]) as server:
        once: set[str] = set()
        server.spoil = lambda query, reply: reply if query in once or once.add(query) else Reply(503)
        again = await read(server.url, retries=2)
    assert again.faults == ()
    assert {_rounded(one) for one in again.tracks} == {_rounded(one) for one in whole.tracks}


async def test_a_partial_answer_is_told(urls):
    async with between(urls["prometheus"]) as server:
        said = {"warnings": ["receive store 10.0.0.7: connection refused"]}
        server.spoil = lambda _, reply: Reply(body=json.dumps(json.loads(reply.body) | said).encode())
        reading = await read(server.url)
    assert {fault.code for fault in reading.faults} == {"ANSWER_PARTIAL"}
    assert reading.partial


async def test_a_query_that_is_no_promql_is_told_in_the_engines_words(url):
    with pytest.raises(SourceDown, match="no query was answered"):
        await read(url, condition='{cluster=~"(?<name>a)"}')  # which newer engines understand, and so do we


async def test_many_readings_at_once_are_alike(url):
    readings = await asyncio.gather(*(read(url) for _ in range(4)))
    assert len({frozenset(map(_rounded, reading.tracks)) for reading in readings}) == 1
