"""Mistakes as they are made in the field: each makes one kind of number wrong in a running fleet."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.audit.stage import PlannedSource
from vgpuscope.logic.console import history, overview, workloads
from vgpuscope.logic.console.overview import by_gpu
from vgpuscope.logic.fleet.waste import WasteLedger
from vgpuscope.model.analysis import SIGNALS, Reading, Track
from vgpuscope.services.analyzer.console import answers, api
from vgpuscope.services.analyzer.metrics_page import MetricsPage
from vgpuscope.store.results import rows as results_rows
from vgpuscope.views.console import tables
from vgpuscope.views.fleet.results import results

Patch = pytest.MonkeyPatch


def count_without_instances(patch: Patch) -> None:
    """GPUs that MIG divides count once where their instances are meant."""
    usual = overview.figures
    patch.setattr(
        overview, "figures", lambda rows, **more: replace(usual(rows, **more), gpus_or_instances=len(by_gpu(rows)))
    )


def sum_over_pods(patch: Patch) -> None:
    """A GPU counts once for each tenant."""
    _each(patch, "namespace_rows", lambda row: replace(row, gpus=row.tenants))


def capped(patch: Patch) -> None:
    """A node shows one GPU at most."""
    _each(patch, "node_rows", lambda row: replace(row, gpus=row.gpus and min(row.gpus, 1)))


def wrong_unit(patch: Patch) -> None:
    """Memory in MiB under a name of bytes."""
    _each(patch, "namespace_rows", lambda row: replace(row, memory_used=row.memory_used and row.memory_used // 2**20))


def power_of_each_row(patch: Patch) -> None:
    """The power of a node is counted twice."""
    _each(patch, "node_rows", lambda row: replace(row, power=row.power and 2 * row.power))


def another_filter_in_csv(patch: Patch) -> None:
    """The CSV leaves out the rows that are idle."""
    usual = tables.csv_list

    def shorter(rows: Any, *more: Any) -> Any:
        return usual([row for row in rows if getattr(row, "verdict", "") != "idle"], *more)

    patch.setattr(tables, "csv_list", shorter)


def hours_twice(patch: Patch) -> None:
    """Every hour of the history counts twice."""
    usual = WasteLedger.add

    def twice(self: WasteLedger, *points: Any) -> None:
        usual(self, *points)
        usual(self, *points)

    patch.setattr(WasteLedger, "add", twice)


def everybody_in_the_scope(patch: Patch) -> None:
    """A caller of one namespace gets the tenants of all."""
    usual = answers.overview_of
    patch.setattr(api, "overview_of", lambda view, scope: usual(view, None))


def waiting_pods_counted_with_others(patch: Patch) -> None:
    """One waiting pod too many."""
    usual = overview.figures

    def more(rows: Any, **of: Any) -> Any:
        made = usual(rows, **of)
        return replace(made, pending_pods=None if made.pending_pods is None else made.pending_pods + 1)

    patch.setattr(overview, "figures", more)


def stale_metrics(patch: Patch) -> None:
    """The page of metrics keeps the analysis before, while every GPU has freed half of its memory."""

    async def nothing(self: MetricsPage, analysis: object) -> None:
        """As if the page were up to date."""

    usual = PlannedSource.read

    async def read(self: PlannedSource, **window: float) -> Reading:
        found = await usual(self, **window)
        return replace(found, tracks=tuple(map(_with_half, found.tracks)))

    patch.setattr(MetricsPage, "show", nothing)
    patch.setattr(PlannedSource, "read", read)


def _with_half(track: Track) -> Track:
    memory = track.terms.get("mem_used")
    if memory is None or memory.mean is None:
        return track
    return replace(track, terms=track.terms | {"mem_used": replace(memory, mean=memory.mean / 2)})


def unweighted_steps(patch: Patch) -> None:
    """The longer the step of a chart, the more memory."""
    usual = history.SeriesFold.columns

    def columns(self: Any) -> Any:
        step = self._grid.step
        factor = max(1.0, step / 3600)
        return tuple(
            replace(one, values=tuple(None if value is None else value * factor for value in one.values))
            if one.quantity in {"memory_used", "power"}
            else one
            for one in usual(self)
        )

    patch.setattr(history.SeriesFold, "columns", columns)


def unlimited_classes(patch: Patch) -> None:
    """In long steps, a class of the chart has GPUs beyond those that there are."""
    usual = history.ClassFold.columns

    def columns(self: Any, by: Any) -> Any:
        found, left_out = usual(self, by)
        if self._grid.step <= 3600:
            return found, left_out
        first, *rest = found
        more = tuple(None if value is None else value + 30 for value in first.gpus)
        return (replace(first, gpus=more), *rest), left_out

    patch.setattr(history.ClassFold, "columns", columns)


def lost_tenant(patch: Patch) -> None:
    """A workload that is idle is in no list of workloads."""
    usual = workloads.workload_rows
    patch.setattr(
        answers,
        "workload_rows",
        lambda *rows, **of: tuple(one for one in usual(*rows, **of) if one.verdict != "idle"),
    )


def energy_of_long_steps(patch: Patch) -> None:
    """In long steps, the energy is that of other time than the power."""
    usual = history.SeriesFold.columns

    def columns(self: Any) -> Any:
        factor = 1.3 if self._grid.step >= 3600 else 1.0
        return tuple(
            replace(one, values=tuple(None if value is None else value * factor for value in one.values))
            if one.quantity == "energy"
            else one
            for one in usual(self)
        )

    patch.setattr(history.SeriesFold, "columns", columns)


def peaks_stored_as_means(patch: Patch) -> None:
    """GPUs are busy in bursts, and of each burst the mean is stored."""
    usual = results_rows._gpu
    patch.setattr(PlannedSource, "read", _in_bursts())
    patch.setattr(
        results_rows,
        "_gpu",
        lambda *gpu, **power: (row := usual(*gpu, **power))._replace(util_max=row.util),
    )


def peaks_drawn_as_means(patch: Patch) -> None:
    """GPUs are busy in bursts, and the chart of peaks is one of means."""
    usual = history.SeriesFold.columns

    def columns(self: Any) -> Any:
        found = {one.quantity: one for one in usual(self)}
        if {"use", "use_max"} <= found.keys():
            found["use_max"] = replace(found["use_max"], values=found["use"].values)
        return tuple(found.values())

    patch.setattr(PlannedSource, "read", _in_bursts())
    patch.setattr(history.SeriesFold, "columns", columns)


def _in_bursts() -> Any:
    """A reading in which every peak is twice the mean."""
    usual = PlannedSource.read

    async def read(self: PlannedSource, **window: float) -> Reading:
        found = await usual(self, **window)
        return replace(found, tracks=tuple(map(_with_burst, found.tracks)))

    return read


def _with_burst(track: Track) -> Track:
    bursts = {
        term: replace(stat, max=min(1.0, 2 * stat.mean))
        for term, stat in track.terms.items()
        if term in SIGNALS and stat.mean
    }
    return replace(track, terms=track.terms | bursts)


def waste_of_everybody(patch: Patch) -> None:
    """The idle hours of all namespaces, whoever asks."""
    usual = WasteLedger.waste
    patch.setattr(WasteLedger, "waste", lambda self, **of: usual(self, **(of | {"sees": None})))


def waste_totals_of_everybody(patch: Patch) -> None:
    """The rows are the caller's, and the totals are those of all namespaces."""
    usual = WasteLedger.waste

    def waste(self: WasteLedger, **of: Any) -> Any:
        found, whole = usual(self, **of), usual(self, **(of | {"sees": None}))
        return replace(found, gpu_hours=whole.gpu_hours, held_gpu_hours=whole.held_gpu_hours)

    patch.setattr(WasteLedger, "waste", waste)


