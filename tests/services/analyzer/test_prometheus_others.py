"""What other servers than Prometheus answer, whole and with a store stopped, as it was recorded from real ones.

A recording has one answer of each kind. What else is asked is computed from the samples that the recording shows to be
left, and put into the envelope that the server put its own into.
"""

import contextlib
import json

import pytest

from tests.paths import TESTS
from tests.services.analyzer.promstub import Engine, Reply, SpoilingServer
from vgpuscope.formats.prom import promql
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Reading
from vgpuscope.model.errors import QueryForbidden, SourceDown
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

FIXTURES = TESTS / "fixtures" / "promapi"
VICTORIA = json.loads((FIXTURES / "victoriametrics-cluster-1.99.0.json").read_text())
THANOS = json.loads((FIXTURES / "thanos-0.42.4.json").read_text())
CORTEX = json.loads((FIXTURES / "cortex-1.19.0.json").read_text())
METRICS = ("GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL")
WORKING = {"busy-0", "busy-1", "busy-2", "busy-3", "video"}
RESTING = {"idle-0", "idle-1"}

servers = pytest.mark.parametrize("recording", [VICTORIA, THANOS], ids=["VictoriaMetrics cluster", "Thanos"])
both_ways = pytest.mark.parametrize("samples", [0, 400_000], ids=["by statistics", "by samples"])


class Recorded:
    """Answers as the server did in one of its states."""

    def __init__(self, recording: dict, state: str = "whole") -> None:
        self._recording, self.state = recording, state

    async def __call__(self, path: str, form: dict[str, str]) -> Reply:
        if path.endswith("/values"):
            return self._as_recorded("names")
        query = form["query"]
        kind = next((kind for kind, asked in self._recording["asked"].items() if asked == query), None)
        like = "samples" if query.endswith("]") else "GPU_UTIL"
        envelope = self._as_recorded(like)
        if kind or envelope.status != 200:
            return self._as_recorded(kind or like)
        computed = json.loads((await self._engine()(path, form)).body)
        body = json.loads(envelope.body) | {"data": computed["data"]}
        return envelope._replace(body=json.dumps(body, separators=(",", ":")).encode())

    def _as_recorded(self, kind: str) -> Reply:
        found = self._recording["states"][self.state][kind]
        headers = tuple(f"{name}: {value}" for name, value in found["headers"].items())
        return Reply(found["status"], found["body"].encode(), headers)

    def _engine(self) -> Engine:
        """The samples of the series that are left."""
        engine = Engine()
        left = {(name, pod) for name in METRICS for pod in maxima(self._recording, self.state, name)}
        for line in json.loads(self._recording["states"]["whole"]["samples"]["body"])["data"]["result"]:
            if (line["metric"]["__name__"].removeprefix("DCGM_FI_DEV_"), line["metric"]["pod"]) in left:
                engine.series.append((line["metric"], [(at, float(value)) for at, value in line["values"]]))
        return engine


def maxima(recording: dict, state: str, name: str) -> dict[str, float]:
    """The highest value of a metric by pod, as the server answered."""
    rows = promql.decode_vector(recording["states"][state][name]["body"].encode()).rows
    return {promql.decode_labels(row.metric)["pod"]: float(row.value[1]) for row in rows}


def source(server: SpoilingServer, **more) -> PrometheusSource:
    return PrometheusSource(url=f"{server.url}/select/0/prometheus", retries=0, **more)


async def read(prometheus: PrometheusSource, recording: dict) -> Reading:
    return await prometheus.read(end=recording["end"], seconds=recording["seconds"])


async def read_once(recording: dict, state: str, **more) -> Reading:
    async with SpoilingServer(Recorded(recording, state)) as server, source(server, **more) as prometheus:
        return await read(prometheus, recording)


def verdicts(reading: Reading) -> dict[str, set[str]]:
    """Pods by verdict."""
    uses = assemble(
        reading, previous={}, weights=ScoreWeights(), thresholds=Thresholds(), rules=VerdictRules(), owners={}
    )
    found: dict[str, set[str]] = {"in_use": set(), "idle": set(), "unknown": set()}
    for use in uses:
        found[use.verdict] |= {one.tenant.pod for one in use.tenants}
    return found


