"""The page, read back by Prometheus' own parsers."""

import gzip
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vgpuscope.catalog.metric import Alias, Metric, renamed, same
from vgpuscope.views.exposition.page import ExpositionPage, Form, Renderer, Sample


class Row(NamedTuple):
    node: str
    gpu: str = ""
    shared: str = ""


USED = Metric(
    name="x_used_bytes",
    type="gauge",
    help='Used, "really"\nused \\o/.',
    unit="bytes",
    scope="gpu",
    labels=same("node", "gpu"),
    aliases=(
        Alias(family="hami", name="old_used", labels=renamed(nodeid="node"), scale=0.5, const=(("zone", "vGPU"),)),
        Alias(family="dcgm", name="SHARED", labels=renamed(UUID="gpu"), when="shared"),
    ),
)
SEEN = Metric(
    name="x_seen_total", type="counter", help="Seen.", unit="", scope="gpu", labels=same("node"), extra=("what",)
)
DESC = Metric(
    name="x_desc",
    type="gauge",
    help="D.",
    unit="bytes",
    scope="gpu",
    labels=same("node"),
    extra=("context", "data"),
    volatile=True,
    const=(("zone", "100%"),),
)
ENERGY = Metric(name="DCGM_ENERGY", type="counter", help="E.", unit="", scope="gpu", labels=same("node"))
METRICS = (USED, SEEN, DESC, ENERGY)
ALL = ("native", "hami", "dcgm")

labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)


def read_back(text, parse):
    return {(s.name, tuple(sorted(s.labels.items()))): float(s.value) for f in parse(text) for s in f.samples}


def page(*samples, families=ALL):
    return Renderer(METRICS, families).render(samples)


@given(labels, labels, numbers)
def test_any_label_and_any_number_is_read_back_as_it_was(node, gpu, value):
    made = page(Sample(USED, Row(node, gpu), value), families=("native",))
    expected = {("x_used_bytes", (("gpu", gpu), ("node", node))): float(value)}
    assert read_back(made.text().decode(), parse_text) == expected
    assert read_back(made.openmetrics().decode(), parse_openmetrics) == expected


def test_an_alias_has_its_own_name_labels_constants_and_scale():
    made = read_back(page(Sample(USED, Row("n", "g"), 8)).text().decode(), parse_text)
    assert made[("old_used", (("nodeid", "n"), ("zone", "vGPU")))] == 4


def test_an_alias_that_does_not_apply_to_a_row_is_left_out():
    made = page(Sample(USED, Row("n", "g"), 8), Sample(USED, Row("n", "h", "1"), 9)).text().decode()
    assert [line for line in made.splitlines() if line.startswith("SHARED")] == ['SHARED{UUID="h"} 9']


def test_what_was_not_measured_is_absent():
    assert page(Sample(USED, Row("n", "g"), None)).text() == b""


def test_a_scaled_percentage_has_no_dust_of_binary_fractions():
    percent = Metric(
        name="r_ratio",
        type="gauge",
        help="R.",
        unit="ratio",
        scope="gpu",
        labels=(),
        aliases=(Alias(family="hami", name="p", labels=(), scale=100),),
    )
    assert b"p 7.0\n" in Renderer((percent,), ("hami",)).render([Sample(percent, Row("n"), 0.07)]).text()


def test_the_samples_of_a_name_stand_together_under_one_head():
    made = page(
        Sample(USED, Row("n", "g"), 1),
        Sample(SEEN, Row("n"), 1, ("a",)),
        Sample(USED, Row("m", "h"), 2),
        Sample(SEEN, Row("n"), 2, ("b",)),
    )
    names = [line.split("{")[0] for line in made.text().decode().splitlines() if not line.startswith("#")]
    assert names == ["x_used_bytes"] * 2 + ["old_used"] * 2 + ["x_seen_total"] * 2
    assert made.text().count(b"# TYPE x_used_bytes ") == 1


