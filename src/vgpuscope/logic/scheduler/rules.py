"""A pod's selection of GPUs and its policies, prepared for the check of many GPUs."""

from collections.abc import Callable, Sequence

from vgpuscope.logic.scheduler.node_info import EVEN, GpuRow, gpu_score
from vgpuscope.model.placement import GpuPolicy, GpuSelection, NodePolicy, Policies

Key = tuple[float, ...]


class Rules:
    """Which GPUs a pod may have, and in which order they are tried."""

    __slots__ = (
        "_kinds",
        "_only",
        "_order",
        "_weights",
        "any_kind",
        "any_uuid",
        "gpu_policy",
        "mutex",
        "node_policy",
        "numa_bind",
        "order_key",
        "selection",
        "topology",
    )

    def __init__(
        self, selection: GpuSelection, policies: Policies, *, kinds: frozenset[tuple[str, str]] | None = None
    ) -> None:
        """`kinds` are the only types and modes that are allowed, whatever the selection says; None: all."""
        self.selection = selection
        self.node_policy: NodePolicy = selection.node_policy or policies.node
        self.gpu_policy: tuple[GpuPolicy, ...] = selection.gpu_policy or policies.gpu
        self.mutex = "mutex" in self.gpu_policy
        self.topology = "topology-aware" in self.gpu_policy
        self.numa_bind = selection.numa_bind
        self.any_kind = kinds is None and not (selection.use_types or selection.avoid_types or selection.mode)
        self.any_uuid = not (selection.use_uuids or selection.avoid_uuids)
        self._only = kinds
        self._kinds: dict[tuple[str, str], bool] = {}  # type and mode of a GPU → whether the pod allows them
        self._weights = EVEN if selection.weights == EVEN else selection.weights
        # A text, because its hash is computed only once for all nodes
        self.order_key = f"{self.gpu_policy} {selection.numa_bind} {selection.weights}"
        self._order = _order(self.gpu_policy, numa_bind=selection.numa_bind)

    def allows_kind(self, kind: tuple[str, str]) -> bool:
        """Whether type and mode of a GPU are allowed; clusters have few of them."""
        found = self._kinds.get(kind)
        if found is None:
            wanted = self._only is None or kind in self._only
            found = self._kinds[kind] = wanted and self.allows_type(kind[0]) and self.allows_mode(kind[1])
        return found

    def allows_type(self, type_: str) -> bool:
        name, chosen = type_.lower(), self.selection
        wanted = not chosen.use_types or any(part in name for part in chosen.use_types)
        return wanted and not any(part in name for part in chosen.avoid_types)

    def allows_mode(self, mode: str) -> bool:
        return not self.selection.mode or mode in self.selection.mode

    def allows_uuid(self, uuid: str) -> bool:
        chosen = self.selection
        return (not chosen.use_uuids or uuid in chosen.use_uuids) and uuid not in chosen.avoid_uuids

    def ordered(self, rows: Sequence[GpuRow]) -> list[int]:
        """The positions of the GPUs in the order in which they are tried.

        Ties are broken by the higher index, then by the UUID that sorts last, which no policy compares.
        """
        weights, key = self._weights, self._order
        keys = [(*key(row[3], row[9], gpu_score(row, weights)), -row[10]) for row in rows]
        if len(set(keys)) == len(keys):
            return sorted(range(len(rows)), key=keys.__getitem__)
        last = sorted(range(len(rows)), key=lambda at: rows[at][2], reverse=True)
        return sorted(last, key=keys.__getitem__)


def _order(policy: tuple[GpuPolicy, ...], *, numa_bind: bool) -> Callable[[int, int, float], Key]:
    """HAMi's comparison of GPUs by used slots, NUMA node and score: one policy compares in a fixed way, a chain in the
    order of its names.
    """
    if len(policy) > 1 or policy == ("numa",):
        return _chained(policy, numa_bind=numa_bind)
    name = policy[0] if policy else "spread"
    if name == "mutex":
        return lambda used, numa, _: (used, -numa)
    if name == "binpack":
        return (lambda _, numa, score: (numa, -score)) if numa_bind else (lambda _, numa, score: (-score, -numa))
    return (lambda _, numa, score: (-numa, score)) if numa_bind else (lambda _, numa, score: (score, -numa))


def _chained(policy: tuple[GpuPolicy, ...], *, numa_bind: bool) -> Callable[[int, int, float], Key]:
    """Mutex and topology-aware are no keys of the order; without any key GPUs are spread."""
    names = [name for name in policy if name in {"binpack", "spread", "numa"}] or ["spread"]
    if numa_bind:
        names = ["numa", *(name for name in names if name != "numa")]

    def key(_: int, numa: int, score: float) -> Key:
        values: dict[str, float] = {"binpack": -score, "spread": score, "numa": -numa}
        return tuple(values[name] for name in names)

    return key