# ── the recordings ───────────────────────────────────────────────────────────────────────────────────────────────


@servers
async def test_what_is_computed_from_the_samples_is_what_the_server_computed(recording):
    for state, answers in recording["states"].items():
        for name in METRICS:
            if answers[name]["status"] == 200:
                form = {"query": recording["asked"][name], "time": str(recording["end"])}
                ours = await Recorded(recording, state)._engine()("/api/v1/query", form)
                rows = json.loads(ours.body)["data"]["result"]
                found = {row["metric"]["pod"]: float(row["value"][1]) for row in rows}
                assert found == maxima(recording, state, name)


@servers
def test_an_answer_that_lacks_a_store_is_known_by_what_the_server_says(recording):
    answers = recording["states"]["one store stopped"]
    assert promql.decode_names(answers["names"]["body"].encode()).missing
    assert all(promql.decode_vector(answers[name]["body"].encode()).missing for name in METRICS)
    whole = recording["states"]["whole"]
    assert not promql.decode_names(whole["names"]["body"].encode()).missing
    assert not any(promql.decode_vector(whole[name]["body"].encode()).missing for name in METRICS)
    assert not promql.decode_matrix(whole["samples"]["body"].encode()).missing


# ── what is made of them ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("recording", [VICTORIA, THANOS, CORTEX], ids=["VictoriaMetrics cluster", "Thanos", "Cortex"])
@both_ways
async def test_a_whole_answer_is_read_in_full(recording, samples):
    reading = await read_once(recording, "whole", samples=samples)
    assert reading.faults == ()
    assert verdicts(reading) == {"in_use": WORKING, "idle": RESTING, "unknown": set()}


@servers
@both_ways
async def test_with_a_store_stopped_the_reading_is_partial_and_nobody_at_work_is_idle(recording, samples):
    reading = await read_once(recording, "one store stopped", samples=samples)
    assert reading.partial
    assert "ANSWER_PARTIAL" in {fault.code for fault in reading.faults}
    assert not verdicts(reading)["idle"] & WORKING


@servers
@both_ways
async def test_a_store_that_stops_and_comes_back_makes_nobody_idle_on_the_way(recording, samples):
    answers = Recorded(recording)
    async with SpoilingServer(answers) as server, source(server, samples=samples) as prometheus:
        assert verdicts(await read(prometheus, recording))["idle"] == RESTING
        answers.state = "one store stopped"
        with contextlib.suppress(SourceDown):  # VictoriaMetrics: see below
            assert not verdicts(await read(prometheus, recording))["idle"] & WORKING
        reading = await read(prometheus, recording)
        assert reading.partial
        assert not verdicts(reading)["idle"] & WORKING
        answers.state = "whole"
        reading = await read(prometheus, recording)
    assert reading.faults == ()
    assert verdicts(reading) == {"in_use": WORKING, "idle": RESTING, "unknown": set()}


@servers
@both_ways
async def test_names_that_a_stopped_store_has_are_asked_for_when_it_is_back(recording, samples):
    answers = Recorded(recording, "one store stopped")
    assert "ENC_UTIL" not in recording["states"]["one store stopped"]["names"]["body"]
    async with SpoilingServer(answers) as server, source(server, samples=samples) as prometheus:
        await read(prometheus, recording)
        answers.state = "whole"
        reading = await read(prometheus, recording)
    assert verdicts(reading) == {"in_use": WORKING, "idle": RESTING, "unknown": set()}


@servers
@both_ways
async def test_a_store_that_is_back_within_a_reading_makes_nobody_idle(recording, samples):
    answers = Recorded(recording, "one store stopped")

    def back(query: str, reply: Reply) -> Reply:
        answers.state = "whole"  # after the names, which come first
        return reply

    async with SpoilingServer(answers) as server, source(server, samples=samples) as prometheus:
        server.spoil = back
        reading = await read(prometheus, recording)
    assert verdicts(reading) == {"in_use": WORKING, "idle": RESTING, "unknown": set()}


