"""Whose a sample is. Every label of every family is an attribute of one of these rows; '' means: has none.

A row holds identity only. What changes while the thing stays the same thing is a value, or an extra label of a
one-hot metric, never part of a row.
"""

from typing import NamedTuple


class GpuRow(NamedTuple):
    """A physical GPU."""

    node: str
    gpu_uuid: str
    gpu_index: str
    model: str
    serial: str = ""
    minor: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    hami_type: str = ""  # HAMi's monitor always puts NVIDIA- before the model
    device: str = ""  # nvidia0
    namespace: str = ""  # of the one container that has the whole GPU
    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    whole: str = ""  # not cut into MIG instances: device-wide memory is the GPU's own


class MigRow(NamedTuple):
    """A MIG instance."""

    node: str
    gpu_uuid: str
    mig_uuid: str
    gpu_index: str
    mig_index: str
    profile: str
    gpu_instance: str
    compute_instance: str
    model: str
    pci_bus_id: str = ""
    driver_version: str = ""
    device: str = ""
    namespace: str = ""  # of the one container that has the instance
    pod: str = ""
    pod_uid: str = ""
    container: str = ""


class ContainerRow(NamedTuple):
    """A container on a GPU or instance."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    gpu_uuid: str
    mig_uuid: str = ""
    gpu_index: str = ""
    model: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    device: str = ""
    profile: str = ""
    gpu_instance: str = ""
    shared: str = ""  # neither the GPU's nor the instance's own series carries this pod's name
    apart: str = ""  # the GPU's own series does not carry this pod's name


class PodRow(NamedTuple):
    """A pod on a GPU."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    gpu_uuid: str
    gpu_index: str


class VgpuRow(NamedTuple):
    """One device of a container's HAMi region."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    vdevice_index: str
    gpu_uuid: str


class HoldingRow(NamedTuple):
    """A MIG instance that HAMi says a container holds."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    vdevice_index: str
    gpu_uuid: str
    mig_uuid: str
    profile: str
    gpu_instance: str
    compute_instance: str


class SourceRow(NamedTuple):
    """Something the agent reads from."""

    node: str
    source: str


class NodeRow(NamedTuple):
    """The node itself, and the build of the program that runs there."""

    node: str
    version: str = ""
    revision: str = ""
    build_date: str = ""
    python_version: str = ""
    compiler: str = ""
    platform: str = ""


class DeviceRow(NamedTuple):
    """A device as its plugin registered it with the cluster."""

    node: str
    gpu_uuid: str
    gpu_index: str
    vendor: str
    type: str
    mode: str
    numa: str


class InstanceRow(NamedTuple):
    """A MIG instance that a pod holds."""

    node: str
    gpu_uuid: str
    gpu_index: str
    mig_uuid: str
    profile: str
    gpu_instance: str
    compute_instance: str
    start: str
    size: str
    mig_name: str


class HolderRow(NamedTuple):
    """A container that was given a device, a pod that was, or both where the pod has the device in one container."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    container_index: str
    gpu_uuid: str
    as_container: str = "1"  # "": only what the containers of a pod have together
    as_pod: str = "1"  # "": only a part of what the pod has of the device


class OfferRow(NamedTuple):
    """A resource of a node whose GPUs are only counted."""

    node: str
    resource: str
    type: str
    mode: str
    profile: str


class QuotaRow(NamedTuple):
    """A device resource in a namespace."""

    namespace: str
    resource: str


class PlaceRow(NamedTuple):
    """A node of the cluster."""

    node: str


class TypeRow(NamedTuple):
    """All GPUs of one type in the cluster."""

    vendor: str
    type: str


class ClusterRow(NamedTuple):
    """The cluster, and the build of the program that watches it."""

    version: str = ""
    revision: str = ""
    build_date: str = ""
    python_version: str = ""
    compiler: str = ""
    platform: str = ""


class FindingRow(NamedTuple):
    """Something that does not add up, by the objects it is about."""

    node: str
    kind: str
    reason: str
    gpu_uuid: str
    namespace: str
    pod: str
    pod_uid: str
    resource: str


class KindRow(NamedTuple):
    """A kind of object that is watched."""

    kind: str


class SchedulerRow(NamedTuple):
    """A scheduler, by the name that pods ask for it with."""

    scheduler: str


class WaitingRow(NamedTuple):
    """Pods of one namespace that wait for one reason; without a namespace, of all that are not shown by name."""

    namespace: str
    code: str


class CardRow(NamedTuple):
    """A GPU or MIG instance with the pod that has it; where several pods share it, each of them."""

    gpu_id: str
    mig: str
    pod: str
    namespace: str
    hostname: str
    model: str


class SubjectRow(NamedTuple):
    """A GPU or MIG instance that is judged."""

    gpu_id: str
    mig: str
    hostname: str


class TenantRow(NamedTuple):
    """A tenant of a GPU or MIG instance."""

    gpu_id: str
    mig: str
    hostname: str
    namespace: str
    pod: str
    container: str


class GpuPodRow(NamedTuple):
    """A pod on a GPU or MIG instance, with all its containers there."""

    gpu_id: str
    mig: str
    hostname: str
    namespace: str
    pod: str
    owner: str


class GroupRow(NamedTuple):
    """A namespace whose pods have GPUs."""

    namespace: str


class FleetRow(NamedTuple):
    """The fleet, and the build of the program that judges it."""

    version: str = ""
    revision: str = ""
    build_date: str = ""
    python_version: str = ""
    compiler: str = ""
    platform: str = ""
