"""Queries mean what their matchers say, answers are read whole or refused, statistics are those of the samples."""

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.promql import (
    Matcher,
    MatrixRow,
    VectorRow,
    by_labels,
    chosen_by,
    decode_error,
    decode_labels,
    decode_matrix,
    decode_names,
    decode_vector,
    one_of,
    parse_condition,
    selector,
    window,
)
from vgpuscope.knowledge.exporters import CONTAINERS, DCGM, GPUS, GROUPS, INSTANCES, STATISTICS
from vgpuscope.logic.fleet.queries import gathered, plan
from vgpuscope.logic.fleet.series_table import LabelCache, Table, quantile
from vgpuscope.logic.fleet.tracks import refused, tracks
from vgpuscope.model.errors import AnswerUnreadable, ConfigInvalid, QueryFailed

names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "__name__")
texts = st.text(max_size=12)
matchers = st.one_of(
    st.builds(Matcher, names, st.sampled_from(["=", "!="]), texts),
    st.builds(Matcher, names, st.sampled_from(["=~", "!~"]), texts.map(lambda text: one_of("x", [text]).value)),
)


# ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(matchers, max_size=5))
def test_what_is_written_is_read_back(some):
    assert parse_condition(selector("", some)) == tuple(some)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", ()),
        (' { pod != "" , } ', (Matcher("pod", "!=", ""),)),
        ("{a='it\\'s',b=`x\\y`}", (Matcher("a", "=", "it's"), Matcher("b", "=", "x\\y"))),
        ('{a=~"x|y\\\\.z",b="\\u00e9\\x41\\101\\n"}', (Matcher("a", "=~", "x|y\\.z"), Matcher("b", "=", "éAA\n"))),
        ('{a="}",b=","}', (Matcher("a", "=", "}"), Matcher("b", "=", ","))),
    ],
)
def test_all_ways_to_write_a_condition_are_understood(text, found):
    assert parse_condition(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "pod", 'pod!=""', "{pod}", '{pod!=""', '{pod=="x"}', "{pod=x}", '{a="b" c="d"}', '{a="b"} or x'),
        *('{,a="b"}', '{1a="b"}', '{a="\\q"}', '{__name__="x"}', '{a="b"}[5m]', '{a="b\n"}', '{a="\\U99999999"}'),
    ],
)
def test_anything_else_is_no_condition(text):
    with pytest.raises(ConfigInvalid):
        parse_condition(text)


@given(st.text())
def test_any_text_is_a_condition_or_refused(text):
    try:
        found = parse_condition(text)
    except ConfigInvalid:
        return
    assert parse_condition(selector("", found)) == found


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("{}", "a b nobody"),
        ('{pod!=""}', "a b"),
        ('{pod=""}', "nobody"),
        ('{pod=~"a|x"}', "a"),
        ('{pod=~"."}', "a b"),
        ('{pod!~"a.*"}', "b nobody"),
        ('{pod!~".+"}', "nobody"),
        ('{pod=~"",zone="z"}', "nobody"),
        ('{pod="a",zone="y"}', ""),
        ('{pod="."}', ""),
    ],
)
def test_a_condition_chooses_series_as_an_engine_does(condition, chosen):
    series = {"a": {"pod": "a", "zone": "z"}, "b": {"pod": "b", "zone": "z"}, "nobody": {"zone": "z"}}
    fulfilled = chosen_by(parse_condition(condition))
    assert [name for name, labels in series.items() if fulfilled(labels)] == chosen.split()


def test_an_expression_that_only_an_engine_understands_is_refused_where_there_is_none():
    with pytest.raises(ConfigInvalid, match="only with Prometheus"):
        chosen_by(parse_condition('{pod=~"\\\\pL+"}'))


@pytest.mark.parametrize("depth", [400, 999, 5000])
def test_an_expression_of_any_depth_is_taken_or_refused(depth):
    with contextlib.suppress(ConfigInvalid):
        chosen_by(parse_condition(f'{{pod=~"{"(" * depth}{")*" * depth}"}}'))


def test_texts_that_look_like_patterns_are_taken_as_they_are():
    assert one_of("UUID", ["GPU-a.b", "x|y"]).value == "GPU-a\\.b|x\\|y"
    assert str(one_of("UUID", ["a.b"])) == 'UUID=~"a\\\\.b"'


def test_a_window_does_not_hold_the_sample_at_its_beginning():
    assert window(600) == "599999ms"


def test_our_metrics_are_those_of_the_catalog():
    known = {metric.name for metric in m.METRICS}
    assert all(group.names <= known for group in (GPUS, INSTANCES, CONTAINERS))
    assert all(name.startswith("DCGM_FI_") for name in DCGM.names)


def test_queries_are_a_constant_number_and_none_is_asked_twice():
    asks = [ask for group in GROUPS for ask in plan(group, present=group.names, condition=(), expected=20)]
    queries = [ask.query("1ms") for ask in asks]
    assert len(set(queries)) == len(queries)
    sent = list(gathered(asks))  # several statistics of one metric are one query for its samples
    assert len(sent) < 100  # of all exporters; test_prometheus_reading.py counts the requests
    assert {(ask.name, one) for ask in sent for one in ask.statistics} == {(ask.name, *ask.statistics) for ask in asks}


