"""Values of agents' metrics → what is known of each GPU, container and node."""

from collections.abc import Callable, Iterable, Mapping

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.console import THEIRS
from vgpuscope.model.console.facts import Facts, GpuFacts, LabelledValues, NodeFacts, TenantFacts, TenantKey


def folded(shown: Iterable[LabelledValues]) -> Facts:
    """What one or several agents show; a value that is not a number says nothing."""
    facts = Facts()
    versions: dict[str, str] = {}  # by scrape target
    places: dict[str, str] = {}
    for labels, values in shown:
        if m.SOURCE_UP.name in values:
            places[labels.get("instance", "")] = _label(labels, "node")
        if m.BUILD_INFO.name in values:
            versions[labels.get("instance", "")] = labels.get("version", "")
        if own := _taken(facts, labels, values):
            _keep(facts, labels, own)
    for instance, node in places.items():
        if version := versions.get(instance):
            _node(facts, node).version = version
    return facts


def _taken(facts: Facts, labels: Mapping[str, str], values: Mapping[str, float]) -> dict[str, float]:
    """Takes the values that have a place of their own; returns the others, which are kept by their metric."""
    rest: dict[str, float] = {}
    for name, value in values.items():
        if value != value:  # noqa: PLR0124 - NaN
            continue
        if (take := _TAKE.get(name)) is not None:
            take(facts, labels, value)
        elif name in THEIRS:
            _take_theirs(facts, name, labels, value)
        elif name != m.BUILD_INFO.name:
            rest[name] = value
    return rest


def _keep(facts: Facts, labels: Mapping[str, str], values: Mapping[str, float]) -> None:
    if "pod" in labels or "exported_pod" in labels:
        _tenant(facts, labels).values.update(values)
    elif "gpu_uuid" in labels:
        _gpu(facts, labels).values.update(values)


def together(several: Iterable[Facts]) -> Facts:
    """All facts; each GPU is in one of them."""
    whole = Facts()
    for facts in several:
        whole.gpus.update(facts.gpus)
        whole.tenants.update(facts.tenants)
        whole.nodes.update(facts.nodes)
    return whole


def _label(labels: Mapping[str, str], name: str) -> str:
    """A label of the agent; Prometheus renames it if the scrape target has a label of the same name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _gpu(facts: Facts, labels: Mapping[str, str]) -> GpuFacts:
    key = (labels.get("gpu_uuid", ""), labels.get("mig_uuid", ""))
    found = facts.gpus.get(key)
    if found is None:
        found = facts.gpus[key] = GpuFacts()
    return found


def _tenant(facts: Facts, labels: Mapping[str, str]) -> TenantFacts:
    key = TenantKey(
        labels.get("gpu_uuid", ""),
        labels.get("mig_uuid", ""),
        _label(labels, "namespace"),
        _label(labels, "pod"),
        _label(labels, "container"),
    )
    found = facts.tenants.get(key)
    if found is None:
        found = facts.tenants[key] = TenantFacts()
    return found


def _node(facts: Facts, node: str) -> NodeFacts:
    found = facts.nodes.get(node)
    if found is None:
        found = facts.nodes[node] = NodeFacts()
    return found


def _take_theirs(facts: Facts, name: str, labels: Mapping[str, str], value: float) -> None:
    """A value of dcgm-exporter, which counts only where the agent does not report the same."""
    if uuid := labels.get("UUID"):
        _gpu(facts, {"gpu_uuid": uuid}).values.setdefault(THEIRS[name].name, value)


def _take_mode(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    if value == 1:
        _gpu(facts, labels).mode = labels.get("mode")


def _take_ledger(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    _gpu(facts, labels).ledger[labels.get("owner", "")] = value


def _take_identity(facts: Facts, labels: Mapping[str, str], value: float) -> None:  # noqa: ARG001 - always 1
    _gpu(facts, labels).info = dict(labels)


def _take_throttle(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    if value == 1:
        gpu = _gpu(facts, labels)
        gpu.throttle = (*gpu.throttle, labels.get("reason", ""))


def _take_xid(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    if labels.get("xid", "").isdecimal():
        _gpu(facts, labels).xids[int(labels["xid"])] = int(value)


def _take_state(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    if value == 1:
        _tenant(facts, labels).state = labels.get("state")


def _take_holding(facts: Facts, labels: Mapping[str, str], value: float) -> None:  # noqa: ARG001 - always 1
    tenant = _tenant(facts, labels)
    tenant.mode, tenant.allocated = labels.get("mode"), labels.get("allocated") == "true"


def _take_up(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    _node(facts, _label(labels, "node")).up[labels.get("source", "")] = value == 1


def _take_absent(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    _node(facts, _label(labels, "node")).absent[labels.get("source", "")] = value == 1


def _take_age(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    _node(facts, _label(labels, "node")).ages[labels.get("source", "")] = value


def _take_sampled(facts: Facts, labels: Mapping[str, str], value: float) -> None:
    _node(facts, _label(labels, "node")).sampled = value


_TAKE: dict[str, Callable[[Facts, Mapping[str, str], float], None]] = {
    m.GPU_MODE.name: _take_mode,
    m.GPU_MEMORY_LEDGER.name: _take_ledger,
    m.MIG_MEMORY_LEDGER.name: _take_ledger,
    m.GPU_INFO.name: _take_identity,
    m.MIG_INFO.name: _take_identity,
    m.GPU_THROTTLE.name: _take_throttle,
    m.GPU_XIDS.name: _take_xid,
    m.CONTAINER_STATE.name: _take_state,
    m.CONTAINER_INFO.name: _take_holding,
    m.SAMPLE_TIME.name: _take_sampled,
    m.SOURCE_UP.name: _take_up,
    m.SOURCE_ABSENT.name: _take_absent,
    m.SOURCE_AGE_SECONDS.name: _take_age,
}