def test_openmetrics_names_counters_without_total_and_knows_no_counter_that_lacks_it():
    made = page(Sample(SEEN, Row("n"), 1, ("a",)), Sample(ENERGY, Row("n"), 5)).openmetrics().decode()
    kinds = {f.name: f.type for f in parse_openmetrics(made)}
    assert kinds == {"x_seen": "counter", "DCGM_ENERGY": "unknown"}
    assert made.endswith("# EOF\n")


def test_gzip_is_the_same_page():
    made = page(Sample(USED, Row("n", "g"), 1))
    assert gzip.decompress(made.gzipped(False)) == made.text()
    assert gzip.decompress(made.gzipped(True)) == made.openmetrics()


# ── a page is made when it is asked for ──────────────────────────────────────────────────────────────────────────
class Watched:
    """Samples of one reading, and how often they were gone through."""

    def __init__(self, *samples):
        self.samples, self.times = samples, 0

    def __iter__(self):
        self.times += 1
        return iter(self.samples)


def test_a_page_that_is_never_scraped_is_never_made():
    renderer, seen = Renderer(METRICS, ALL), Watched(Sample(USED, Row("n", "g"), 1))
    for _ in range(100):
        renderer.render(seen)
    assert seen.times == 0


def test_two_scrapes_of_one_page_get_the_same_bytes_made_once():
    seen = Watched(Sample(USED, Row("n", "g"), 1))
    made = Renderer(METRICS, ALL).render(seen)
    assert made.text() is made.text()
    assert made.gzipped(True) is made.gzipped(True)
    assert seen.times == 1


def every_form(page):
    return {
        "text": page.text,
        "openmetrics": page.openmetrics,
        "text, gzip": lambda: gzip.decompress(page.gzipped(False)),
        "openmetrics, gzip": lambda: gzip.decompress(page.gzipped(True)),
    }


@given(st.permutations(["text", "openmetrics", "text, gzip", "openmetrics, gzip"]))
def test_all_forms_say_the_same_in_whichever_order_they_are_asked_for(order):
    forms = every_form(page(Sample(USED, Row("n", "g"), 1), Sample(SEEN, Row("n"), 2, ("a",))))
    made = {form: forms[form]() for form in order}
    assert made["text"] == made["text, gzip"]
    assert made["openmetrics"] == made["openmetrics, gzip"]
    expected = read_back(made["text"].decode(), parse_text)
    assert expected
    assert read_back(made["openmetrics"].decode(), parse_openmetrics) == expected


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=3, unique=True), min_size=1, max_size=6).flatmap(
        lambda pages: st.tuples(st.just(pages), st.permutations(range(len(pages))))
    )
)
def test_a_page_shows_its_own_sample_however_late_it_is_asked_for(history):
    pages, order = history
    renderer = Renderer(METRICS, ALL)
    samples = [[Sample(USED, Row("n", gpu), number) for gpu in gpus] for number, gpus in enumerate(pages)]
    made = [renderer.render(these) for these in samples]
    for number in order:
        assert made[number].text() == page(*samples[number]).text()


def test_a_page_is_right_even_if_a_later_one_with_other_series_is_made_meanwhile():
    renderer = Renderer(METRICS, ALL)
    early = [Sample(USED, Row("n", gpu), 1) for gpu in "ab"]
    late = [Sample(USED, Row("n", gpu), 2) for gpu in "bcd"]
    renderer.render(early).text()
    later = []

    def interrupted():
        yield early[0]
        later.append(renderer.render(late).text())
        yield early[1]

    assert renderer.render(interrupted()).text() == page(*early).text()
    assert later == [page(*late).text()]
    assert renderer.render(late).text() == page(*late).text()