def test_where_one_blank_could_hide_in_a_mean_the_maximum_is_asked_for_too():
    few, many = (
        {ask.part.split(" (")[0] for ask in plan(DCGM, present=DCGM.names, condition=(), expected=expected)}
        for expected in (20, 5760)
    )
    assert "mem_used max" in many - few


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def vector(rows, **more) -> bytes:
    result = [{"metric": labels, "value": [0, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more}).encode()


@given(st.dictionaries(names, st.text(max_size=8)), st.sampled_from(["0", "NaN", "+Inf", "-Inf", "1e9"]))
def test_labels_and_values_come_through(labels, value):
    [row] = decode_vector(vector([(labels, value)])).rows
    assert decode_labels(row.metric) == labels
    assert str(row.value[1]) == str(float(value))


def test_infinity_as_a_label_is_a_text():
    [row] = decode_vector(vector([({"le": "+Inf"}, "+Inf")])).rows
    assert (decode_labels(row.metric), row.value[1]) == ({"le": "+Inf"}, math.inf)


def test_a_metrics_name_is_not_one_of_its_labels():
    assert decode_labels(b'{"__name__":"x","a":"b"}') == {"a": "b"}


@given(st.one_of(st.binary(), st.integers(0, 200).map(lambda n: vector([({"a": "b"}, "1")] * 3)[:n])))
@pytest.mark.parametrize("decode", [decode_vector, decode_matrix, decode_names])
def test_any_bytes_are_an_answer_or_refused(decode, data):
    with contextlib.suppress(AnswerUnreadable, QueryFailed):
        decode(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"<html>login</html>", "HTML"),
        (b"upstream timed out", "upstream timed out"),
        (b'{"status":"success","data":{"resu', "cut off"),
        (b'{"status":"success"}', "nothing"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "matrix"),
        (vector([({"a": "b"}, "1"), ({"a": "c"}, "x")]), "float"),
    ],
)
def test_a_refusal_says_what_came_instead(data, says):
    with pytest.raises(AnswerUnreadable, match=says):
        decode_vector(data)


def test_an_error_of_the_server_is_told_in_its_words():
    body = b'{"status":"error","errorType":"execution","error":"query\\n timed out"}'
    assert decode_error(503, body) == "503 execution: query timed out"
    with pytest.raises(QueryFailed, match="query timed out"):
        decode_vector(body)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────

END, STEP = 1_800_000_000.0, 30.0
FALSE = (math.nan, math.inf, -math.inf, 100.5, 2147483632.0, 9223372036854775792.0, 140737488355328.0)
percent = st.one_of(st.floats(0, 100, allow_subnormal=False), st.sampled_from(FALSE))


def filled(series: dict[str, list[float]]) -> Table:
    """A table of GPU_UTIL as an engine would answer, and looked at closer where it wants that."""
    table = Table(DCGM, begin=END - 600, end=END, step=STEP)
    utilization = [ask for ask in plan(DCGM, present=DCGM.names, condition=(), expected=20) if ask.quantity == 0]
    for ask in utilization:
        table.take(ask, [row(uuid, _statistic(ask.statistics[0], values)) for uuid, values in series.items() if values])
    table.settle()
    for query in table.sample_queries(500):
        table.look(query, [line(utilization[0].name, uuid, series[uuid]) for uuid in query.devices])
    return table


def row(uuid: str, value: float) -> VectorRow:
    return VectorRow(msgspec.Raw(json.dumps({"UUID": uuid, "pod": "p"}).encode()), (END, value))


def line(name: str, uuid: str, values: list[float]) -> MatrixRow:
    times = [END - STEP * (len(values) - 1 - i) for i in range(len(values))]
    labels = {"__name__": name, "pod": "p", "UUID": uuid}
    samples = [(at, str(value)) for at, value in zip(times, values, strict=True)]
    return MatrixRow(msgspec.Raw(json.dumps(labels).encode()), msgspec.Raw(json.dumps(samples).encode()))


def _statistic(statistic: str, values: list[float]) -> float:
    true = [v for v in values if not math.isnan(v)]
    return {
        "mean": sum(values) / len(values),
        "max": max(true, default=math.nan),
        "p95": max(true, default=math.nan),
        "samples": len(values),
        "last": END,
    }[statistic]


@given(st.dictionaries(st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]), st.lists(percent, min_size=1, max_size=20)))
def test_statistics_are_those_of_the_true_samples(series):
    table = filled(series)
    assert refused(table) == {}
    for track in tracks(table):
        values = series[track.gpu_id]
        good = [v / 100 for v in values if 0 <= v <= 100]
        stat = track.terms["gpu_util"]
        assert (stat.samples, stat.dropped) == (len(good), len(values) - len(good))
        assert stat.mean == (pytest.approx(sum(good) / len(good)) if good else None)
        assert stat.max == (max(good) if good else None)


