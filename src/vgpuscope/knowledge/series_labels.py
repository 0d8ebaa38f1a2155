"""What the labels of a series say: which GPU, MIG instance and tenant it is about."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vgpuscope.knowledge.exporters import Group
from vgpuscope.model.analysis import Tenant

EXPORTED = "exported_"  # prefix that Prometheus adds to a label if the target has a label of the same name
TENANT_LABELS = ("namespace", "pod", "container", "pod_uid")
_DISPLACED = tuple(EXPORTED + name for name in TENANT_LABELS)
_HOSTS = (f"{EXPORTED}node", "Hostname", "hostname", "kubernetes_node", "node", "nodename")
_EXPORTERS = ("dcgm-exporter", "vgpuscope")


class SeriesIdentity(NamedTuple):
    """What a series' labels say."""

    gpu_id: str
    mig: str
    profile: str
    gpu_index: str
    hostname: str
    model: str
    tenant: Tenant | None


def place(
    group: Group, labels: Mapping[str, str], *, displaced: bool, words: dict[str, str] | None = None
) -> SeriesIdentity | None:
    """GPU, MIG instance and tenant of a series; None: it names no GPU.

    `displaced`: see `displaced_jobs`. `words` holds repeated texts, so that each is stored once.
    """
    words = {} if words is None else words
    gpu_id = labels.get(group.uuid) or labels.get(f"{EXPORTED}{group.uuid}", "")
    if not gpu_id:
        return None
    same, host = words.setdefault, _hostname(labels)
    if group.schema == "vgpuscope":
        tenant = _tenant(labels, words, displaced=displaced) if group.kind == "container" else None
        return SeriesIdentity(gpu_id, labels.get("mig_uuid", ""), "", "", same(host, host), "", tenant)
    instance, profile = labels.get("GPU_I_ID", ""), labels.get("GPU_I_PROFILE", "")
    index, model = labels.get("gpu", ""), labels.get("modelName", "")
    return SeriesIdentity(
        gpu_id,
        f"GI-{instance}" if instance else "",
        same(profile, profile),
        same(index, index),
        same(host, host),
        same(model, model),
        _tenant(labels, words, displaced=displaced),
    )


def displaced_jobs(all_labels: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Jobs scraped with honor_labels off: there `pod` is the exporter's pod, and `exported_pod` the tenant's.

    One such series is enough for its job. Other series of the job that have no `exported_pod` belong to free GPUs.
    """
    return frozenset(labels.get("job", "") for labels in all_labels if any(name in labels for name in _DISPLACED))


def _tenant(labels: Mapping[str, str], words: dict[str, str], *, displaced: bool) -> Tenant | None:
    namespace, pod, container, uid = (labels.get(name, "") for name in (_DISPLACED if displaced else TENANT_LABELS))
    uid = uid or labels.get("pod_uid", "")  # targets rarely have this label, and then it is not renamed
    if not (pod or uid) or (not displaced and _is_exporter(labels)):
        return None
    same = words.setdefault
    return Tenant(namespace=same(namespace, namespace), pod=pod, container=same(container, container), pod_uid=uid)


def _is_exporter(labels: Mapping[str, str]) -> bool:
    """Whether `pod` is the exporter's own: honor_labels is off, and no GPU has a tenant that would show it."""
    pod, container, job = labels.get("pod", ""), labels.get("container", ""), labels.get("job", "").rpartition("/")[2]
    if job and (container == job or pod.startswith(f"{job}-")):
        return True
    return any(name in pod or name in container for name in _EXPORTERS)


def _hostname(labels: Mapping[str, str]) -> str:
    own = labels.get("pod", "")  # a Hostname that is the exporter's pod is ignored, if another label has the node
    found = ""
    for name in _HOSTS:
        host = labels.get(name)
        if host and host != own:
            return host
        found = found or host or ""
    return found
