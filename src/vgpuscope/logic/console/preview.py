"""The same reading judged by two sets of rules → whose score, status or verdict differs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vgpuscope.logic.console.moments import short
from vgpuscope.model.analysis import STATUSES, VERDICTS, GpuUse, TenantUse
from vgpuscope.model.console.settings import Judgement, Preview, PreviewRow

MOST_ROWS = 500  # that are listed


def compared(before: Sequence[GpuUse], after: Sequence[GpuUse], *, changes: Mapping[str, Any]) -> Preview:
    """What would change; both are of the same GPUs in the same order."""
    gpus = [(old, new) for old, new in zip(before, after, strict=True) if _differs(old, new)]
    tenants = [pair for old, new in zip(before, after, strict=True) for pair in _tenants(old, new)]
    rows = [*(_gpu_row(old, new) for old, new in gpus), *(_tenant_row(*found) for found in tenants)]
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


def _differs(old: GpuUse | TenantUse, new: GpuUse | TenantUse) -> bool:
    """Whether the conclusions differ; a score alone is a number and no conclusion."""
    return (old.status, old.verdict, old.use_class) != (new.status, new.verdict, new.use_class)


def _tenants(old: GpuUse, new: GpuUse) -> Iterator[tuple[GpuUse, TenantUse, TenantUse]]:
    for was, now in zip(old.tenants, new.tenants, strict=True):
        if _differs(was, now):
            yield new, was, now


def _gpu_row(old: GpuUse, new: GpuUse) -> PreviewRow:
    return PreviewRow(
        gpu_id=new.gpu_id,
        mig=new.mig or None,
        node=new.hostname or None,
        namespace=None,
        pod=None,
        container=None,
        before=_judgement(old),
        after=_judgement(new),
    )


def _tenant_row(gpu: GpuUse, old: TenantUse, new: TenantUse) -> PreviewRow:
    who = new.tenant
    return PreviewRow(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig or None,
        node=gpu.hostname or None,
        namespace=who.namespace,
        pod=who.pod,
        container=who.container or None,
        before=_judgement(old),
        after=_judgement(new),
    )


def _judgement(one: GpuUse | TenantUse) -> Judgement:
    return Judgement(score=short(one.score.value, 1), status=one.status, verdict=one.verdict, use_class=one.use_class)


def _counts(words: Iterable[Any], order: Sequence[Any]) -> dict[Any, int]:
    found = Counter(words)
    return {word: found[word] for word in order}
