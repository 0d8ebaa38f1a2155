import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from vgpuscope.formats.prom.text import PageReader, decode_labels

WANTED = frozenset({"wanted", "wanted_too"})


def reader(asked=None):
    """Everything means itself."""

    def meaning(name, labels):
        if asked is not None:
            asked.append(name)
        return (name, frozenset(labels.items()))

    return PageReader(wanted=WANTED, meaning=meaning)


def read(page):
    return [(name, dict(labels), value) for (name, labels), value in reader().read(page)]


def escaped(value):
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e"))
tricky = st.text(st.sampled_from('\\"\nn{},= '), max_size=6)
label_names = st.from_regex(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True)
values = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf])
samples = st.tuples(
    st.sampled_from(["wanted", "wanted_too", "wanted_to", "other", "wanted_too_much"]),
    st.dictionaries(label_names, texts | tricky, max_size=4),
    values,
    st.none() | st.integers(0, 2**40),
)


def written(value):
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))


def line(name, labels, value, stamp):
    shown = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {written(value)}" + ("" if stamp is None else f" {stamp}") + "\n"


def same(ours, theirs):
    def key(sample):
        return (sample[0], sorted(sample[1].items()), repr(float(sample[2])))

    return sorted(map(key, ours)) == sorted(map(key, theirs))


@given(st.lists(samples, max_size=8))
def test_what_is_taken_is_what_the_reference_parser_reads(lines):
    page = "# HELP wanted It {is} 1\n# TYPE wanted gauge\n" + "".join(line(*one) for one in lines)
    families = text_string_to_metric_families(page)
    theirs = [(s.name, s.labels, s.value) for family in families for s in family.samples if s.name in WANTED]
    assert same(read(page.encode()), theirs)


@given(st.lists(samples, max_size=5), st.lists(samples, max_size=5))
def test_a_reader_that_knows_the_last_page_reads_the_next_like_a_new_one(first, second):
    one, two = ("".join(line(*sample) for sample in lines).encode() for lines in (first, second))
    used = reader()
    used.read(one)
    assert repr(used.read(two)) == repr(reader().read(two))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_passed_over(page):
    reader().read(page + b"\nwanted{" + page + b"\n")


def test_a_series_is_understood_once_for_as_long_as_it_comes():
    asked: list = []
    one = reader(asked)
    for page in (b'wanted{a="b"} 1\n', b'wanted{a="b"} 2\n', b"\n", b'wanted{a="b"} 3\n'):
        one.read(page)
    assert asked == ["wanted", "wanted"]


def test_a_line_that_was_cut_off_is_not_read():
    assert read(b'wanted{a="b"} 0.25\nwanted{a="c"} 0.9') == [("wanted", {"a": "b"}, 0.25)]


@pytest.mark.parametrize(
    "text",
    [b'wanted {a="b"} 1\n', b'wanted{a="b"}\t1\n', b'wanted{ a = "b" , } 1\n', b'wanted{a="b"} 1 1700000000000\r\n'],
)
def test_blanks_and_a_last_comma_do_not_matter(text):
    assert read(text) == [("wanted", {"a": "b"}, 1.0)]


@pytest.mark.parametrize("labels", [b"a", b'a="b', b'a="b" c="d"', b'="b"', b'a="\xff"', b'a="b"}{c="d"'])
def test_labels_of_another_form_make_a_series_unknown(labels):
    assert decode_labels(labels) is None
    assert read(b"wanted{" + labels + b"} 1\n") == []


def test_a_series_without_labels_is_read_too():
    assert read(b"wanted 5\nwanted_too{} 6\nother 7\n") == [("wanted", {}, 5.0), ("wanted_too", {}, 6.0)]


@pytest.mark.parametrize("text", [b" x", b"", b" ", b" 1 2 3", b" 1,5", b" 0x1p3 7"])
def test_what_is_no_number_is_nan_and_counted(text):
    one = reader()
    for _ in range(2):  # the second page is no better
        [(_, value)] = one.read(b"wanted{}" + text + b"\nwanted_too 1\n")[:1]
        assert (math.isnan(value), one.malformed) == (True, 1)


@pytest.mark.attack
@pytest.mark.parametrize(
    "line",
    [b"wanted", b"wanted 5}", b"wanted{", b"wanted{a=", b'wanted{a="b" 5', b'wanted{a="' + b"x" * 9000 + b'"} 1'],
)
def test_a_line_of_another_form_is_skipped_and_counted_on_every_page(line):
    one = reader()
    for _ in range(2):
        found = one.read(b"wanted_too 1\n" + line + b'\nwanted{a="b"} 2\n')
        assert [value for (_, labels), value in found if not labels or dict(labels) == {"a": "b"}][:1] == [1.0]
        assert (found[-1][1], one.malformed) == (2.0, 1)


def test_a_line_that_is_of_another_time_says_nothing_of_now():
    reader = PageReader(wanted=frozenset({"a"}), meaning=lambda name, labels: name)
    page = b"a 1 1700000000000\na 2 1700000050000\na 3\na 4 1699990000000\na 5 1700003600000\n"
    found = [value for _, value in reader.read(page, at=1_700_000_000.0, late=60.0)]
    assert found[:3] == [1, 2, 3]
    assert [math.isnan(value) for value in found[3:]] == [True, True]
