"""An engine, or whoever can answer in its place, takes neither the analyzer's memory nor its event loop."""

import gzip
import json
import logging

import pytest

from tests.fuzz import survives
from tests.looplag import longest_turn
from tests.paths import TESTS
from tests.services.analyzer.promstub import END, WINDOW, Engine, Reply, SpoilingServer
from tests.services.analyzer.test_prometheus_reading import UTIL, add, read, source
from vgpuscope.formats.prom import promql
from vgpuscope.logic.fleet.series_table import Table
from vgpuscope.model.errors import AnswerUnreadable, QueryFailed, ScopeError, SourceDown

pytestmark = pytest.mark.attack

MIB = 1 << 20
LONGEST = 0.25  # seconds of CPU time between two turns of the event loop; at most 0.1 on a quiet machine
RECORDED = sorted((TESTS / "fixtures/promapi").glob("*.json"))


@pytest.fixture
def engine():
    made = Engine()
    add(made)
    return made


@pytest.fixture
async def server(engine):
    async with SpoilingServer(engine) as server:
        yield server


def vector(*rows, more=""):
    return (
        b'{"status":"success","data":{"resultType":"vector","result":[' + b",".join(rows) + b"]}" + more.encode() + b"}"
    )


def result(size, kind, row):
    """An answer of about so many bytes."""
    head = b'{"status":"success","data":{"resultType":"%s","result":[' % kind.encode()
    return head + b",".join([row] * (size // (len(row) + 1))) + b"]}}"


SAMPLES = b",".join([b'[1800000000,"0.5"]'] * 400_000)
LABELS = json.dumps({"UUID": "GPU-1", "pod": "p" * 200, "namespace": "ml"}, separators=(",", ":")).encode()
HUGE = {
    "series of usual size": (lambda: result(100 * MIB, "vector", b'{"metric":%s,"value":[1,"1"]}' % LABELS), "OK"),
    "series of nothing": (lambda: result(60 * MIB, "vector", b'{"metric":{},"value":[0,"0"]}'), "1,000,000 series"),
    "series with blanks": (lambda: result(60 * MIB, "vector", b'{ "metric":{},"value":[0,"0"]}'), "more than 32 MiB"),
    "numbers without an end": (lambda: b'{"x":[' + b"1," * 30 * MIB, "more than 32 MiB"),
    "brackets without an end": (lambda: b'{"x":' + b"[" * 20 * MIB, "not Prometheus"),
    "a word without an end": (lambda: b'{"status":"' + b"x y " * 7 * MIB + b'"}', "the server says"),
    "warnings without an end": (
        lambda: vector(more=f',"warnings":[{",".join(["1"] * 10 * MIB)}]'),
        "1,1,1,1",
    ),
    "not JSON": (lambda: b" " * 60 * MIB, "more than 32 MiB"),
    "larger than allowed": (lambda: b" " * 300 * MIB, "larger than 256 MiB"),
    "a gzip bomb": (lambda: gzip.compress(bytes(300 * MIB), 1), "which was not requested"),
}


@pytest.mark.parametrize("kind", HUGE)
async def test_a_huge_answer_costs_its_own_part_and_no_turn_of_the_loop_is_long(server, kind):
    make, reason = HUGE[kind]
    headers = ("content-encoding: gzip",) if "gzip" in kind else ()
    body, parts = make(), [f"avg_over_time({UTIL}"]
    server.spoil = lambda query, reply: Reply(200, body, headers) if query.startswith(parts[0]) else reply
    reading, longest = await longest_turn(lambda: read(server, deadline=1e6), below=LONGEST)
    if reason != "OK":
        [fault] = reading.faults
        assert (fault.part.split()[0], reason in fault.message) == ("gpu_util", True), fault.message
    assert reading.tracks[0].terms["power"].mean == 380.0
    assert longest < LONGEST


async def test_samples_without_an_end_cost_their_own_part_and_no_turn_of_the_loop_is_long(server):
    body = b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":%s,"values":[%s]}]}}'
    large = body % (LABELS, SAMPLES + b"," + SAMPLES)
    server.spoil = lambda query, reply: Reply(200, large) if query.startswith(f"{UTIL}{{") else reply
    async with source(server, samples=400_000, deadline=1e6) as prometheus:
        reading, longest = await longest_turn(lambda: prometheus.read(end=END, seconds=WINDOW), below=LONGEST)
    assert any("samples take more than 8 MiB" in fault.message for fault in reading.faults)
    assert reading.tracks[0].terms["power"].mean == 380.0
    assert longest < LONGEST


async def test_all_answers_of_an_analysis_together_have_a_budget(server):
    server.spoil = lambda query, reply: Reply(200, reply.body + b" " * 400_000) if "_over_time" in query else reply
    with pytest.raises(SourceDown, match="the answers of this analysis are larger than"):
        await read(server, budget=300_000)
    assert not (await read(server)).faults
    asked = len(server.queries)
    reading = await read(server, budget=1_500_000, concurrency=1)
    assert {fault.code for fault in reading.faults} == {"ANSWER_UNREADABLE"}
    assert len(server.queries) - asked < asked  # what comes after is not even asked


async def test_retries_do_not_get_a_new_budget(server):
    server.spoil = lambda query, reply: Reply(200, b"x" * 400_000) if "_over_time" in query else reply
    async with source(server, budget=1_000_000, retries=3) as prometheus:
        with pytest.raises(SourceDown):
            await prometheus.read(end=END, seconds=WINDOW)
    assert sum("_over_time" in query for query in server.queries) <= 8


async def test_a_check_whether_the_engine_answers_reads_little(server):
    server.spoil = lambda query, reply: Reply(200, b" " * MIB)
    async with source(server) as prometheus:
        with pytest.raises(SourceDown, match=r"larger than 0\.0625 MiB"):
            await prometheus.ready()


async def test_an_unexpected_error_in_one_query_is_its_own_with_its_name_and_counted(server, monkeypatch, caplog):
    usual, counted = Table.take, list[ScopeError]()

    def broken(self, ask, rows, *, missing=""):
        if ask.name == UTIL:
            raise ZeroDivisionError("a broken promise of our own")
        usual(self, ask, rows, missing=missing)

    monkeypatch.setattr(Table, "take", broken)
    async with source(server) as prometheus:
        prometheus.units.count = counted.append
        reading = await prometheus.read(end=END, seconds=WINDOW)
    assert {(fault.part.split()[0], fault.code) for fault in reading.faults} == {("gpu_util", "INTERNAL")}
    assert reading.tracks[0].terms["power"].mean == 380.0
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(counted) == len(told) > 0
    assert {record.fields["unit"].split()[0] for record in told} == {"gpu_util"}


async def test_an_xid_of_many_digits_says_nothing(server, engine):
    engine.add("DCGM_FI_DEV_XID_ERRORS", [0.0, 79.0], UUID="GPU-00000000", pod="p", xid="9" * 5000)
    assert not (await read(server)).faults


def recorded():
    for file in RECORDED:
        for state in json.loads(file.read_text())["states"].values():
            yield from (answer["body"].encode() for answer in state.values() if answer["status"] == 200)


def decoded(data):
    """An answer in every way in which it is read."""
    for decode in (promql.decode_vector, promql.decode_matrix, promql.decode_names):
        try:
            found = decode(data)
        except QueryFailed:
            continue
        for row in found.rows:
            if not isinstance(row, str):
                promql.decode_named(row.metric)
            if isinstance(row, promql.MatrixRow):
                row.samples()
    promql.decode_error(500, data)


@pytest.mark.parametrize("number", range(3))
def test_every_cut_and_every_changed_byte_of_an_answer_is_read_or_refused(number):
    smallest = sorted(set(recorded()), key=len)
    data = smallest[len(smallest) * number // 3 + 1]
    survives(decoded, data, QueryFailed, cases=3)


def outcome(decode, data):
    try:
        answer = decode(data)
    except QueryFailed as e:
        return type(e)
    return [(bytes(row.metric), getattr(row, "value", None)) for row in answer.rows], answer.missing


@pytest.mark.parametrize("step", [1, 100, 1000])
def test_an_answer_that_is_decoded_in_steps_is_the_same(monkeypatch, step):
    data = sorted(set(recorded()), key=len)
    whole = [[outcome(decode, one) for decode in (promql.decode_vector, promql.decode_matrix)] for one in data]
    monkeypatch.setattr(promql, "_STEP", step)
    assert [[outcome(decode, one) for decode in (promql.decode_vector, promql.decode_matrix)] for one in data] == whole
    assert any(isinstance(one, tuple) and len(one[0]) > 1 for pair in whole for one in pair)


@pytest.mark.parametrize("deep", [b'{"data":' + b"[" * 100_000, b"[" * 100_000, b'{"warnings":' + b'{"a":' * 100_000])
def test_brackets_that_are_never_closed_are_refused(deep):
    with pytest.raises(AnswerUnreadable):
        promql.decode_vector(deep)
    assert promql.decode_error(500, deep).startswith("500")
    with pytest.raises(AnswerUnreadable):
        promql.decode_labels(deep)
