"""Tracks of kept samples, held against plain arithmetic over the list of all (time, value) that were ever shown."""

import math
import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.promql import parse_condition
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.scrape_window import WANTED, Pages, SeriesFilter
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Hole, Reading, Stat, Tenant, Window

MIB = 1024 * 1024


class Target:
    """Pages and their reader, as one target has them."""

    def __init__(self, condition="{}"):
        self.pages = Pages(SeriesFilter(parse_condition(condition)), instance="n1:9394")
        self.reader = PageReader(wanted=WANTED, meaning=self.pages.meaning)

    def show(self, at, *lines):
        samples = self.reader.read("".join(f"{line}\n" for line in lines).encode())
        self.pages.take(at, samples)

    def tracks(self, begin, end, interval=10):
        return list(self.pages.tracks(begin=begin, end=end, interval=interval))

    def only(self, begin, end):
        (track,) = self.tracks(begin, end)
        return track


def about(value):
    """What a computed number may be, within rounding; for the field of a struct."""
    return pytest.approx(value)


def gpu(metric, value, uuid="GPU-1"):
    return f'{metric.name}{{node="n1",gpu_uuid="{uuid}"}} {value}'


def container(metric, value, *, pod="train", uid="u1", uuid="GPU-1"):
    labels = f'node="n1",namespace="ml",pod="{pod}",pod_uid="{uid}",container="main",gpu_uuid="{uuid}"'
    return f"{metric.name}{{{labels}}} {value}"


def dcgm(name, value, *, pod="", instance="", uuid="GPU-1"):
    mig = f',GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb"' if instance else ""
    labels = f'gpu="0",UUID="{uuid}",modelName="NVIDIA A100",Hostname="n1"{mig},namespace="ml",pod="{pod}"'
    return f"{name}{{{labels}}} {value}"


UTIL = "DCGM_FI_DEV_GPU_UTIL"

# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────────


def oracle(history, begin, end, *, scale=1.0, high=1.0):
    """history: (time, value as shown)."""
    inside = [value / scale for at, value in history if begin < at <= end]
    good = [value for value in inside if value >= 0 and not math.isinf(value) and value <= high * (1 + 1e-6)]
    if not inside:
        return None
    if not good:
        return Stat(dropped=len(inside))
    p95 = statistics.quantiles(good, n=100, method="inclusive")[94] if len(good) > 1 else good[0]
    return Stat(mean=statistics.fmean(good), max=max(good), p95=p95, samples=len(good), dropped=len(inside) - len(good))


def alike(ours, theirs):
    if theirs is None or ours is None:
        return ours is theirs
    close = [
        a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-15)
        for a, b in ((ours.mean, theirs.mean), (ours.max, theirs.max), (ours.p95, theirs.p95))
    ]
    return all(close) and (ours.samples, ours.dropped) == (theirs.samples, theirs.dropped)


shown = st.floats(0, 100) | st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 101.0, 2147483632.0, 808334905.0])
moments = st.tuples(
    st.floats(0.5, 60.0),  # after the last page
    st.none() | shown,  # None: not on the page
    st.sampled_from(["a", "a", "a", "b"]),  # who has the GPU
)


@given(st.lists(moments, max_size=60), st.floats(0, 600), st.floats(1, 600), st.none() | st.floats(0, 600))
@example([(1.0, 50.0, "a"), (1.0, math.nan, "a"), (1.0, 70.0, "b")], 0.0, 600.0, None)
def test_statistics_are_those_of_the_samples_in_the_window(steps, begin, seconds, forgotten):
    target, at = Target(), 0.0
    histories: dict[str, list] = {"a": [], "b": []}
    for pause, value, pod in steps:
        at += pause
        if value is not None:
            histories[pod].append((at, value))
            target.show(at, dcgm(UTIL, value, pod=pod))
        else:
            target.show(at)
        if forgotten is not None:
            target.pages.forget(at - forgotten)
    if forgotten is not None:
        begin = max(begin, at - forgotten)
    end = begin + seconds
    found = {track.tenant.pod: track for track in target.tracks(begin, end)}
    for pod, history in histories.items():
        inside = [time for time, _ in history if begin < time <= end]
        expected = oracle(history, begin, end, scale=100)
        if expected is None:
            assert pod not in found
            continue
        assert alike(found[pod].terms["gpu_util"], expected)
        assert (found[pod].first, found[pod].last) == (inside[0], inside[-1])