@servers
async def test_with_all_stores_stopped_there_is_an_error_and_no_empty_fleet(recording):
    with pytest.raises(SourceDown, match="connection refused"):
        await read_once(recording, "all stores stopped")


# ── VictoriaMetrics ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_victoriametrics_refuses_samples_with_a_store_stopped_and_is_asked_for_statistics_then():
    answers = Recorded(VICTORIA)
    async with SpoilingServer(answers) as server, source(server) as prometheus:
        await read(prometheus, VICTORIA)
        answers.state = "one store stopped"
        for _ in ("asked for samples first, then for statistics", "asked for statistics at once"):
            reading = await read(prometheus, VICTORIA)
            assert {fault.code for fault in reading.faults} == {"ANSWER_PARTIAL"}
            assert not verdicts(reading)["idle"]
        answers.state = "whole"
        asked = [await samples_asked(server, prometheus) for _ in range(12)]
    assert asked == [False] * 10 + [True] * 2  # once all has been well for a while


async def samples_asked(server: SpoilingServer, prometheus: PrometheusSource) -> bool:
    before = len(server.queries)
    assert (await read(prometheus, VICTORIA)).faults == ()
    return any(query.endswith("]") for query in server.queries[before:])


async def test_victoriametrics_may_be_told_to_deny_partial_answers():
    with pytest.raises(SourceDown, match="cannot dial"):
        await read_once(VICTORIA, "one store stopped, partial answers denied")


# ── Thanos ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_gpus_that_are_not_in_the_missing_store_are_judged():
    answers = Recorded(THANOS)
    async with SpoilingServer(answers) as server, source(server) as prometheus:
        await read(prometheus, THANOS)
        answers.state = "one store stopped"
        reading = await read(prometheus, THANOS)
    assert reading.partial
    assert verdicts(reading)["in_use"] == {"busy-1", "busy-3"}


async def test_thanos_names_the_store_that_is_missing():
    reading = await read_once(THANOS, "one store stopped")
    assert any('{prometheus="a"} Addr: 127.0.0.1:18502' in fault.message for fault in reading.faults)


@both_ways
async def test_gpus_of_a_store_that_thanos_forgot_are_gone_and_not_idle(samples):
    reading = await read_once(THANOS, "one store stopped and forgotten", samples=samples)
    assert reading.faults == ()
    assert verdicts(reading) == {"in_use": {"busy-1", "busy-3"}, "idle": {"idle-1"}, "unknown": set()}


@both_ways
async def test_gpus_that_come_back_bring_their_metrics_along(samples):
    answers = Recorded(THANOS, "one store stopped and forgotten")
    async with SpoilingServer(answers) as server, source(server, samples=samples) as prometheus:
        await read(prometheus, THANOS)
        answers.state = "whole"
        reading = await read(prometheus, THANOS)
    assert reading.faults == ()
    assert verdicts(reading) == {"in_use": WORKING, "idle": RESTING, "unknown": set()}


async def test_names_are_not_asked_for_again_while_the_fleet_stays_the_same():
    async with SpoilingServer(Recorded(THANOS)) as server, source(server) as prometheus:
        for _ in range(4):
            await read(prometheus, THANOS)
    assert sum(query.endswith("/values") for query in server.queries) == 1


# ── Cortex ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tenant_that_is_missing_is_told_in_the_servers_words_with_the_headers_name():
    async with SpoilingServer(Recorded(CORTEX, "no tenant")) as server, source(server) as prometheus:
        with pytest.raises(QueryForbidden, match="401 no org id") as asked:
            await prometheus.ready()
        with pytest.raises(SourceDown, match="QUERY_FORBIDDEN: refused: 401 no org id") as read_:
            await read(prometheus, CORTEX)
    assert "X-Scope-OrgID" in asked.value.advice
    assert "X-Scope-OrgID" in read_.value.advice
