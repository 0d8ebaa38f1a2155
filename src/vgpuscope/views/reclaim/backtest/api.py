"""A back-test as the API sends it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, Protocol

from vgpuscope.model.backtest import Backtest, Outcome, PastCoverage, PolicyChange, Unapplied
from vgpuscope.model.quantity import Seconds, UnixTime

# What the stored past does not tell, in English and Chinese.
UNAPPLIED: Mapping[Unapplied, tuple[str, str]] = {
    "annotations": (
        "Annotations, priority classes and the creation of pods are not stored: they held nothing back.",
        "历史中没有注解、优先级和 Pod 的创建时间：它们没有阻止任何操作。",
    ),
    "activity": (
        "Signals beyond the GPU are not stored: they held nothing back.",
        "历史中没有 GPU 以外的活动信号：它们没有阻止任何操作。",
    ),
    "model": (
        "Opinions of a language model are not stored: they held nothing back.",
        "历史中没有语言模型的意见：它没有阻止任何操作。",
    ),
    "approval": (
        "Every action counts as approved at once.",
        "每次操作都视为立即获得批准。",
    ),
    "notices": (
        "Every notice counts as delivered at once.",
        "每条通知都视为立即送达。",
    ),
    "hand": (
        "What people did (snooze, exempt, stop) is not replayed.",
        "人工操作（推迟、豁免、停止）不会回放。",
    ),
    "scale": (
        "Owners are not stored: an owner counts pod by pod.",
        "历史中没有所属控制器：按 Pod 逐个计算。",
    ),
    "no_uid": (
        "Some workloads have no UID: nothing is ever taken from them.",
        "部分工作负载没有 UID：不会收回它们的 GPU。",
    ),
}
_ALWAYS: tuple[Unapplied, ...] = ("annotations", "activity", "model", "hand")


class BacktestResult(Protocol):
    """What a replay found."""

    @property
    def begin(self) -> UnixTime: ...
    @property
    def end(self) -> UnixTime: ...
    @property
    def step(self) -> int: ...
    @property
    def until(self) -> UnixTime: ...
    @property
    def complete(self) -> bool: ...
    @property
    def coverage(self) -> PastCoverage: ...
    @property
    def assumed(self) -> tuple[Unapplied, ...]: ...
    def outcomes(self, sees: Collection[str] | None) -> tuple[Outcome, Outcome | None]: ...


def backtest_answer(
    found: BacktestResult,
    *,
    busy_within: Seconds,
    changed: tuple[PolicyChange, ...],
    sees: Collection[str] | None,
    source: Literal["stored", "prometheus"] = "stored",
) -> Backtest:
    """The answer for a caller that sees these namespaces; None: all."""
    current, proposed = found.outcomes(sees)
    codes = tuple(_codes(found.assumed, current, proposed))
    return Backtest(
        source=source,
        begin=found.begin,
        end=found.end,
        complete=found.complete,
        replayed_until=found.until,
        busy_within=busy_within,
        step=found.step,
        coverage=found.coverage,
        not_applied=tuple(UNAPPLIED[code][0] for code in codes),
        not_applied_codes=codes,
        changed=changed,
        current=current,
        proposed=proposed,
    )


def _codes(assumed: tuple[Unapplied, ...], *outcomes: Outcome | None) -> Iterator[Unapplied]:
    yield from _ALWAYS
    yield from assumed
    if any(outcome is not None and "no_uid" in outcome.held_back for outcome in outcomes):
        yield "no_uid"