pages = st.lists(st.tuples(*(st.none() | st.floats(-0.1, 1.1) | st.just(math.nan) for _ in range(3))), max_size=40)


@given(pages)
def test_of_our_own_agent_mean_and_maximum_are_those_of_its_windows(rows):
    metrics = (m.GPU_UTILIZATION, m.GPU_UTILIZATION_MEAN, m.GPU_UTILIZATION_MAX)
    target = Target()
    for at, row in enumerate(rows, 1):
        target.show(at, *(gpu(metric, v) for metric, v in zip(metrics, row, strict=True) if v is not None))
    good = [[row[i] for row in rows if row[i] is not None and 0 <= row[i] <= 1 + 1e-6] for i in range(3)]
    said = [[row[i] for row in rows if row[i] is not None] for i in range(3)]
    if not any(said):
        assert target.tracks(0, 100) == []
        return
    stat = target.only(0, 100).terms["gpu_util"]
    mean = good[1] if len(good[1]) >= len(good[0]) else good[0]
    assert stat.mean == pytest.approx(sum(mean) / len(mean) if mean else None)
    assert stat.max == max((value for values in good for value in values), default=None)
    assert stat.samples == len(good[0])
    assert stat.dropped == max(len(s) - len(g) for s, g in zip(said, good, strict=True))


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_burst_between_two_scrapes_shows_in_the_maximum():
    target = Target()
    for at in (15, 30, 45):
        target.show(at, gpu(m.GPU_UTILIZATION, 0), gpu(m.GPU_UTILIZATION_MAX, 0.9 if at == 30 else 0))
    assert target.only(0, 60).terms["gpu_util"].max == 0.9


def test_a_gap_stays_a_gap():
    target = Target()
    for at in (15, 30, 120, 135):
        target.show(at, gpu(m.GPU_UTILIZATION, 1))
    stat = target.only(0, 150).terms["gpu_util"]
    assert (stat.mean, stat.samples) == (1.0, 4)


def test_a_handover_shows_in_first_and_last():
    target = Target()
    for at in (10, 20, 30, 40):
        target.show(at, dcgm(UTIL, 0 if at < 25 else 95, pod="old" if at < 25 else "new"))
    spans = {t.tenant.pod: (t.first, t.last, t.terms["gpu_util"].mean) for t in target.tracks(0, 50)}
    assert spans == {"old": (10, 20, 0.0), "new": (30, 40, 0.95)}


def test_a_tenants_own_part_is_marked_as_such():
    target = Target()
    target.show(1, container(m.CONTAINER_SM, 0.3), container(m.CONTAINER_SM_MAX, 0.8), gpu(m.GPU_UTILIZATION, 0.5))
    whole, own = sorted(target.tracks(0, 1), key=lambda track: track.own)
    assert (whole.own, whole.tenant, set(whole.terms)) == (False, None, {"gpu_util"})
    assert own.tenant == Tenant(namespace="ml", pod="train", container="main", pod_uid="u1")
    assert (own.terms["process_sm"].mean, own.terms["process_sm"].max) == (0.3, 0.8)


def test_a_container_that_holds_a_gpu_without_a_process_is_there_without_numbers():
    target = Target()
    target.show(1, container(m.CONTAINER_PROCESSES, 0))
    assert (target.only(0, 1).own, target.only(0, 1).terms) == (True, {})


def test_a_part_of_nobody_is_no_track():
    target = Target()
    target.show(1, f'{m.CONTAINER_SM.name}{{node="n1",container="x",gpu_uuid="GPU-1"}} 0.5')
    assert target.tracks(0, 1) == []


