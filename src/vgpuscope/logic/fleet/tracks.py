"""A table of series → tracks: one for each tenancy of a GPU or MIG instance, in our terms."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.knowledge.series_labels import SeriesIdentity
from vgpuscope.logic.fleet.pace import common
from vgpuscope.logic.fleet.series_table import MAX, MEAN, P95, SAMPLES, WIDTH, Table, WindowSeries
from vgpuscope.model.analysis import SIGNALS, Stat, Term, Track
from vgpuscope.model.quantity import Seconds, UnixTime

_STEADY = {"mem_total", "power_limit"}  # constant within a window, so the maximum is also the mean

OFF_THE_BUS = 79  # XID

Stats = dict[str, Stat]


def tracks(table: Table) -> Iterator[Track]:
    """One track for each tenancy, even if it has several series (two exporters, or a restarted one)."""
    tenancies: dict[tuple[object, ...], list[_Piece]] = defaultdict(list)
    columns, intervals = _Columns(table), table.intervals
    found = [columns.stats(seen) for seen in table.seen]
    for seen, stats in zip(table.seen, found, strict=True):
        if stats or seen.count:
            where = seen.place
            jobs = (seen.scope[1],)
            piece = _Piece(where, stats, seen.first, seen.last, intervals.get(seen.scope), seen.target, jobs)
            tenancies[where.gpu_id, where.mig, where.tenant].append(piece)
    for pieces in tenancies.values():
        yield _track(table, pieces[0] if len(pieces) == 1 else _joined(pieces))


def refused(table: Table) -> dict[str, int]:
    """Excluded terms and how often: they have impossible values that could not be examined."""
    found: Counter[str] = Counter()
    for raw in table.marked:
        seen = table.marked_series.get(raw)
        if seen is not None and table.mixed(seen):
            found.update(table.group.quantities[index].term for index in table.marked[raw] - seen.fixed.keys())
    return dict(found)


class _Piece(Struct, frozen=True, gc=False):
    place: SeriesIdentity
    stats: Stats
    first: UnixTime | None
    last: UnixTime | None
    interval: Seconds | None
    target: str
    jobs: tuple[str, ...]
    contested: bool = False


class _Columns:
    """How to read the rows of one table: which columns came in, and whether their counts are reliable."""

    def __init__(self, table: Table) -> None:
        self._marked = table.marked
        states = table.states
        # quantity, part, offset; whether it has a count, whether that is reliable, and whether it has only a mean
        self._read: list[tuple[int, str, int, bool, bool, bool]] = []
        for index, quantity in enumerate(table.group.quantities):
            at = index * WIDTH
            there = [s for s in (MEAN, MAX, P95) if at + s in states]
            values = {states[at + s] for s in there}
            # a count of all samples would make statistics of only some samples look reliable
            sound = not ("partial" in values and states.get(at + SAMPLES) == "whole")
            if there:
                counted = bool(quantity.samples)
                self._read.append((index, quantity.part, at, counted, sound, there == [MEAN] and not counted))

    def stats(self, seen: WindowSeries) -> Stats:
        """The quantities of a series; impossible values are counted as dropped and not used."""
        found: Stats = {}
        marked = self._marked.get(seen.raw) if self._marked else None
        cells, usual, holes = seen.cells, seen.count or 1, seen.holes
        for index, part, at, counted, sound, only_mean in self._read:
            if only_mean and not marked:  # the usual case
                if (mean := cells[at]) is None:
                    continue
                stat = Stat(mean=mean, samples=usual if sound else 0)
            elif marked and index in marked:
                stat = seen.fixed.get(index) or Stat(dropped=int(cells[at + SAMPLES] or usual))
                stat = replace(stat, holes=holes.get(index))
            else:
                mean, top, tail, count, _ = cells[at : at + WIDTH]
                if mean is None and top is None and tail is None:
                    continue
                if mean is None and part in _STEADY:
                    mean = top
                samples = int(count or 0) if counted else usual
                stat = Stat(mean=mean, max=top, p95=tail, samples=samples if sound else 0, holes=holes.get(index))
            if part not in found or found[part].samples == 0:
                found[part] = stat
        add_total(found)
        return found


def add_total(stats: Stats) -> None:
    """Add up total memory from its parts if no metric gives it; if a part is unknown, the total is unknown."""
    used, free, reserved = stats.get("mem_used"), stats.pop("mem_free", None), stats.pop("mem_reserved", None)
    if "mem_total" in stats or used is None or free is None or used.mean is None or free.mean is None:
        return
    whole = used.mean + free.mean + ((reserved.mean if reserved else None) or 0.0)
    stats["mem_total"] = Stat(mean=whole, max=whole, samples=min(used.samples, free.samples))


def completed(where: SeriesIdentity, own: Mapping[str, str], gpu: Mapping[str, str]) -> SeriesIdentity:
    """The identity with the labels of info metrics where it has none: its own, and those of its GPU."""
    return where._replace(
        profile=where.profile or own.get("profile", ""),
        gpu_index=where.gpu_index or gpu.get("gpu_index", ""),
        model=where.model or gpu.get("model", ""),
    )


def _track(table: Table, piece: _Piece) -> Track:
    where, more = piece.place, table.more(piece.place)
    return Track(
        **completed(where, more, more)._asdict(),
        schema=table.group.schema,
        own=table.group.kind == "container",
        terms=cast("dict[Term, Stat]", piece.stats),
        first=piece.first,
        last=piece.last,
        interval=piece.interval,
        gpu_instance=more.get("gpu_instance", ""),
        target=piece.target,
        jobs=piece.jobs,
        contested=piece.contested,
        health=_health(table, where),
        xids=tuple(sorted(table.xids.get(where.gpu_id, ()))),
        state=table.state(where) if table.group.kind == "container" else "",
    )


def _health(table: Table, where: SeriesIdentity) -> str:
    """As reported by the exporter; if it only shows XIDs, "lost" for a GPU that has fallen off the bus."""
    if table.group.state_label == "health":
        return table.state(where)
    return "lost" if OFF_THE_BUS in table.xids.get(where.gpu_id, ()) else ""


def _whole(chain: list[_Piece]) -> list[_Piece]:
    """The pieces that cover most of the time of all: a restarted exporter has a part of it under each address."""
    spans = [(piece, piece.first, piece.last) for piece in chain]
    timed = [(piece, first, last) for piece, first, last in spans if first is not None and last is not None]
    if not timed:
        return []
    most = _COVERED * (max(last for *_, last in timed) - min(first for _, first, _ in timed))
    return [piece for piece, first, last in timed if last - first >= most]


def contradict(sides: Sequence[tuple[str, Mapping[str, Stat] | Mapping[Term, Stat]]]) -> bool:
    """Whether two targets say of the same GPU and time that it worked and that it did not.

    Samples of two honest exporters are not of the same moments, so their means of a GPU that works by turns differ.
    """
    for signal in SIGNALS:
        means = [(stats[signal].mean, target) for target, stats in sides if signal in stats]
        known = [(mean, target) for mean, target in means if mean is not None]
        if known and (high := max(known))[0] - (low := min(known))[0] > _APART and high[1] != low[1]:
            return True
    return False


_APART = 0.5
_COVERED = 0.75


# ── several series of one tenancy ────────────────────────────────────────────────────────────────────────────────


def _joined(pieces: list[_Piece]) -> _Piece:
    """One piece from several. Samples of pieces that overlap in time are counted once; in doubt, pieces overlap."""
    chains, timed = _chains(pieces), [piece for piece in pieces if piece.last is not None]
    firsts = [piece.first for piece in timed if piece.first is not None]
    parts = dict.fromkeys(part for piece in pieces for part in piece.stats)
    return replace(
        pieces[0],
        stats={part: _sum([[p.stats[part] for p in chain if part in p.stats] for chain in chains]) for part in parts},
        first=min(firsts) if firsts and len(firsts) == len(timed) else None,
        last=max((piece.last for piece in timed if piece.last is not None), default=None),
        interval=min((piece.interval for piece in pieces if piece.interval), default=None),
        jobs=tuple(dict.fromkeys(job for piece in pieces for job in piece.jobs)),
        contested=any(contradict([(piece.target, piece.stats) for piece in _whole(chain)]) for chain in chains),
    )


def _chains(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Groups of pieces that overlap in time."""
    spans = sorted(((p.first, p.last, i) for i, p in enumerate(pieces) if p.first is not None and p.last is not None))
    chains = [[piece for piece in pieces if piece.first is None or piece.last is None]]
    until = float("inf") if chains[0] else float("-inf")
    for first, last, index in spans:
        if first > until:
            chains.append([])
        chains[-1].append(pieces[index])
        until = max(until, last)
    return chains


