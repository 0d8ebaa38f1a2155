"""The day before the demo began: what the analyzer's store says of it is what the workloads did."""

import asyncio

import pytest

from tests.store.fleets import points
from vgpuscope.logic.fleet.assembly import assemble, remembered
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Reading, Window
from vgpuscope.sim.jobs import HOUR
from vgpuscope.sim.kinds import PLANS, WHOLE_GPUS
from vgpuscope.sim.past import Minutes, Samples, remember
from vgpuscope.sim.world import World
from vgpuscope.store.opening import open_store

BEGAN = 1_700_000_000.0
WINDOW, INTERVAL = 60.0, 2.0
KEPT = 365 * 24 * HOUR


class Store:
    """The store as an analyzer finds it that starts three seconds after the nodes."""

    def __init__(self, file):
        self.file = str(file)
        self.last = self._do(self._fill)

    def points(self, **asked):
        span = {"begin": BEGAN - 25 * HOUR, "end": BEGAN + 60, "limit": 100_000}
        return self._do(lambda history: points(history, **span, **asked))

    def _do(self, work):
        async def run():
            store = open_store(self.file, keep_results=KEPT, keep_hours=KEPT, keep_days=KEPT)
            try:
                return await work(store.results)
            finally:
                await store.close()

        return asyncio.run(run())

    async def _fill(self, history):
        minutes = Minutes(seed=1, began=BEGAN, seconds=WINDOW, interval=INTERVAL)
        await remember(history, seed=1, began=BEGAN, clock=lambda: BEGAN + 3, minutes=minutes, window=WINDOW)
        return await history.latest()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store") / "history.db")


def tenants(analysis):
    return {one.tenant.pod: one for gpu in analysis.gpus for one in gpu.tenants}


def jobs():
    return [job for plan in PLANS for job in plan.jobs]


def test_the_history_has_a_point_for_every_hour_of_the_day(store):
    hours = store.points(step="hour", namespace="research", pod="notebook-carol")
    assert len({point.time for point in hours}) >= 24
    assert sum(point.seconds for point in hours) == pytest.approx(24 * HOUR + 3, abs=1)


def test_a_notebook_that_stopped_nine_hours_ago_was_busy_before_and_idle_since(store):
    points = store.points(step="analysis", namespace="research", pod="notebook-carol")
    for point in points:
        worked = point.time <= BEGAN - 9 * HOUR
        assert point.verdict == ("in_use" if worked else "idle"), point.time - BEGAN


def test_whoever_is_idle_now_has_been_so_since_it_stopped_working(store):
    found = tenants(store.last)
    stopped = {job.name: BEGAN - job.before.ended for job in jobs() if job.before}
    assert len(stopped) == 5
    assert {name: found[name].idle_since for name in stopped} == pytest.approx(stopped, abs=1)


def test_a_free_gpu_is_idle_since_its_last_pod_left(store):
    [job] = WHOLE_GPUS.past
    left = BEGAN + job.timeline.first + job.timeline.life
    free = next(gpu for gpu in store.last.gpus if gpu.hostname == "whole-b" and gpu.gpu_index == "3")
    assert not free.tenants
    assert free.idle_since == pytest.approx(left, abs=1)
    assert {point.verdict for point in store.points(step="analysis", namespace="ml-team", pod=job.name)} == {"in_use"}


def trains_without_end(job):
    stopped_at_times = 3 in job.gpus and job.hami  # by the more important pod on that GPU
    return job.shape and job.shape.__qualname__.startswith("training") and not job.restarts and not stopped_at_times


def test_no_pod_that_worked_all_day_was_ever_idle(store):
    worked = {job.name for job in jobs() if trains_without_end(job)}
    points = [point for space in ("ml-team", "batch", "serving") for point in store.points(step="day", namespace=space)]
    seen = {point.pod: point.by_verdict for point in points if point.pod in worked}
    assert len(seen) >= 7
    assert not {pod for pod, seconds in seen.items() if seconds.get("idle")}


def test_pods_came_and_went_through_the_day(store):
    names = {point.pod for point in store.points(step="day", namespace="batch")}
    assert len([name for name in names if name.startswith("finetune-")]) > 10
    assert len([name for name in names if name.startswith("ci-gpu-")]) > 5