def test_index_and_model_come_from_the_info_metric_as_it_is_now():
    target = Target()
    for at, index in ((1, 0), (2, 3)):
        info = f'node="n1",gpu_uuid="GPU-1",gpu_index="{index}",model="NVIDIA A100"'
        target.show(at, f"{m.GPU_INFO.name}{{{info}}} 1", gpu(m.GPU_POWER, 80), container(m.CONTAINER_SM, 0))
    for track in target.tracks(0, 2):
        assert (track.gpu_index, track.model, track.hostname) == ("3", "NVIDIA A100", "n1")


def test_a_gpu_of_which_nothing_is_measured_is_there_all_the_same():
    target = Target()
    target.show(1, f'{m.GPU_INFO.name}{{node="n1",gpu_uuid="GPU-1",gpu_index="0",model="X"}} 1')
    assert target.only(0, 1).terms == {}


def test_a_lost_gpu_without_a_name_is_no_gpu():
    target = Target()
    target.show(1, f'{m.GPU_INFO.name}{{node="n1",gpu_uuid="unknown-3",gpu_index="3",model="unknown"}} 1')
    assert target.tracks(0, 1) == []


def test_mig_instances_are_tracks_of_their_own():
    target = Target()
    mig = 'node="n1",gpu_uuid="GPU-1",mig_uuid="MIG-1"'
    target.show(
        1,
        f'{m.MIG_INFO.name}{{{mig},mig_index="0",profile="1g.10gb",gpu_instance="7",compute_instance="0"}} 1',
        f"{m.MIG_MEMORY_USED.name}{{{mig}}} {MIB}",
        dcgm("other_metric", 1),
    )
    track = target.only(0, 1)
    assert (track.mig, track.profile, track.terms["mem_used"].mean) == ("MIG-1", "1g.10gb", MIB)


def test_dcgms_instances_go_by_their_number():
    target = Target()
    target.show(1, *(dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5 * n, instance=n, pod=f"p{n}") for n in (1, 2)))
    found = {(t.mig, t.profile, t.tenant.pod, t.terms["engine_active"].mean) for t in target.tracks(0, 1)}
    assert found == {("GI-1", "1g.10gb", "p1", 0.5), ("GI-2", "1g.10gb", "p2", 1.0)}


def test_all_memory_is_the_sum_of_its_parts_where_no_metric_gives_it():
    target = Target()
    parts = {"USED": 100, "FREE": 800, "RESERVED": 100}
    target.show(1, *(dcgm(f"DCGM_FI_DEV_FB_{part}", value) for part, value in parts.items()))
    terms = target.only(0, 1).terms
    assert (terms["mem_used"].mean, terms["mem_total"].mean) == (100 * MIB, 1000 * MIB)
    assert set(terms) == {"mem_used", "mem_total"}


def test_names_of_dcgm_on_a_page_of_our_own_do_not_count_twice():
    target = Target()
    target.show(1, gpu(m.GPU_UTILIZATION, 0.5), dcgm(UTIL, 50, pod="train"))
    assert [track.schema for track in target.tracks(0, 1)] == ["vgpuscope"]


def test_of_two_series_of_the_same_thing_the_higher_counts():
    target = Target()
    lines = [dcgm(UTIL, value).replace("{", f'{{err="{value}",') for value in (0, 95, 3)]
    target.show(1, *lines)
    assert target.only(0, 1).terms["gpu_util"] == Stat(mean=0.95, max=0.95, p95=0.95, samples=1, holes=())


def test_bursts_that_no_scrape_meets_are_in_the_mean_and_in_p95():
    """Four of 20 pages show a mean of 30 % of the time before them; all are made in a quiet moment."""
    target = Target()
    for at in range(1, 21):
        burst = 0.3 if at % 5 == 0 else 0.0
        target.show(
            at,
            container(m.CONTAINER_SM, 0.0),
            container(m.CONTAINER_SM_MEAN, burst),
            container(m.CONTAINER_SM_MAX, 1.0 if burst else 0.0),
        )
    stat = target.only(0, 20).terms["process_sm"]
    assert (stat.mean, stat.p95, stat.max) == (about(0.06), 0.3, 1.0)


