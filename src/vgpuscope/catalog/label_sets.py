"""The label set of a sample. Every label of every family is an attribute of one of these; '' means: no value.

A label set holds identity only. A property that can change is a value, or an extra label of a one-hot metric, never
part of a label set.
"""

from typing import NamedTuple


class BuildRow(NamedTuple):
    """A process as a whole, by its build."""

    version: str = ""
    revision: str = ""
    build_date: str = ""
    python_version: str = ""
    compiler: str = ""
    platform: str = ""


class GpuLabels(NamedTuple):
    """A physical GPU."""

    node: str
    gpu_uuid: str
    gpu_index: str
    model: str
    serial: str = ""
    minor: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    hami_type: str = ""  # HAMi's monitor always prefixes the model with NVIDIA-
    device: str = ""  # nvidia0
    namespace: str = ""  # of the one container that has the whole GPU
    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    whole: str = ""  # set if the GPU is not divided into MIG instances: device-wide memory is then the GPU's own


class MigLabels(NamedTuple):
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
    instance_profile: str = ""  # of the GPU instance, without the part that a compute instance is of it
    namespace: str = ""  # of the one container that has the GPU instance
    pod: str = ""
    pod_uid: str = ""
    container: str = ""


class ContainerLabels(NamedTuple):
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
    instance_profile: str = ""
    gpu_instance: str = ""
    shared: str = ""  # set if neither the GPU's nor the MIG instance's own series has this pod's name
    apart: str = ""  # set if the GPU's own series does not have this pod's name
    sharing: str = ""  # the same outside of MIG: dcgm-exporter shows no utilisation of MIG instances


class PodLabels(NamedTuple):
    """A pod on a GPU."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    gpu_uuid: str
    gpu_index: str


class VgpuLabels(NamedTuple):
    """One device of a container's HAMi region."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    vdevice_index: str
    gpu_uuid: str


class MigHolderLabels(NamedTuple):
    """A MIG instance that HAMi reports as held by a container."""

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


class HostLabels(NamedTuple):
    """A container that holds a GPU, on its node."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str


class SourceLabels(NamedTuple):
    """A source that the agent reads."""

    node: str
    source: str


class NodeLabels(NamedTuple):
    """The node itself, and the build of the program that runs there."""

    node: str
    version: str = ""
    revision: str = ""
    build_date: str = ""
    python_version: str = ""
    compiler: str = ""
    platform: str = ""


class DeviceLabels(NamedTuple):
    """A device as its plugin registered it with the cluster."""

    node: str
    gpu_uuid: str
    gpu_index: str
    vendor: str
    type: str
    mode: str
    numa: str


class HeldInstanceLabels(NamedTuple):
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


class HolderLabels(NamedTuple):
    """A container with a device, a pod with a device, or both if the pod has the device in one container."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    container_index: str
    gpu_uuid: str
    as_container: str = "1"  # "": only the total of a pod's containers
    as_pod: str = "1"  # "": only a part of the pod's use of the device


class OfferedResourceLabels(NamedTuple):
    """A resource of a node whose GPUs are only counted."""

    node: str
    resource: str
    type: str
    mode: str
    profile: str


class QuotaLabels(NamedTuple):
    """A device resource in a namespace."""

    namespace: str
    resource: str


class ClusterNodeLabels(NamedTuple):
    """A node of the cluster."""

    node: str


class GpuTypeLabels(NamedTuple):
    """All GPUs of one type in the cluster."""

    vendor: str
    type: str


class ClusterLabels(BuildRow):
    """The cluster, and the build of the program that watches it."""

    __slots__ = ()


class FindingLabels(NamedTuple):
    """A contradiction, by the objects that it is about."""

    node: str
    kind: str
    reason: str
    gpu_uuid: str
    namespace: str
    pod: str
    pod_uid: str
    resource: str


class WatchedKindLabels(NamedTuple):
    """A kind of object that is watched."""

    kind: str


class SchedulerLabels(NamedTuple):
    """A scheduler, by its name in pod specs."""

    scheduler: str


class WaitingPodsLabels(NamedTuple):
    """Pods of one namespace that wait for one reason; without a namespace, all those that are not shown by name."""

    namespace: str
    code: str


class GpuOfPodLabels(NamedTuple):
    """A GPU or MIG instance with the pod that has it; if several pods share it, one row for each."""

    gpu_id: str
    mig: str
    pod: str
    namespace: str
    hostname: str
    model: str


class JudgedGpuLabels(NamedTuple):
    """A GPU or MIG instance that is judged."""

    gpu_id: str
    mig: str
    hostname: str


class TenantLabels(NamedTuple):
    """A tenant of a GPU or MIG instance."""

    gpu_id: str
    mig: str
    hostname: str
    namespace: str
    pod: str
    container: str


class PodOnGpuLabels(NamedTuple):
    """A pod on a GPU or MIG instance, with all its containers there."""

    gpu_id: str
    mig: str
    hostname: str
    namespace: str
    pod: str
    owner: str


class NamespaceLabels(NamedTuple):
    """A namespace whose pods have GPUs."""

    namespace: str


class OpinionLabels(NamedTuple):
    """A pod on a GPU or MIG instance that a language model was asked about."""

    gpu_id: str
    mig: str
    pod: str
    namespace: str


class FleetLabels(BuildRow):
    """The fleet, and the build of the program that judges it."""

    __slots__ = ()


class ExtenderLabels(BuildRow):
    """A scheduler extender, and its build."""

    __slots__ = ()


class OfferedGpuLabels(NamedTuple):
    """A GPU that the device plugin offers to the kubelet."""

    node: str
    gpu_uuid: str


class PluginLabels(NodeLabels):
    """A device plugin, and the build of the program."""

    __slots__ = ()