def low_without_a_status(patch: Patch) -> None:
    """A score of which nothing follows makes a GPU low."""
    patch.setattr(results, "below", lambda unit, threshold: unit.score is not None and unit.score < threshold)


def free_gpus_without_a_verdict(patch: Patch) -> None:
    """A GPU that no pod holds is called unallocated, also if nothing is known of it."""
    patch.setattr(overview, "gpu_class", lambda row: row.use_class if row.held else "unallocated")


def free_gpus_without_a_verdict_in_charts(patch: Patch) -> None:
    """The same in charts."""
    usual = history.ClassFold._count

    def count(self: Any, piece: Any, name: str, part: float) -> None:
        point = piece.point
        if not point.pod and not point.held_seconds:
            piece = piece._replace(point=replace(point, by_class={"idle": point.seconds}))
        usual(self, piece, name, part)

    patch.setattr(history.ClassFold, "_count", count)


def _each(patch: Patch, name: str, change: Callable[[Any], Any]) -> None:
    usual = getattr(answers, name)
    patch.setattr(answers, name, lambda *rows, **of: tuple(map(change, usual(*rows, **of))))


# Each mistake, and what finds it: a comparison with the plan, or a check of the auditor.
MISTAKES: dict[Callable[[Patch], None], str] = {
    count_without_instances: "plan: fleet: gpus_or_instances",
    sum_over_pods: "plan: namespace",
    capped: "sums",
    wrong_unit: "plan: namespace",
    power_of_each_row: "sums",
    another_filter_in_csv: "rows",
    hours_twice: "waste-groups",
    everybody_in_the_scope: "plan: caller of",
    waiting_pods_counted_with_others: "rows",
    stale_metrics: "same",
    unweighted_steps: "steps",
    unlimited_classes: "classes",
    lost_tenant: "rows",
    energy_of_long_steps: "energies",
    peaks_stored_as_means: "stored",
    peaks_drawn_as_means: "stored",
    waste_of_everybody: "scope",
    waste_totals_of_everybody: "scope",
    low_without_a_status: "low",
    free_gpus_without_a_verdict: "rows",
    free_gpus_without_a_verdict_in_charts: "classes",
}