def test_a_clock_that_was_set_back_leaves_no_samples_in_the_future():
    target = Target()
    for at in (100, 200, 150, 160):
        target.show(at, gpu(m.GPU_UTILIZATION, at / 1000))
    assert replace(target.only(0, 1000).terms["gpu_util"], holes=None) == Stat(
        mean=about((0.1 + 0.15 + 0.16) / 3), max=0.16, p95=about(0.159), samples=3
    )


def test_what_is_forgotten_is_gone_and_may_come_back():
    target = Target()
    info = f'{m.GPU_INFO.name}{{node="n1",gpu_uuid="GPU-1",gpu_index="0",model="X"}} 1'
    target.show(1, info, gpu(m.GPU_UTILIZATION, 0.5))
    target.pages.forget(10)
    assert not target.pages
    target.show(20, info, gpu(m.GPU_UTILIZATION, 0.6), gpu(m.GPU_POWER, 80))
    assert target.only(0, 20).model == "X"
    assert {name: stat.samples for name, stat in target.only(0, 20).terms.items()} == {"gpu_util": 1, "power": 1}


def test_memory_does_not_grow_with_time_and_what_is_to_be_kept_is_kept():
    target = Target()
    for at in range(300):
        target.show(at, gpu(m.GPU_UTILIZATION, 0.5))
        target.pages.forget(at - 40)
        assert target.only(at - 40, at).terms["gpu_util"].samples == min(at + 1, 40)
    (row,) = target.pages._rows.values()
    assert len(row.times) <= 60


@pytest.mark.parametrize(
    ("condition", "tenants"),
    [
        ("{}", {None, "train", "other", "dcgm"}),
        ('{pod!=""}', {None, "train", "other", "dcgm"}),
        ('{pod="train"}', {None, "train"}),  # GPUs of our agent name nobody, and are there whoever is asked for
        ('{instance="n1:9394",pod=~"t.*"}', {None, "train"}),
        ('{node="n2"}', set()),
    ],
)
def test_a_condition_chooses_what_is_kept(condition, tenants):
    agent, exporter = Target(condition), Target(condition)
    agent.show(1, gpu(m.GPU_UTILIZATION, 0.5), *(container(m.CONTAINER_SM, 0.5, pod=pod) for pod in ("train", "other")))
    exporter.show(1, dcgm(UTIL, 50, pod="dcgm"))
    found = [*agent.tracks(0, 2), *exporter.tracks(0, 2)]
    assert {track.tenant.pod if track.tenant else None for track in found} == tenants


def test_gpus_that_nobody_has_are_there_only_if_the_condition_lets_them():
    for condition, there in (("{}", 1), ('{pod!=""}', 0)):
        target = Target(condition)
        target.show(1, dcgm(UTIL, 50))
        assert len(target.tracks(0, 2)) == there


def test_a_target_that_shows_one_sample_for_ever_is_found_out():
    pages = Pages()
    reader = PageReader(wanted=WANTED, meaning=pages.meaning)

    def unchanged(at, sampled):
        return pages.unchanged_for(at, reader.read(f'{m.SAMPLE_TIME.name}{{node="n1"}} {sampled}\n'.encode()))

    assert [unchanged(100, 7), unchanged(115, 8), unchanged(130, 8), unchanged(145, 8), unchanged(160, 9)] == [
        0,
        0,
        15,
        30,
        0,
    ]
    assert pages.unchanged_for(500, []) == 0


# ── what was not seen, and what labels tell ──────────────────────────────────────────────────────────────────────


def test_pages_that_were_missed_are_a_hole():
    target = Target()
    for at in (*range(10, 110, 10), *range(400, 610, 10)):
        target.show(at, gpu(m.GPU_UTILIZATION, 0))
    assert target.tracks(0, 600)[0].terms["gpu_util"].holes == (Hole(100, 400),)


