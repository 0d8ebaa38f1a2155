"""A sharded page is the same page, however it came about."""

import gzip
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vgpuscope.catalog.metric import Alias, Metric, renamed, same
from vgpuscope.model.histogram import Histogram
from vgpuscope.views.exposition import sharded, textline
from vgpuscope.views.exposition.page import Renderer, Sample
from vgpuscope.views.exposition.sharded import ShardedPage


class Row(NamedTuple):
    node: str
    gpu: str
    whole: str = ""


USED = Metric(
    name="x_used_bytes",
    type="gauge",
    help="Used.",
    unit="bytes",
    scope="gpu",
    labels=same("node", "gpu"),
    aliases=(Alias(family="hami", name="old_used", labels=renamed(nodeid="node", id="gpu"), scale=0.1, when="whole"),),
)
STATE = Metric(
    name="x_state_total",
    type="counter",
    help="State.",
    unit="",
    scope="gpu",
    labels=same("node", "gpu"),
    extra=("state",),
)
FAMILIES = ("native", "hami")

values = st.none() | st.integers(0, 9)
things = st.dictionaries(st.sampled_from("abcd"), st.tuples(values, values, st.booleans()), max_size=4)
changes = st.lists(st.tuples(st.sampled_from(("n1", "n2", "n3")), st.none() | things), max_size=12)


def samples(node, contents):
    for gpu, (used, state, whole) in contents.items():
        row = Row(node, gpu, "1" if whole else "")
        yield Sample(USED, row, used)
        yield Sample(STATE, row, state, ("on",))
        yield Sample(STATE, row, used, ("off",))


def parsed(text, parse):
    found = [(s.name, tuple(sorted(s.labels.items())), s.value) for f in parse(text) for s in f.samples]
    assert len(found) == len(set(found))
    return set(found)


def shown(page, pieces="text", parse=parse_text):
    return parsed(getattr(page, pieces)().decode(), parse)


def replay(history):
    page = ShardedPage((USED, STATE), FAMILIES)
    truth: dict = {}
    for node, contents in history:
        if contents is None:
            page.drop(node)
            truth.pop(node, None)
        else:
            page.update(node, samples(node, contents))
            truth[node] = contents
    return page, [s for node, contents in truth.items() for s in samples(node, contents)]


@given(changes)
def test_after_any_history_the_page_is_that_of_what_is_there_now(history):
    page, truth = replay(history)
    whole = Renderer((USED, STATE), FAMILIES).render(truth)
    assert shown(page) == parsed(whole.text().decode(), parse_text)
    assert page.series == whole.series


@given(st.lists(st.tuples(*[st.tuples(values, values, st.sampled_from(("on", "idle")))] * 3), min_size=2, max_size=6))
def test_things_that_stay_show_their_latest_values(history):
    def now(moment):
        for gpu, (used, state, word) in zip("abc", moment, strict=True):
            row = Row("n1", gpu, "1" if gpu == "b" else "")
            yield Sample(USED, row, used)
            yield Sample(STATE, row, state, (word,))
            yield Sample(STATE, row, used, ("off",))

    page = ShardedPage((USED, STATE), FAMILIES)
    for moment in history:
        page.update("n1", now(moment))
        whole = Renderer((USED, STATE), FAMILIES).render(list(now(moment)))
        assert shown(page) == parsed(whole.text().decode(), parse_text)


@given(changes)
def test_openmetrics_is_read_back_too(history):
    page, truth = replay(history)
    whole = Renderer((USED, STATE), FAMILIES).render(truth)
    assert shown(page, "openmetrics", parse_openmetrics) == parsed(whole.openmetrics().decode(), parse_openmetrics)


@given(changes, st.booleans(), st.sampled_from((0, 80, 200)))
def test_the_compressed_page_is_the_page_at_any_moment(history, openmetrics, small):
    page = ShardedPage((USED, STATE), FAMILIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded, "_SMALL", small)
        for node, contents in history:
            page.update(node, samples(node, contents or {}))
            plain = page.openmetrics() if openmetrics else page.text()
            assert gzip.decompress(page.gzipped(openmetrics)) == plain


def written(monkeypatch):
    """The lines that are written from here on, values aside."""
    found, write = [], textline.start
    monkeypatch.setattr(textline, "start", lambda *args: found.append(args[1:]) or write(*args))
    return found


