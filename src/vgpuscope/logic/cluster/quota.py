"""What each namespace uses of its device quotas, updated pod by pod."""

from collections.abc import Iterable

from vgpuscope.knowledge.vendors import BY_WORD, VENDORS
from vgpuscope.logic.device_use import counts, device_uses
from vgpuscope.model.allocation import PodState, QuotaState
from vgpuscope.model.cluster import NamespaceLedger, QuotaLimit, QuotaUse
from vgpuscope.model.quantity import MIB

_FACTORS = {
    name: max(1, (vendor.memory_unit or MIB) // MIB) if name == vendor.memory else 1
    for vendor in VENDORS
    for name in vendor.quotas
}


class NamespaceUse:
    """The devices that pods of one namespace hold, by vendor: bytes, cores and devices."""

    __slots__ = ("pods", "vendors")

    def __init__(self) -> None:
        self.pods = 0
        self.vendors: dict[str, list[int]] = {}

    def add(self, pod: PodState) -> None:
        self._change(pod, 1)

    def remove(self, pod: PodState) -> None:
        self._change(pod, -1)

    def _change(self, pod: PodState, sign: int) -> None:
        if not counts(pod):
            return
        self.pods += sign
        for device_use in device_uses(pod):
            sums = self.vendors.setdefault(device_use.vendor, [0, 0, 0])
            sums[0] += sign * device_use.memory
            sums[1] += sign * device_use.cores
            sums[2] += sign
            if not sums[2]:
                del self.vendors[device_use.vendor]


def settle_namespace(name: str, *, use: NamespaceUse, quotas: Iterable[QuotaState]) -> NamespaceLedger:
    """The namespace's ledger; the order of its quotas makes no difference."""
    used = _used(use)
    limits: dict[str, list[QuotaLimit]] = {}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        for resource, limit in quota.hard.items():
            if resource in _FACTORS:  # Kubernetes itself enforces quotas on the number of devices
                limits.setdefault(resource, []).append(QuotaLimit(name=quota.name, limit=limit))
    return NamespaceLedger(
        name=name,
        pods=use.pods,
        quotas=tuple(
            QuotaUse(
                resource=resource,
                used=used.get(resource, 0),
                limits=tuple(limits.get(resource, ())),
                factor=_FACTORS[resource],
            )
            for resource in sorted(used.keys() | limits.keys())
        ),
    )


def _used(use: NamespaceUse) -> dict[str, int]:
    used: dict[str, int] = {}
    for word, (memory, cores, _) in use.vendors.items():
        vendor = BY_WORD.get(word)
        if vendor and vendor.memory:
            used[vendor.memory] = memory // MIB
        if vendor and vendor.core:
            used[vendor.core] = cores
    return used
