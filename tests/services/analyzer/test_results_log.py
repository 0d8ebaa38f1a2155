"""The analyzer's log: changes by default, gpu-oour's table by a setting, failures when they begin and when they end."""

import asyncio
import logging
import re

import pytest
from msgspec.structs import replace

from tests.http.serving import SOON
from tests.services.analyzer.analyzing import GIB, IDLE, StubSource, reading, running, stat, track, uuid
from tests.store import fleets
from vgpuscope.model.analysis import Fault, Score, Tenant
from vgpuscope.model.errors import QueryTimeout, SourceDown
from vgpuscope.services.analyzer.cycle import Board
from vgpuscope.services.analyzer.failure_log import FailureLog
from vgpuscope.services.analyzer.log import ResultsLog
from vgpuscope.services.analyzer.sources.watch import SourceWatch
from vgpuscope.views.fleet.results.results import rows, stats

BUSY = {"verdict": "in_use", "status": "normal", "use_class": "busy", "score": Score(value=50.0)}
IDLE_STATE = {"verdict": "idle", "status": "idle", "use_class": "idle-held", "score": Score(value=2.0)}
HOURLY = {"scheduler.interval": 3600}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines(caplog):
    """The lines since the last call, as (level, message, fields)."""
    caplog.set_level(logging.INFO - 4, "vgpuscope")

    def since() -> list[tuple[str, str, dict]]:
        found = [(r.levelname, r.message, getattr(r, "fields", {})) for r in caplog.records]
        caplog.clear()
        return found

    return since


def board(*gpus, number: int = 1) -> Board:
    analysis = fleets.analysis(fleets.NOON + 300 * number, *gpus, number=number)
    made = rows(analysis)
    return Board(analysis=analysis, rows=made, stats=stats(made, threshold=20, timestamp=None), threshold=20)


def fleet(count: int, **state) -> list:
    return [fleets.gpu(at, tenants=(fleets.tenant(f"p-{at}", **state),), **state) for at in range(count)]


def test_ten_equal_analyses_are_one_line_of_counts_and_one_of_each_node(lines, clock):
    log = ResultsLog(clock=clock)
    for number in range(10):
        log.tell(board(*fleet(26, **BUSY), number=number), results="changes")
    messages = [message for _, message, _ in lines()]
    assert messages == ["analysis completed", *["node"] * 4]


def test_the_counts_are_logged_once_an_hour_if_nothing_changes(lines, clock):
    log = ResultsLog(clock=clock)
    log.tell(board(*fleet(3, **BUSY)), results="changes")
    lines()
    for _ in range(24):
        clock.now += 300
        log.tell(board(*fleet(3, **BUSY)), results="changes")
    found = lines()
    assert [(message, values["analyses"]) for _, message, values in found] == [("analysis completed", 12)] * 2
    assert found[0][2] | {"seconds": 0} == {
        "analyses": 12,
        "changes": 0,
        "gpus": 3,
        "mig_instances": None,
        "in_use": 3,
        "idle": 0,
        "unknown": 0,
        "low_score": 0,
        "tenants": 3,
        "tenants_in_use": 3,
        "tenants_idle": 0,
        "tenants_unknown": 0,
        "seconds": 0,
    }


def test_a_gpu_that_turns_idle_is_one_line_with_its_score_and_then_the_counts(lines, clock):
    log = ResultsLog(clock=clock)
    log.tell(board(*fleet(3, **BUSY)), results="changes")
    lines()
    turned = fleet(1, **IDLE_STATE) + fleet(3, **BUSY)[1:]
    log.tell(board(*turned), results="changes")
    (level, message, change), (_, counts, sums), (_, node, _) = lines()
    assert (level, message, counts, node) == ("INFO", "verdict changed", "analysis completed", "node")
    assert (change["gpu"], change["pod"], change["was"], change["verdict"]) == (
        turned[0].gpu_id,
        "p-0",
        "in_use",
        "idle",
    )
    assert (change["score"], change["use_class"]) == (2.0, "idle-held")
    assert (sums["changes"], sums["in_use"], sums["idle"], sums["low_score"]) == (1, 2, 1, 1)