def test_a_target_that_is_known_for_a_part_of_the_window_leaves_its_beginning_unseen():
    target = Target()
    for at in range(300, 610, 10):
        target.show(at, gpu(m.GPU_UTILIZATION, 0))
    assert target.only(0, 600).terms["gpu_util"].holes == (Hole(0, 300),)


def test_samples_that_cannot_be_true_are_not_seen():
    target = Target()
    for at in range(10, 610, 10):
        target.show(at, gpu(m.GPU_UTILIZATION, "NaN" if 200 <= at < 400 else 0))
    assert target.only(0, 600).terms["gpu_util"].holes == (Hole(190, 400),)


@pytest.mark.parametrize(("values", "found"), [([0, 0.7], 0.7), ([0, 70], 0.7), ([0, 0], 0.0)])
def test_base_unit_names_are_understood_by_their_values(values, found):
    target = Target()
    for at, value in enumerate(values, 1):
        target.show(at, dcgm("DCGM_FI_DEV_GPU_UTIL_RATIO", value), dcgm("DCGM_FI_DEV_FB_USED_BYTES", 4e9))
    track = target.only(0, 10)
    assert track.terms["gpu_util"].max == pytest.approx(found)
    assert track.terms["mem_used"].mean == 4e9


def flag(metric, label, word, value):
    return gpu(metric, value).replace("}", f',{label}="{word}"}}')


def test_a_lost_gpu_is_known_to_be_lost_and_its_xids_are_those_of_the_window():
    target = Target()
    for at in range(10, 60, 10):
        lost = at >= 40
        target.show(
            at,
            gpu(m.GPU_UTILIZATION, 0),
            flag(m.GPU_HEALTH, "health", "ok", int(not lost)),
            flag(m.GPU_HEALTH, "health", "lost", int(lost)),
            flag(m.GPU_XIDS, "xid", "31", 4),  # since before the first page
            *([flag(m.GPU_XIDS, "xid", "79", 1)] if lost else []),
        )
    track = target.only(0, 60)
    assert (track.health, track.xids, track.target) == ("lost", (79,), "n1:9394")
    assert target.only(45, 60).xids == ()


def test_a_container_that_has_not_started_is_known_to_be_so_until_it_starts():
    target = Target()
    for at, started in ((10, False), (20, True)):
        state = container(m.CONTAINER_STATE, int(not started)).replace("}", ',state="not-started"}')
        active = container(m.CONTAINER_STATE, int(started)).replace("}", ',state="active"}')
        target.show(at, container(m.CONTAINER_PROCESSES, int(started)), state, active)
        assert target.only(0, at).state == ("active" if started else "not-started")


def test_a_counter_is_read_as_its_rate_also_over_a_new_beginning():
    target = Target()
    for at, joules in ((10, 1000), (20, 3000), (30, 500), (40, 2500)):  # 2,000 J in 10 s, a restart, 500, then 2,000
        target.show(at, gpu(m.GPU_UTILIZATION, 0), gpu(m.GPU_ENERGY, joules))
    assert target.only(0, 40).terms["energy"].mean == pytest.approx(4500 / 30)


def test_own_scrapes_call_an_idle_gpu_idle_within_the_window_and_three_scrapes():
    target, found = Target(), None
    for at in range(7, 1200, 15):  # whenever the first scrape was
        target.show(at, gpu(m.GPU_UTILIZATION, 0), gpu(m.GPU_UTILIZATION_MAX, 0))
        tracks = tuple(target.pages.tracks(begin=at - 600, end=at, interval=15))
        reading = Reading(window=Window(begin=at - 600, end=at, interval=15), tracks=tracks)
        (use,) = assemble(
            reading, previous={}, weights=ScoreWeights(), thresholds=Thresholds(), rules=VerdictRules(), owners={}
        )
        if use.verdict == "idle":
            found = at
            break
    assert 600 - 3 * 15 <= found - 7 <= 600 + 3 * 15