def test_plain_text_is_ready_too_where_it_is_scraped_at_a_rhythm():
    renderer, ready = Renderer(METRICS, ALL), []
    for number in range(1, 46):
        seen = Watched(Sample(USED, Row("n", "g"), number))
        made = renderer.render(seen)
        if seen.times:
            ready.append(number)
        if number % 15 == 0:
            made.text()
    assert ready == [45]


values = st.none() | st.integers(0, 9)


@given(st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", "%s", "%"]), values, values, values), max_size=5)))
def test_page_after_page_is_what_a_fresh_renderer_makes(history):
    renderer = Renderer(METRICS, ALL)
    for rows in history:
        samples = []
        for name, used, seen, desc in rows:
            row = Row(name, name)
            samples += [Sample(USED, row, used), Sample(SEEN, row, seen, (str(seen),))]
            samples += [Sample(DESC, row, desc, (str(used or 0), str(desc or 0)))]
        assert renderer.render(samples).text() == page(*samples).text()


def test_series_that_are_gone_are_forgotten():
    renderer = Renderer(METRICS, ALL)
    for i in range(100):
        renderer.render([Sample(USED, Row("n", f"g{i}"), 1)]).text()
    assert len(renderer._last.lines) == 1


def pages_with_a_form_ready(asked_on, *, pages, monkeypatch):
    """Numbers of the pages on which the form was made before a scrape asked for it."""
    form, ready, renderer = Form(openmetrics=True, gzipped=True), [], Renderer(METRICS, ALL)
    number = 0
    monkeypatch.setattr(ExpositionPage, "make", lambda self, form: ready.append(number) or b"")
    for number in range(1, pages + 1):
        page = renderer.render([Sample(USED, Row("n", "g"), 1)])
        if number in asked_on:
            before = list(ready)
            page.gzipped(form.openmetrics)
            ready[:] = before
    return ready


def test_a_form_is_ready_on_the_page_on_which_it_is_due_and_not_made_in_between(monkeypatch):
    ready = pages_with_a_form_ready({15, 30, 45, 60}, pages=90, monkeypatch=monkeypatch)
    assert ready == [45, 60, 75]


def test_two_scrapers_of_one_rhythm_both_find_their_form_ready(monkeypatch):
    asked = {15, 18, 30, 33, 45, 48, 60, 63}
    ready = pages_with_a_form_ready(asked, pages=63, monkeypatch=monkeypatch)
    assert {33, 45, 48, 60, 63} <= set(ready)


def test_scrapers_that_ask_all_the_time_always_find_their_form_ready(monkeypatch):
    ready = pages_with_a_form_ready(set(range(1, 50)), pages=49, monkeypatch=monkeypatch)
    assert ready == list(range(3, 50))


def test_labels_that_hold_numbers_follow_the_numbers():
    renderer = Renderer(METRICS, ALL)
    for number in ("1", "2"):
        made = renderer.render([Sample(DESC, Row("50%"), 7, (number, "9"))]).text().decode()
        assert f'x_desc{{node="50%",context="{number}",data="9",zone="100%"}} 7\n' in made


def test_things_that_a_name_does_not_tell_apart_are_one_line_and_follow_the_numbers():
    summed = Metric(name="x_held", type="gauge", help="H.", unit="", scope="gpu", labels=same("node"), merge="sum")
    renderer = Renderer((USED, summed), ALL)
    for more in (1, 5):
        rows = [(Row("n", "g"), 2), (Row("n", "h"), 3 + more)]
        made = renderer.render([Sample(m, row, value) for row, value in rows for m in (USED, summed)]).text().decode()
        assert f'old_used{{nodeid="n",zone="vGPU"}} {(3 + more) / 2}\n' in made  # the highest, scaled
        assert f'x_held{{node="n"}} {5 + more}\n' in made
    unknown = [Sample(summed, Row("n", "g"), 2), Sample(summed, Row("n", "h"), None)]
    assert renderer.render(unknown).text() == b""
    assert b"x_held" in renderer.render(unknown[:1]).text()
