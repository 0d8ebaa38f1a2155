"""Where the public answers keep names, units and counts: the few facts of their shapes that the auditor needs."""

from vgpuscope.catalog.figure import Figure

# Of a shape in the OpenAPI documents: which of its fields name the subject of the numbers in it.
KEYS: dict[str, dict[str, str]] = {
    "GpuRow": {"gpu": "gpu_id", "mig": "mig", "node": "node"},
    "ResultRow": {"gpu": "gpu_id", "mig": "mig", "node": "hostname"},
    "TenantRow": {"namespace": "namespace", "pod": "pod", "container": "container"},
    "TenantResult": {"namespace": "namespace", "pod": "pod", "container": "container"},
    "HolderRow": {"namespace": "namespace", "pod": "pod", "container": "container"},
    "GpuDetail": {"gpu": "gpu.gpu_id", "mig": "gpu.mig", "node": "gpu.node"},
    "NodeDetail": {"node": "node.name"},
    "NamespaceDetail": {"namespace": "namespace.name"},
    "WorkloadDetail": {"namespace": "workload.namespace", "pod": "workload.pod"},
    "WorkloadOnGpu": {"gpu": "gpu_id", "mig": "mig", "node": "node"},
    "InstanceRow": {"mig": "mig"},
    "NodeRow": {"node": "name"},
    "NamespaceRow": {"namespace": "name"},
    "WasteBy": {"namespace": "namespace"},
    "QuotaRow": {"resource": "resource"},
    "WorkloadList": {"group": "group_by"},
    "WorkloadRow": {"namespace": "namespace", "pod": "pod", "owner": "owner"},
    "PendingRow": {"namespace": "namespace", "pod": "pod"},
    "PendingPod": {"namespace": "namespace", "pod": "pod"},
    "Waste": {"group": "group_by"},
    "WasteRow": {"namespace": "namespace", "pod": "pod", "owner": "owner", "node": "node", "model": "model"},
    "FreeCapacity": {"vendor": "vendor", "type": "type"},
    "Capacity": {"vendor": "vendor", "type": "type"},
    "NodeLedger": {"node": "name"},
    "DeviceLedger": {"gpu": "device.id"},
    "Holder": {"gpu": "device", "namespace": "namespace", "pod": "pod", "container": "container"},
    "OfferLedger": {"resource": "offer.resource"},
    "FindingCount": {"finding": "kind", "reason": "reason"},
    "CaseRow": {"case": "id"},
    "NodeSnapshot": {"node": "node"},
    "GpuUsage": {"gpu": "gpu.uuid"},
    "MigUsage": {"gpu": "gpu", "mig": "mig"},
    "Ledger": {"gpu": "gpu", "mig": "mig"},
    "MigInstance": {"mig": "uuid"},
    "ContainerUsage": {
        "namespace": "key.namespace",
        "pod": "key.pod",
        "container": "key.container",
        "gpu": "gpu",
        "mig": "mig",
    },
    "PodUsage": {"namespace": "namespace", "pod": "pod", "gpu": "gpu"},
    "Vgpu": {"namespace": "key.namespace", "pod": "key.pod", "container": "key.container", "gpu": "gpu"},
    "HostUse": {"namespace": "key.namespace", "pod": "key.pod", "container": "key.container"},
}
# Maps whose keys are names, not the parts of a count.
NAMED = {"Stats.by_namespace": "namespace"}
# What is not of now, or not about the subject that is named around it.
LEFT_OUT = frozenset(
    {
        "Overview.before",
        "GpuDetail.former",
        "Scheduling.ended",
        "GpuDetail.queries",
        "WorkloadDetail.reasons",
    }
)
# Labels of metrics, by the part of a subject that they name.
LABELS: dict[str, str] = {
    "gpu_id": "gpu",
    "gpu_uuid": "gpu",
    "mig": "mig",
    "mig_uuid": "mig",
    "node": "node",
    "hostname": "node",
    "namespace": "namespace",
    "pod": "pod",
    "container": "container",
    "vendor": "vendor",
    "type": "type",
    "resource": "resource",
    "case": "case",
}
# Labels that name a part of a count; all others only describe.
PARTS = frozenset(
    {"verdict", "class", "use_class", "status", "state", "reason", "code", "owner", "kind", "mode", "minutes"}
)
# Fields by the names that they had in earlier versions.
FORMER: dict[str, str] = {
    "Figures.gpus_idle_held": "fleet.idle_held",
    "Figures.gpus_unknown": "fleet.unknown",
}
# Fields in a unit that their name does not tell.
_PERCENT = frozenset(
    {
        "ResultRow.gpu_util",
        "ResultRow.mem_copy",
        "TenantResult.gpu_util",
    }
)
_MHZ = frozenset({"ResultRow.sm_clock"})
# Of a figure: how far a place can be off because it is rounded, in the base unit. Counts are exact.
_MARGINS: dict[str, float] = {
    "ratio": 0.0006,
    "bytes": 0.06 * 2**20,
    "watts": 0.06,
    "joules": 1.0,
    "hertz": 0.6e6,
    "seconds": 0.06,
    "gpu_hours": 0.00006,
    "percent": 0.6,
    "cores": 0.0006,
    "celsius": 0.6,
    "bytes_per_second": 1.0,
}
_EXACT = frozenset({"count"})
_GROUPED = frozenset({"fleet.waste_rows", "fleet.workloads"})  # counts of rows: of tenants, pods, owners, …


