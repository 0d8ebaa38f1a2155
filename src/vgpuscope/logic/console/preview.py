"""The same reading judged by two sets of rules → whose score, status or verdict differs."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap, zip_longest
from typing import Any, TypeVar

from vgpuscope.logic.console.moments import short
from vgpuscope.model.analysis import STATUSES, VERDICTS, GpuUse, TenantUse
from vgpuscope.model.console.settings import Judgement, Preview, PreviewRow

MOST_ROWS = 500  # that are listed

_Use = TypeVar("_Use", GpuUse, TenantUse)


def compared(before: Sequence[GpuUse], after: Sequence[GpuUse], *, changes: Mapping[str, Any]) -> Preview:
    """What would change. A tenant or GPU that only one set of rules counts differs, too."""
    pairs = list(_paired(before, after, key=lambda gpu: (gpu.gpu_id, gpu.mig)))
    gpus = [pair for pair in pairs if _differs(*pair)]
    tenants = [
        (gpu, *pair)
        for old, new in pairs
        if (gpu := new or old)
        for pair in _paired(old.tenants if old else (), new.tenants if new else (), key=lambda use: use.tenant)
        if _differs(*pair)
    ]
    rows = [*starmap(_gpu_row, gpus), *starmap(_tenant_row, tenants)]
    return Preview(
        changes=dict(changes),
        gpus=len(before),
        tenants=sum(len(gpu.tenants) for gpu in before),
        gpus_changed=len(gpus),
        tenants_changed=len(tenants),
        by_status_before=_counts((gpu.status for gpu in before), STATUSES),
        by_status_after=_counts((gpu.status for gpu in after), STATUSES),
        by_verdict_before=_counts((gpu.verdict for gpu in before), VERDICTS),
        by_verdict_after=_counts((gpu.verdict for gpu in after), VERDICTS),
        rows=tuple(rows[:MOST_ROWS]),
    )


def _paired(
    before: Iterable[_Use], after: Iterable[_Use], *, key: Callable[[_Use], Hashable]
) -> Iterator[tuple[_Use | None, _Use | None]]:
    """What has one key, with one set of rules and the other; None where only one of them counts it."""
    found: dict[Hashable, tuple[list[_Use], list[_Use]]] = {}
    for at, uses in enumerate((before, after)):
        for use in uses:
            found.setdefault(key(use), ([], []))[at].append(use)
    for old, new in found.values():
        yield from zip_longest(old, new)


def _differs(old: GpuUse | TenantUse | None, new: GpuUse | TenantUse | None) -> bool:
    """Whether the conclusions differ; a score alone is a number and no conclusion."""
    if old is None or new is None:
        return old is not new
    return (old.status, old.verdict, old.use_class) != (new.status, new.verdict, new.use_class)


def _gpu_row(old: GpuUse | None, new: GpuUse | None) -> PreviewRow:
    gpu = new or old
    assert gpu is not None
    return PreviewRow(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig or None,
        node=gpu.hostname or None,
        namespace=None,
        pod=None,
        container=None,
        before=_judgement(old),
        after=_judgement(new),
    )


def _tenant_row(gpu: GpuUse, old: TenantUse | None, new: TenantUse | None) -> PreviewRow:
    use = new or old
    assert use is not None
    return PreviewRow(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig or None,
        node=gpu.hostname or None,
        namespace=use.tenant.namespace,
        pod=use.tenant.pod,
        container=use.tenant.container or None,
        before=_judgement(old),
        after=_judgement(new),
    )


def _judgement(use: GpuUse | TenantUse | None) -> Judgement | None:
    if use is None:
        return None
    return Judgement(score=short(use.score.value, 1), status=use.status, verdict=use.verdict, use_class=use.use_class)


def _counts(words: Iterable[Any], order: Sequence[Any]) -> dict[Any, int]:
    found = Counter(words)
    return {word: found[word] for word in order}