@given(st.lists(st.floats(0, 1), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_two_samples_and_grows(values, q):
    assert min(values) - 1e-12 <= quantile(q, values) <= max(values) + 1e-12
    assert quantile(0, values) == min(values)
    assert quantile(1, values) == max(values)


def test_an_answer_with_one_sample_that_is_no_number_can_be_forgotten():
    table = Table(DCGM, begin=END - 600, end=END, step=STEP)
    ask = next(iter(plan(DCGM, present=DCGM.names, condition=(), expected=20)))._replace(statistics=STATISTICS)
    table.take_samples(ask, [line(ask.name, "GPU-1", [1.0, 2.0])])
    with pytest.raises(AnswerUnreadable):
        table.take_samples(ask, [MatrixRow(msgspec.Raw(b'{"UUID":"GPU-2"}'), msgspec.Raw(b'[[1,"1"],[2,"x"]]'))])
    table.forget(ask)
    table.settle()
    assert [track.terms for track in tracks(table)] == []


def test_a_series_that_names_no_gpu_is_none():
    table = Table(DCGM, begin=END - 600, end=END, step=STEP)
    ask = next(iter(plan(DCGM, present=DCGM.names, condition=(), expected=20)))
    table.take(ask, [VectorRow(msgspec.Raw(b'{"pod":"p"}'), (END, 1.0))])
    table.settle()
    assert list(tracks(table)) == []


def test_a_series_that_is_known_is_another_once_its_job_turns_out_to_hide_tenants():
    places, free = LabelCache(DCGM), b'{"UUID":"GPU-1","job":"gpus","pod":"web"}'
    held = b'{"UUID":"GPU-2","exported_pod":"train","job":"gpus","pod":"web"}'
    before, after = places.of({free})[free][0], places.of({free, held})
    assert before is not None
    assert before.tenant is not None
    assert [after[raw][0].tenant and after[raw][0].tenant.pod for raw in (free, held)] == [None, "train"]
    assert places.of({free})[free][0] == before


def test_of_series_that_are_gone_nothing_is_kept():
    places = LabelCache(DCGM)
    assert list(places.of({b'{"UUID":"GPU-1"}'})) == [b'{"UUID":"GPU-1"}']
    assert list(places.of({b'{"UUID":"GPU-2"}'})) == [b'{"UUID":"GPU-2"}']


def test_every_statistic_has_a_query():
    ask = next(iter(plan(DCGM, present=DCGM.names, condition=parse_condition('{a="b"}'), expected=20)))
    assert {ask._replace(statistics=(s,)).query("5ms") for s in STATISTICS} == {
        'avg_over_time(DCGM_FI_DEV_GPU_UTIL{a="b"}[5ms])',
        'max_over_time(DCGM_FI_DEV_GPU_UTIL{a="b"}[5ms])',
        'quantile_over_time(0.95,DCGM_FI_DEV_GPU_UTIL{a="b"}[5ms])',
        'count_over_time(DCGM_FI_DEV_GPU_UTIL{a="b"}[5ms])',
        'timestamp(DCGM_FI_DEV_GPU_UTIL{a="b"})',
    }


_LABEL_TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(['a"b', "a\\", "}", '","x":"y', "名"])


@given(
    st.lists(
        st.tuples(
            _LABEL_TEXT, st.dictionaries(_LABEL_TEXT | st.sampled_from(["UUID", "pod"]), _LABEL_TEXT, max_size=3)
        ),
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
)
def test_labels_that_are_decoded_once_are_those_that_json_says(series, first, dense):
    """Truth: Python's own json. The name may be first, last, or alone; text may be escaped in any way."""
    raws, truth = [], {}
    for name, labels in series:
        whole = {"__name__": name, **labels} if first else {**labels, "__name__": name}
        raws.append(json.dumps(whole, separators=(",", ":") if dense else None, ensure_ascii=dense).encode())
        truth[name, tuple(sorted(labels.items()))] = float(len(raws))
    found = by_labels(VectorRow(msgspec.Raw(raw), (0.0, number)) for number, raw in enumerate(raws, start=1))
    assert truth == {
        (name, tuple(sorted(labels.items()))): value for labels, values in found for name, value in values.items()
    }


def test_series_of_one_thing_share_their_labels():
    raws = [f'{{"__name__":"{name}","pod":"p"}}'.encode() for name in ("x", "y")]
    assert by_labels(VectorRow(msgspec.Raw(raw), (0.0, 1.0)) for raw in raws) == [({"pod": "p"}, {"x": 1.0, "y": 1.0})]


@pytest.mark.parametrize("raw", [b'{"__name__":"x","pod":1}', b'{"__name__":"x","pod":"p"', b'{"__name__":"x"', b"[]"])
def test_labels_that_cannot_be_read_are_an_error(raw):
    with pytest.raises(AnswerUnreadable):
        by_labels([VectorRow(msgspec.Raw(raw), (0.0, 1.0))])
