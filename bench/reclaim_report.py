"""Figures of the reclaim bench → the targets, the lines on the terminal and the tables of docs/performance.md."""

from bench.reclaim_measure import ReclaimFigures
from bench.verdict import Result, Target, place, promises


def targets(f: ReclaimFigures) -> tuple[Target, ...]:
    trust, tick = f.trust, f.tick
    return (
        Target(what="busy, unproven or gone workloads that were acted on", measured=trust.wrong, bound=0, unit=""),
        Target(what="workloads without a UID that were acted on", measured=trust.without_uid, bound=0, unit=""),
        Target(
            what="idle workloads that were acted on", measured=100 * trust.recall, bound=95, unit="%", at_least=True
        ),
        Target(what=f"slowest tick of {tick.workloads:,} workloads, CPU", measured=tick.worst, bound=1, unit="s"),
        Target(
            what="median tick / one look at each verdict", measured=tick.median / tick.lower_bound, bound=30, unit="×"
        ),
        Target(what="memory of the machine", measured=tick.resident_bytes / 1e6, bound=200, unit="MB"),
    )


def table(f: ReclaimFigures) -> str:
    """What was wrong, by kind."""
    wrong = [f"  wrong: {kind}" for kind in f.trust.wrong_kinds]
    missed = [f"  missed: {kind}" for kind in f.trust.missed_kinds]
    return "\n".join([_trust(f), *wrong, *missed])


def markdown(result: Result, f: ReclaimFigures) -> str:
    """The tables for the document."""
    tick = f.tick
    ticks = ", ".join(f"{one:.2f}" for one in tick.ticks)
    return "\n".join(
        [
            place(result, tick.speed),
            "",
            *promises(result),
            "",
            _trust(f),
            "",
            f"Ticks of {tick.workloads:,} workloads, {tick.cases:,} of them with a case at the end: {ticks} s of CPU; "
            f"{tick.turned:.2f} s when all of them turn round. One look at each verdict takes "
            f"{tick.lower_bound:.3f} s.",
            "",
            f"The largest batch, {tick.moves:,} cases with as many audit entries, is stored in SQLite in "
            f"{tick.batch_seconds:.1f} s. A whole frame of the past takes {tick.frame_seconds:.1f} s and "
            f"{tick.frame_bytes / 1e6:.1f} MB.",
        ]
    )


def _trust(f: ReclaimFigures) -> str:
    t = f.trust
    return (
        f"{t.workloads} workloads, {t.idle} of them provably idle and with a UID: {t.found} were acted on. There were "
        f"{t.calls} calls. Of all others {t.acted - t.found} were acted on, {t.wrong} of them wrongly."
    )
