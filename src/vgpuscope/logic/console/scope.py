"""The one place where an answer is narrowed to some namespaces.

A caller sees the GPUs on which these namespaces have a tenant. Other tenants of such a GPU are added up, without names.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from vgpuscope.logic.console.moments import total
from vgpuscope.model.caller import Caller
from vgpuscope.model.cluster import Finding
from vgpuscope.model.console.gpus import GpuRow, Others, TenantRow
from vgpuscope.model.pending import PendingPod

Namespaces: TypeAlias = frozenset[str] | None  # None: all


def allowed(caller: Caller, asked: Sequence[str]) -> Namespaces:
    """The namespaces that a caller sees: those that it asks for, as far as it may see them."""
    wanted = frozenset(filter(None, asked))
    if caller.namespaces is None:
        return wanted or None
    own = frozenset(caller.namespaces)
    return own & wanted if wanted else own


def gpus_in(rows: Sequence[GpuRow], namespaces: Namespaces) -> Sequence[GpuRow]:
    """The GPUs of these namespaces, with their own tenants only."""
    if namespaces is None:
        return rows
    return [_narrowed(row, namespaces) for row in rows if any(one.namespace in namespaces for one in row.tenants)]


def pods_in(pods: Iterable[PendingPod], namespaces: Namespaces) -> list[PendingPod]:
    """The waiting pods of these namespaces."""
    return [pod for pod in pods if namespaces is None or pod.namespace in namespaces]


def findings_in(findings: Iterable[Finding], namespaces: Namespaces) -> list[Finding]:
    """The findings about pods of these namespaces; those about nodes and GPUs belong to nobody."""
    return [one for one in findings if namespaces is None or one.namespace in namespaces]


def _narrowed(row: GpuRow, namespaces: frozenset[str]) -> GpuRow:
    own = tuple([one for one in row.tenants if one.namespace in namespaces])
    if len(own) == len(row.tenants):
        return row
    return replace(row, tenants=own, others=_others([one for one in row.tenants if one.namespace not in namespaces]))


def _others(tenants: Sequence[TenantRow]) -> Others:
    return Others(
        tenants=len(tenants),
        memory_used=total([one.memory_used for one in tenants]),
        memory_allocated=total([one.memory_allocated for one in tenants]),
        cores_allocated=total([one.cores_allocated for one in tenants]),
    )