def test_only_the_lines_of_what_is_new_are_written(monkeypatch):
    page = ShardedPage((USED, STATE), FAMILIES)
    page.update("n1", samples("n1", {"a": (1, 1, True), "b": (2, 2, True)}))
    lines = written(monkeypatch)
    page.update("n1", samples("n1", {"a": (1, 1, True), "b": (3, 2, True)}))
    assert lines == []
    page.update("n1", samples("n1", {"a": (1, 1, True), "b": (3, 2, True), "c": (1, 1, False)}))
    assert {row.gpu for row, _ in lines} == {"c"}


def test_any_character_may_stand_in_a_label():
    odd = '\r\x0b\x0c\x1c\x85\u2028 }\\"'
    page = ShardedPage((USED,), FAMILIES)
    for value in (1, 2):
        page.update("n1", [Sample(USED, Row("n1", odd), value), Sample(USED, Row("n1", "b"), 7)])
    page.update("n1", [Sample(USED, Row("n1", odd), 2), Sample(USED, Row("n1", "c"), 8)])
    (family,) = parse_text(page.text().decode())
    assert [(s.labels["gpu"], s.value) for s in family.samples] == [(odd, 2), ("c", 8)]


@given(changes, st.booleans(), st.booleans())
def test_a_page_that_changes_while_it_is_sent_is_sent_as_it_was(history, openmetrics, gzipped):
    page, _ = replay(history)
    page.update("n9", samples("n9", {"a": (1, 1, True), "b": (2, 2, True)}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded, "_CHUNK", 1)
        patch.setattr(sharded, "_SMALL", 80)
        before = page.openmetrics() if openmetrics else page.text()
        length, chunks = page.chunks(openmetrics=openmetrics, gzipped=gzipped)
        sent = [next(chunks)]
        page.update("n9", samples("n9", {"a": (5, 1, True), "c": (2, 2, True)}))
        page.drop("n1")
        sent += chunks
        assert len(sent) > 2
        assert (gzip.decompress(b"".join(sent)) if gzipped else b"".join(sent)) == before
        assert length == (None if gzipped else len(before))
        assert gzip.decompress(page.gzipped(openmetrics)) == (page.openmetrics() if openmetrics else page.text())


def test_only_what_changed_is_compressed_again():
    def now(state):
        for gpu in "abcdefgh":
            yield Sample(USED, Row("n1", gpu), 1)
            yield Sample(STATE, Row("n1", gpu), state, ("on",))

    page = ShardedPage((USED, STATE), FAMILIES)
    page.update("n1", now(1))
    page.gzipped(False)
    before = [dict(column.packed) for column in page._columns]
    page.update("n1", now(2))
    page.gzipped(False)
    shard = page._shards["n1"]
    after = [column.packed for column in page._columns]
    assert [new[shard] is old[shard] for old, new in zip(before, after, strict=True) if new] == [True, False]


TOOK = Metric(
    name="x_took_seconds",
    type="histogram",
    help="Took.",
    unit="seconds",
    scope="gpu",
    labels=same("node"),
    extra=("by",),
)
BARE = Metric(name="x_bare_seconds", type="histogram", help="Bare.", unit="seconds", scope="gpu", labels=())
seconds = st.lists(st.floats(0, 100), max_size=8)


@given(seconds, st.sampled_from(["", "a", 'q}"{ ']))
def test_a_histogram_is_read_back_as_it_was_observed(observed, by):
    page = ShardedPage([TOOK, BARE], FAMILIES)
    value = Histogram.empty((0.5, 1, 10))
    for one in observed:
        value = value.with_one(one)
    page.update("k", [Sample(TOOK, Row("n", "g"), value, (by,)), Sample(BARE, Row("n", "g"), value)])
    labels = (("by", by), ("node", "n")) if by else (("node", "n"),)
    for found in (parsed(page.text().decode(), parse_text), parsed(page.openmetrics().decode(), parse_openmetrics)):
        for bound in ("0.5", "1.0", "10.0", "+Inf"):
            within = sum(one <= float(bound) for one in observed)
            assert ("x_took_seconds_bucket", tuple(sorted((*labels, ("le", bound)))), within) in found
            assert ("x_bare_seconds_bucket", (("le", bound),), within) in found
        assert ("x_took_seconds_count", labels, len(observed)) in found
        assert ("x_took_seconds_sum", labels, value.sum) in found
        assert len(found) == 2 * 6