def test_mig_instances_with_profiling_metrics_are_judged_and_those_without_say_what_is_missing(store):
    found = tenants(store.last)
    assert found["train-small-0"].verdict == "in_use"
    assert found["hami-mig-0"].use_class == "idle-held"
    assert found["dev-gina"].verdict == "unknown"
    assert found["dev-gina"].evidence.reasons[0] == "VERDICT_MIG_NO_SIGNAL"


# --- from the remembered minute to real scrapes ----------------------------------------------------------------------


def scraped(*, first, last, nodes):
    """Tracks as the first real scrapes of these nodes give them."""
    samples = Samples()
    for plan in PLANS:
        if plan.name in nodes:
            world, at = World(plan, seed=1, now=first, began=BEGAN), first
            while at <= last:
                world.advance(at)
                samples.add(world, at=at)
                at += INTERVAL
    return samples


def judged(minutes, samples, *, end, previous=()):
    window = Window(begin=end - WINDOW, end=end, interval=INTERVAL)
    real = tuple(samples.tracks(window))
    tracks = (*real, *minutes.tracks(window, real))
    gpus = assemble(
        Reading(window=window, tracks=tracks),
        previous=remembered(previous),
        weights=ScoreWeights(),
        thresholds=Thresholds(),
        rules=VerdictRules(),
        owners={},
    )
    return {gpu.hostname for gpu in gpus}, {one.tenant.pod: one for gpu in gpus for one in gpu.tenants}


def test_the_first_real_analysis_goes_on_with_who_was_idle_since_when(store):
    minutes = Minutes(seed=1, began=BEGAN, seconds=WINDOW, interval=INTERVAL)
    nodes = {plan.name for plan in PLANS}
    for end in (BEGAN + 9, BEGAN + 30, BEGAN + 59):
        samples = scraped(first=BEGAN + 6.5, last=end, nodes=nodes)
        _, found = judged(minutes, samples, end=end, previous=store.last.gpus)
        assert found["notebook-carol"].idle_since == pytest.approx(BEGAN - 9 * HOUR, abs=1)
        assert found["notebook-alice"].verdict == "idle"
        assert found["serve-llama-7d9f8b6c5-x2x9k"].verdict == "in_use"
        assert found["pretrain-0"].verdict == "in_use"


def test_a_node_whose_agent_never_answers_is_not_remembered_for_long():
    minutes = Minutes(seed=1, began=BEGAN, seconds=WINDOW, interval=INTERVAL)
    answering = {plan.name for plan in PLANS} - {"sick-e"}
    samples = scraped(first=BEGAN + 6.5, last=BEGAN + 190, nodes=answering)
    hosts, _ = judged(minutes, samples, end=BEGAN + 9)
    assert "sick-e" in hosts
    hosts, _ = judged(minutes, samples, end=BEGAN + 185)
    assert hosts == answering


def test_an_agent_that_dies_later_is_not_replaced_by_what_is_remembered():
    minutes = Minutes(seed=1, began=BEGAN, seconds=WINDOW, interval=INTERVAL)
    samples = scraped(first=BEGAN + 6.5, last=BEGAN + 10, nodes={"whole-b"})
    judged(minutes, samples, end=BEGAN + 10)
    _, found = judged(minutes, samples, end=BEGAN + 45)
    assert "notebook-carol" not in found


def test_each_hour_of_the_day_has_the_gpus_that_the_demo_shows_also_those_that_only_the_scheduler_knows(store):
    by_hour: dict[float, set[str]] = {}
    for point in store.points(step="hour"):
        if not point.pod:
            by_hour.setdefault(point.time, set()).add(point.gpu_id)
    shown = {gpu.gpu_id for gpu in store.last.gpus}
    assert len(shown) == sum(len(plan.gpus) for plan in PLANS) + 2  # of the node that has no agent
    assert all(gpus == shown for gpus in by_hour.values())


def test_the_last_hour_of_the_day_has_what_the_scheduler_shows_when_the_demo_begins(store):
    """Otherwise a chart of the hour in which the demo begins shows a fraction of what is allocated."""
    *_, tenant, _ = store.points(step="analysis", namespace="research", pod="hami-mig-0")
    assert tenant.memory_allocated == 9728 << 20
    *_, gpu = [p for p in store.points(step="analysis") if p.hostname == "worn-f" and p.memory_allocated]
    assert gpu.time == tenant.time
    assert gpu.memory_allocated == (24_576 + 20_480) << 20  # of its two pods that do not run