def test_many_changes_are_bounded(lines, clock):
    log = ResultsLog(clock=clock)
    log.tell(board(*fleet(500, **BUSY)), results="changes")
    lines()
    log.tell(board(*fleet(500, **IDLE_STATE)), results="changes")
    found = [(message, values) for _, message, values in lines() if not message.startswith("node")]
    assert [message for message, _ in found] == [*["verdict changed"] * 40, "more changes", "analysis completed"]
    assert found[40][1] == {"more": 460}


def test_only_what_needs_attention_is_a_warning(lines, clock):
    log = ResultsLog(clock=clock)
    gpus = [fleets.gpu(at, health="ok", **BUSY) for at in range(3)]
    log.tell(board(*gpus), results="changes")
    after = (
        replace(gpus[0], health="lost", verdict="unknown", use_class="unknown"),
        replace(gpus[1], use_class="stalled"),
        replace(gpus[2], verdict="idle", use_class="idle-held"),
    )
    lines()
    log.tell(board(*after), results="changes")
    warned = [(message, values["gpu"]) for level, message, values in lines() if level == "WARNING"]
    assert warned == [("GPU health changed", gpus[0].gpu_id), ("class changed", gpus[1].gpu_id)]


def test_off_logs_neither_changes_nor_the_table(lines, clock):
    log = ResultsLog(clock=clock)
    logging.getLogger("vgpuscope").setLevel(logging.INFO)
    log.tell(board(*fleet(3, **BUSY)), results="off")
    log.tell(board(*fleet(3, **IDLE_STATE)), results="off")
    assert lines() == []


def test_gpus_that_nobody_reports_are_not_active_in_the_table(lines, clock):
    silent = [fleets.gpu(7, unreported=True), fleets.gpu(8, last_seen=fleets.NOON - 900)]
    ResultsLog(clock=clock).tell(board(*fleet(2, **BUSY), *silent), results="table")
    assert "Found 2 active GPUs" in [message for _, message, _ in lines()]


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def failures(clock):
    return FailureLog(logging.getLogger("vgpuscope.test"), clock=clock)


def test_a_failure_that_lasts_is_logged_when_it_begins_once_an_hour_and_when_it_ends(failures, lines, clock):
    for _ in range(25):
        failures.failed(SourceDown("nobody answers"))
        clock.now += 300
    failures.succeeded(())
    failures.succeeded(())
    assert [(level, message, values["failed"]) for level, message, values in lines()] == [
        ("ERROR", "analysis failed", 1),
        ("ERROR", "analysis failed", 13),
        ("ERROR", "analysis failed", 25),
        ("INFO", "analyses succeed again", 25),
    ]


def test_another_reason_of_a_failure_is_logged(failures, lines):
    for error in (SourceDown("a"), SourceDown("b"), QueryTimeout("c"), SourceDown("a")):
        failures.failed(error)
    assert [values["error_code"] for _, _, values in lines()] == ["SOURCE_DOWN", "QUERY_TIMEOUT", "SOURCE_DOWN"]


def test_an_unexpected_error_has_its_traceback_once(failures, caplog):
    for _ in range(3):
        failures.failed(SourceDown("x"), KeyError("k"))
    assert [bool(record.exc_info) for record in caplog.records] == [True]


def test_a_fault_that_lasts_is_logged_once_and_its_end_too(failures, lines, clock):
    one, two = (Fault(part=part, code="SOURCE_DOWN", message="no answer") for part in ("node-1", "node-2"))
    for faults in ((one,), (replace(one, message="again"),), (one, two), (two,), (), ()):
        failures.succeeded(faults)
        clock.now += 5
    found = [(level, message, values["part"]) for level, message, values in lines()]
    ended = "part of the analysis is complete again"
    assert found == [
        ("WARNING", "partial analysis", "node-1"),
        ("WARNING", "partial analysis", "node-2"),
        ("INFO", ended, "node-1"),
        ("INFO", ended, "node-2"),
    ]


def test_many_faults_and_their_ends_are_bounded(failures, lines):
    many = tuple(Fault(part=f"node-{at}", code="SOURCE_DOWN", message="no answer") for at in range(300))
    failures.succeeded(many)
    failures.succeeded(())
    found = lines()
    assert len(found) == 2 * 11
    assert (found[10][2], found[21][2]) == ({"more": 290}, {"more": 290})