def _sum(chains: list[list[Stat]]) -> Stat:
    """Statistics of consecutive chains; of several p95 values only the highest is certain not to be too low."""
    best = [_best(chain) for chain in chains if chain]
    weight = sum(stat.samples for stat in best if stat.mean is not None)
    means = [stat.mean * stat.samples for stat in best if stat.mean is not None]
    most, tail = _highest(best)
    return Stat(
        max=most,
        p95=tail,
        mean=sum(means) / weight if weight else next((stat.mean for stat in best if stat.mean is not None), None),
        samples=sum(stat.samples for stat in best),
        dropped=sum(stat.dropped for stat in best),
        holes=reduce(common, (stat.holes for chain in chains for stat in chain)),
    )


def _best(chain: list[Stat]) -> Stat:
    """Statistics of the same time. Of means by about as many samples the highest is used: the work did happen."""
    most, tail = _highest(chain)
    samples = max(stat.samples for stat in chain)
    near = [stat for stat in chain if 2 * stat.samples >= samples]
    return replace(max(near, key=lambda s: (-1.0 if s.mean is None else s.mean, s.samples)), max=most, p95=tail)


def _highest(stats: list[Stat]) -> tuple[float | None, float | None]:
    """Maximum and p95."""
    return (
        max((s.max for s in stats if s.max is not None), default=None),
        max((s.p95 for s in stats if s.p95 is not None), default=None),
    )