def scale_of(place: str, figure: Figure) -> float:
    """What a number at a place is multiplied by to be in its figure's base unit; by the place's name."""
    name = place.rpartition(".")[2]
    percent = name.endswith("_percent") or (name == place and name.endswith("_utilization"))  # gpu-oour's metrics
    if figure.unit == "ratio" and (percent or place in _PERCENT):
        return 0.01
    if figure.unit == "percent" and name.endswith("_ratio"):
        return 100.0
    if figure.unit == "bytes" and name.endswith("_mb"):
        return float(2**20)
    if figure.unit == "hertz" and (place in _MHZ or name.endswith("_mhz")):
        return 1e6
    return 1.0


def margin_of(figure: Figure) -> float:
    """How far rounding can move a number of a figure."""
    if figure.quantity in _EXACT:
        return 0.0
    return _MARGINS.get(figure.unit, 0.06)


def subject_of(figure: Figure, names: dict[str, str]) -> tuple[str, ...] | None:
    """Of what a number is, from the names around it; None: they do not say it, so it cannot be compared."""
    if figure.code in _GROUPED:
        return (names["group"], names.get("since", "")) if names.get("group") else None
    subject = _subject(figure, names)
    past = figure.time == "integral" or figure.subject == "waste"  # of a tenant's hours also the memory that it held
    return (*subject, names.get("since", "")) if subject is not None and past else subject


def _subject(figure: Figure, names: dict[str, str]) -> tuple[str, ...] | None:
    def all_of(*parts: str) -> tuple[str, ...] | None:
        found = tuple(names.get(part, "") for part in parts)
        return found if all(found) else None

    match figure.subject:
        case "fleet":
            return ()
        case "node":
            return all_of("node")
        case "namespace":  # "": tenants whose pods are in no list
            return (names["namespace"],) if "namespace" in names else None
        case "gpu":
            return (*gpu, names.get("mig", "")) if (gpu := all_of("gpu")) else None
        case "tenant":
            holder = all_of("gpu", "namespace", "pod")
            return (holder[0], names.get("mig", ""), *holder[1:], names.get("container", "")) if holder else None
        case "pod":
            return (*pod, names.get("gpu", "")) if (pod := all_of("namespace", "pod")) else None
        case "quota":
            return all_of("namespace", "resource")
        case "resource":
            return all_of("node", "resource")
        case "case":
            return all_of("case")
        case "workload":
            return _workload(names)
        case "waste":
            parts = ("group", "namespace", "pod", "owner", "node", "model")
            return tuple(names.get(part, "") for part in parts) if names.get("group") else None
        case "capacity":
            level = (names.get("node", ""), names.get("vendor", ""), names.get("type", ""))
            return (*level, names["finding"], names.get("reason", "")) if "finding" in names else level
        case "service" | "source":
            return all_of("service")
        case _:
            return None


def _workload(names: dict[str, str]) -> tuple[str, ...] | None:
    if not names.get("namespace"):
        return None
    group = names.get("group") or ("pod" if names.get("pod") else "")
    if group == "namespace":
        return group, names["namespace"], ""
    name = names.get("pod") if group == "pod" else names.get("owner")
    return (group, names["namespace"], name) if name else None