# ── the service ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_service_logs_changes_and_no_table_by_default(lines):
    source = StubSource(reading(track(0), track(1)))
    async with running(source, **HOURLY) as analyzer:
        await analyzer.analysed()
        first = [message for _, message, _ in lines()]
        await analyzer.analyse()
        second = [message for _, message, _ in lines()]
        source.answer = reading(track(0), track(1, util=IDLE))
        await analyzer.analyse()
        third = lines()
    assert first.count("analysis completed") == 1
    assert not {"Starting GPU utilization analysis", "analysis completed", "node"} & {*second}
    assert not [message for message in (*first, *second) if message.startswith(("=", "Found", "ml/", "⚠️"))]
    (change,) = [values for _, message, values in third if message == "verdict changed"]
    assert (change["gpu"], change["was"], change["verdict"]) == (uuid(1), "in_use", "idle")


async def test_every_surface_has_the_same_counts(lines):
    """GPUs, idle ones and shared ones, whose tenants are idle or low: API, CSV, metrics and log."""
    tracks = [track(0), *(track(at, util=IDLE) for at in (1, 2))]
    for number, util in ((3, 0.7), (4, 0.0)):  # on each a worker, and a notebook that does nothing
        tracks.append(track(number, util=util, tenant=None))
        for pod, share in (("worker", util), ("notebook", 0.0)):
            own = {"process_sm": stat(share), "mem_used": stat(4.0 * GIB), "mem_total": stat(80.0 * GIB)}
            tenant = Tenant(namespace=pod, pod=f"{pod}-{number}", container="main", pod_uid=f"{pod}-{number}")
            tracks.append(track(number, tenant=tenant, own=True, terms=own))
    source = StubSource(reading(*tracks))
    async with running(source, **HOURLY, **{"analyzer.log_results": "table"}) as analyzer:
        await analyzer.analysed()
        low, sums = await analyzer.json("/results/low"), await analyzer.json("/results/stats")
        summary, page = await analyzer.json("/api/v1/summary"), await analyzer.metrics()
        csv = (await analyzer.get("/results/low?format=csv")).text
        kinds = {kind: await analyzer.json(f"/results/low?kind={kind}") for kind in ("gpu", "tenant")}
    assert low["count"] == len(low["gpus"]) == low["gpu_rows"] + low["tenant_rows"] == len(csv.splitlines()) - 1
    assert kinds["gpu"]["count"] == len(kinds["gpu"]["gpus"]) == low["gpu_rows"] == sums["gpus_low"] == 3
    assert kinds["tenant"]["count"] == len(kinds["tenant"]["gpus"]) == sums["tenants_low"] == 5
    assert low["tenant_rows"] == 3  # the two that have their GPU alone are in its row
    assert sums["low_utilization_count"] == sums["by_status"]["idle"] + sums["by_status"]["low"] == 3
    assert low["low_utilization_count"] == sums["low_utilization_count"] == summary["stats"]["low_utilization_count"]
    assert f"\ngpu_low_utilization_count {low['low_utilization_count']}\n" in page
    warned = [
        message for level, message, _ in lines() if (level == "WARNING" and "- GPU-" in message) or "Found" in message
    ]
    heads = [re.findall(r"Found (\d+) (GPU|tenant)\(s\)", message)[0] for message in warned if "(s)" in message]
    assert heads == [("3", "GPU"), ("3", "tenant")]
    assert sum("- GPU-" in message for message in warned) == low["count"]


async def test_a_source_that_was_not_tried_yet_is_no_warning_and_one_that_stays_silent_is_one(lines):
    """The first check is made when the process starts, before its own scrapes have ended."""
    answers: list[bool] = [False, True, True, False, False, True]
    checked = asyncio.Event()

    async def ready() -> None:
        if len(answers) == 0:
            checked.set()
            await asyncio.Event().wait()
        if not answers.pop(0):
            raise SourceDown("no target has been scraped yet")

    back: list[int] = []
    source = SourceWatch(ready, analyses=lambda: 0, back=lambda: back.append(len(answers)), every=0.0)
    watch = asyncio.create_task(source.forever())
    async with asyncio.timeout(SOON):
        await checked.wait()
    watch.cancel()
    said = [(level, message) for level, message, _ in lines()]
    assert said == [
        ("Level 16", "source answers"),
        ("WARNING", "source does not answer"),
        ("Level 16", "source answers"),
    ]
    assert back == [4, 0], "answers that were left when the source was back"
