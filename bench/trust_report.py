"""Figures of the trust bench → the targets, the table on the terminal and the tables of docs/performance.md."""

from collections.abc import Iterator

from bench.trust_judge import Score, Tally, total
from bench.trust_measure import OOUR, OURS, PROMETHEUS, ZERO, TrustFigures
from bench.verdict import Result, Target, promises

_RECALL = 95.0  # percent
_WIDE = 84


def targets(f: TrustFigures) -> tuple[Target, ...]:
    """The targets: in every run, no busy or unproven GPU is called idle, and idle ones are found."""
    return tuple(
        target
        for run in f.runs(OURS)
        for target in (*_of_run(run, f.score(OURS, run)), *_of_mig(run, f.mig(OURS, run)))
    )


def _of_run(run: str, score: Score) -> Iterator[Target]:
    yield _target(f"{run}: precision of verdict idle", score.precision, 100.0)
    yield _target(f"{run}: precision of status idle", score.precision_status, 100.0)
    yield _target(f"{run}: idle GPUs found", score.recall, _RECALL)
    yield _target(f"{run}: idle tenants found", score.recall_tenants, _RECALL)


def _of_mig(run: str, score: Score) -> Iterator[Target]:
    if score.idle_gpus:
        yield _target(f"{run}: precision of verdict idle, MIG", score.precision, 100.0)
        yield _target(f"{run}: idle MIG instances found", score.recall, _RECALL)
        yield _target(f"{run}: idle tenants of MIG instances found", score.recall_tenants, _RECALL)


def _target(what: str, share: float, bound: float) -> Target:
    return Target(what=what, measured=100 * share, bound=bound, unit="%", at_least=True)


def table(f: TrustFigures) -> str:
    """Every kind on one line of the terminal, with what was wrong below it."""
    lines = [f"{'':{_WIDE}} {'truth':9} {'ours':>12} {'gpu-oour':>12} {'max == 0':>12}"]
    for kind, ours in _by_kind(f, OURS):
        others = " ".join(f"{_mark(_of(f, judge, kind)):>12}" for judge in (OOUR, ZERO))
        lines.append(f"{kind[:_WIDE]:{_WIDE}} {ours[0].truth:9} {_mark(ours):>12} {others}")
        for one in ours:
            lines += [f"      {one.run}: {said}" for said in one.wrong]
    return "\n".join([*lines, "", *_sums(f)])


def markdown(result: Result, f: TrustFigures) -> str:
    """The tables for the document."""
    return "\n".join(
        [
            f"{f.kinds} kinds, {f.subjects} judgements of GPUs, MIG instances and tenants.",
            "",
            *promises(result),
            "",
            *_sums(f),
            "",
            "| kind | truth | vgpuscope | gpu-oour's formula | max_over_time == 0 |",
            "|---|---|---|---|---|",
            *(_row(f, kind, ours) for kind, ours in _by_kind(f, OURS)),
        ]
    )


def _row(f: TrustFigures, kind: str, ours: list[Tally]) -> str:
    others = (_mark(_of(f, judge, kind)) for judge in (OOUR, ZERO))
    return f"| {' | '.join([kind, ours[0].truth, _mark(ours), *others])} |"


def _sums(f: TrustFigures) -> Iterator[str]:
    yield "| judge | samples | said idle | wrongly | precision | by status | idle GPUs found | idle tenants found |"
    yield "|---|---|---|---|---|---|---|---|"
    for judge, run in [*((OURS, run) for run in f.runs(OURS)), (OOUR, PROMETHEUS), (ZERO, PROMETHEUS)]:
        s = f.score(judge, run)
        tenants = f"{s.recall_tenants:.3f} of {s.idle_tenants}" if s.idle_tenants else "–"
        yield (
            f"| {judge} | {run} | {s.claimed} | {s.wrong} | {s.precision:.3f} | {s.precision_status:.3f} "
            f"| {s.recall:.3f} of {s.idle_gpus} | {tenants} |"
        )


def _mark(parts: list[Tally]) -> str:
    """✓, or the numbers of wrongly idle and of missed subjects; – if the judge has no answer for the kind."""
    if not parts:
        return "–"
    s = total(one.score for one in parts)
    wrong, missed = max(s.wrong, s.wrong_status), s.missed_gpus + s.missed_tenants
    if not wrong and not missed:
        return "✓"
    return "✗ " + ", ".join(f"{count} {what}" for count, what in ((wrong, "wrong"), (missed, "missed")) if count)


def _by_kind(f: TrustFigures, judge: str) -> Iterator[tuple[str, list[Tally]]]:
    for kind in dict.fromkeys(one.kind for one in f.tallies if one.judge == judge):
        yield kind, _of(f, judge, kind)


def _of(f: TrustFigures, judge: str, kind: str) -> list[Tally]:
    return [one for one in f.tallies if (one.judge, one.kind) == (judge, kind)]
