"""Why a pod waits: one stable set of codes for all schedulers and all their wordings.

A code is a contract: the metric's label, the API's field, the table in the terminal and the documentation use the same
word. Codes are added, never renamed.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

# admit: the API server accepts the pod. filter: the scheduler looks for a node. bind: the pod is bound to a node.
# allocate: the node allocates the devices.
Stage: TypeAlias = Literal["admit", "filter", "bind", "allocate"]


class Code(Struct, frozen=True, kw_only=True):
    """One reason why a pod does not run, and what to do about it."""

    code: str
    stage: Stage
    meaning: str
    runbook: str


class Reason(Struct, frozen=True, kw_only=True, gc=False):
    """A reason that a scheduler gave for a pod, as one of our codes."""

    code: str
    nodes: tuple[str, ...] = ()  # the nodes that the reason applies to, if they are named
    node_count: int | None = None  # the number of those nodes; None: not given
    cards: str = ""  # "2/2": the number of the node's GPUs it applies to, as HAMi counts; "": not given
    detail: str = ""  # the scheduler's message that it was derived from


CODES: tuple[Code, ...] = (
    # --- admit --------------------------------------------------------------------------------------------------------
    Code(
        code="SCHED_ADMISSION_DENIED",
        stage="admit",
        meaning="The API server or a webhook rejected the pod.",
        runbook=(
            "The message names the webhook or the rule. HAMi's webhook and ours reject pods that ask for a GPU if they "
            "set nodeName or have a privileged container."
        ),
    ),
    Code(
        code="SCHED_QUOTA_EXCEEDED",
        stage="admit",
        meaning="The pod asks for more than the ResourceQuota of its namespace allows.",
        runbook=(
            "`kubectl describe resourcequota -n NAMESPACE` shows used and limit. End pods of the namespace or "
            "raise the quota."
        ),
    ),
    Code(
        code="SCHED_REQUEST_INVALID",
        stage="admit",
        meaning="The pod's device request can never be satisfied by any node.",
        runbook="Correct the pod's resources: at most 100 cores for each GPU, and no more GPUs than one pod may have.",
    ),
    Code(
        code="SCHED_GATED",
        stage="admit",
        meaning="The pod has scheduling gates, so no scheduler considers it yet.",
        runbook=(
            "`kubectl get pod POD -n NAMESPACE -o yaml` lists spec.schedulingGates. The controller that set them "
            "(for example Kueue) removes them."
        ),
    ),
    Code(
        code="SCHED_NOT_TRIED",
        stage="admit",
        meaning="No scheduler has reported anything about the pod yet.",
        runbook=(
            "This passes in seconds. If it does not, check that a scheduler named SCHEDULER (the pod's "
            "spec.schedulerName) is running."
        ),
    ),
    Code(
        code="SCHED_QUEUE_QUOTA",
        stage="admit",
        meaning="The pod's queue (Volcano, KAI, Kueue) has no quota left for it.",
        runbook=(
            "Check the queue's quota and usage. Wait for its jobs to end, raise the quota, or make the pod preemptible."
        ),
    ),
    Code(
        code="SCHED_GANG_WAITING",
        stage="admit",
        meaning="The pod's group cannot start together, so none of its pods is placed.",
        runbook=(
            "Look for another reason at the pods of the same group; `kubectl describe podgroup -n NAMESPACE` shows "
            "how many fit."
        ),
    ),
    # --- filter: devices ----------------------------------------------------------------------------------------------
    Code(
        code="SCHED_INSUFFICIENT_GPU_MEMORY",
        stage="filter",
        meaning="No GPU has as much free memory as the pod asks for.",
        runbook="`vgpuscope nodes` shows the largest request that still fits. Ask for less memory or free a GPU.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_GPU_CORES",
        stage="filter",
        meaning="No GPU has as large a share of its compute free as the pod asks for.",
        runbook="`vgpuscope gpus` shows what is allocated on each GPU. Ask for fewer cores or free a GPU.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_GPU_COUNT",
        stage="filter",
        meaning="Too few GPUs of a node can be allocated to the pod: the node has fewer, or fewer are suitable.",
        runbook=(
            "`vgpuscope nodes` shows GPUs and free slots of each node. Ask for fewer GPUs: all of a pod's GPUs "
            "must be on one node."
        ),
    ),
    Code(
        code="SCHED_SLOTS_EXHAUSTED",
        stage="filter",
        meaning="The GPUs are shared by as many containers as allowed.",
        runbook="`vgpuscope gpus` shows the holders of each GPU. End a pod, or raise HAMi's deviceSplitCount.",
    ),
    Code(
        code="SCHED_EXCLUSIVE_CONFLICT",
        stage="filter",
        meaning=(
            "The pod wants a GPU for itself and each is in use, or another pod or a ResourceClaim has the GPU "
            "exclusively."
        ),
        runbook=(
            "`vgpuscope gpus` shows the holders of each GPU, ResourceClaims included. Ask for less than 100 cores if "
            "the GPU may be shared."
        ),
    ),
    Code(
        code="SCHED_DEVICE_TYPE_MISMATCH",
        stage="filter",
        meaning="The pod selects (or excludes) GPUs by type, and no GPU of the node matches.",
        runbook=(
            "Compare `vgpuscope gpus` with the pod's annotations nvidia.com/use-gputype and nvidia.com/nouse-gputype."
        ),
    ),
    Code(
        code="SCHED_DEVICE_UUID_MISMATCH",
        stage="filter",
        meaning="The pod selects (or excludes) GPUs by UUID, and no free GPU matches.",
        runbook=(
            "Compare `vgpuscope gpus` with the pod's annotations nvidia.com/use-gpuuuid and nvidia.com/nouse-gpuuuid."
        ),
    ),
    Code(
        code="SCHED_DEVICE_UNHEALTHY",
        stage="filter",
        meaning=(
            "The GPUs are reported as unhealthy, or pods hold MIG instances at unknown places of them (MIG placements "
            "unknown)."
        ),
        runbook=(
            "`vgpuscope gpus` names them. Look for XIDs in the node's kernel log and at the device plugin's log. For "
            "unknown places, compare the annotation hami.io/vgpu-mig-allocations of the pods on the GPU with "
            "`nvidia-smi mig -lgi`; the GPU is used again when pods without a readable placement have ended."
        ),
    ),
    Code(
        code="SCHED_DEVICE_CORDONED",
        stage="filter",
        meaning="The GPUs are cordoned by an operator.",
        runbook=(
            "`vgpuscope gpus` names them. Remove the GPU from the node's annotation hami.io/device-cordon when the "
            "work on it is done."
        ),
    ),
    Code(
        code="SCHED_DEVICE_RULE_MISMATCH",
        stage="filter",
        meaning=(
            "The GPUs do not meet a vendor-specific rule that the pod asks for, such as quality of service or class."
        ),
        runbook=(
            "The message has the scheduler's own name of the rule. Compare the pod's annotations with the vendor's "
            "documentation."
        ),
    ),
    Code(
        code="SCHED_MODE_MISMATCH",
        stage="filter",
        meaning="The GPUs are shared in another mode (hami-core, MIG, MPS) than the pod asks for.",
        runbook="Compare the pod's annotation nvidia.com/vgpu-mode with the mode in `vgpuscope gpus`.",
    ),
    Code(
        code="SCHED_MIG_INFEASIBLE",
        stage="filter",
        meaning="No MIG instance of the size is free, or it cannot be placed beside the existing instances.",
        runbook="`nvidia-smi mig -lgipp` on the node shows the placements. Ask for another profile or free a GPU.",
    ),
    Code(
        code="SCHED_NUMA_MISMATCH",
        stage="filter",
        meaning="Not enough suitable GPUs, or not all resources, are on one NUMA node.",
        runbook=(
            "Ask for fewer GPUs or remove the pod's numa-bind annotation; `nvidia-smi topo -m` shows the NUMA nodes."
        ),
    ),
    Code(
        code="SCHED_LINK_TOPOLOGY",
        stage="filter",
        meaning="The free GPUs are not linked to each other as the pod asks for.",
        runbook="`nvidia-smi topo -m` shows the links. Ask for fewer GPUs or for a topology that is only preferred.",
    ),
    Code(
        code="SCHED_DRA_UNALLOCATABLE",
        stage="filter",
        meaning="A ResourceClaim of the pod does not exist or cannot be allocated.",
        runbook=(
            "`kubectl get resourceclaims -n NAMESPACE` shows what is asked for; `kubectl get "
            "resourceslices,deviceclasses` shows what is offered."
        ),
    ),
    Code(
        code="SCHED_NODE_UNREGISTERED",
        stage="filter",
        meaning="The node has not registered any devices with the scheduler, or its registration cannot be read.",
        runbook="`vgpuscope nodes` lists nodes with GPUs. On the others check the device plugin's pod and log.",
    ),
    # --- filter: nodes ------------------------------------------------------------------------------------------------
    Code(
        code="SCHED_NODE_SELECTOR",
        stage="filter",
        meaning="The pod's node selector or node affinity does not allow the node.",
        runbook="Compare the labels in `kubectl describe node NODE` with the pod's nodeSelector and nodeAffinity.",
    ),
    Code(
        code="SCHED_TAINT",
        stage="filter",
        meaning="The node has a taint that the pod does not tolerate.",
        runbook="`kubectl describe node NODE` lists the taints. Add a toleration if the pod belongs there.",
    ),
    Code(
        code="SCHED_NODE_UNSCHEDULABLE",
        stage="filter",
        meaning="The node is cordoned.",
        runbook="`kubectl uncordon NODE` when the work on it is done.",
    ),
    Code(
        code="SCHED_NODE_NOT_READY",
        stage="filter",
        meaning="The node is not ready, not reachable, or short of disk, memory or process IDs.",
        runbook="`kubectl describe node NODE` shows its conditions. Check its kubelet.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_CPU",
        stage="filter",
        meaning="The node has too little CPU left, whatever its GPUs have.",
        runbook="`kubectl describe node NODE` shows what is requested. Ask for less CPU.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_MEMORY",
        stage="filter",
        meaning="The node has too little main memory left, whatever its GPUs have.",
        runbook="`kubectl describe node NODE` shows what is requested. Ask for less memory.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_STORAGE",
        stage="filter",
        meaning="The node has too little ephemeral storage left.",
        runbook="`kubectl describe node NODE` shows what is requested. Ask for less ephemeral-storage.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_RESOURCE",
        stage="filter",
        meaning="The node has too little of a resource that is neither a GPU nor CPU, memory or storage.",
        runbook="The message names it (RDMA, huge pages, …); `kubectl describe node NODE` shows what is offered.",
    ),
    Code(
        code="SCHED_TOO_MANY_PODS",
        stage="filter",
        meaning="The node runs as many pods as allowed.",
        runbook="Remove finished pods from it, or raise the kubelet's maxPods.",
    ),
    Code(
        code="SCHED_PORT_CONFLICT",
        stage="filter",
        meaning="A host port that the pod asks for is in use.",
        runbook="Use another hostPort, or none.",
    ),
    Code(
        code="SCHED_POD_AFFINITY",
        stage="filter",
        meaning="The pod's affinity or anti-affinity to other pods does not allow the node.",
        runbook="Compare the pod's podAffinity and podAntiAffinity with the pods of the node.",
    ),
    Code(
        code="SCHED_TOPOLOGY_SPREAD",
        stage="filter",
        meaning="The pod would be spread less evenly than its topologySpreadConstraints allow.",
        runbook="Check that the nodes have the constraint's label. Allow more skew or use ScheduleAnyway.",
    ),
    Code(
        code="SCHED_VOLUME",
        stage="filter",
        meaning="A volume of the pod does not exist, is not bound, or is not available on this node.",
        runbook=(
            "`kubectl get pvc -n NAMESPACE` shows what is bound; `kubectl describe pvc -n NAMESPACE` shows why not."
        ),
    ),
    Code(
        code="SCHED_NO_NODES",
        stage="filter",
        meaning="There is no node for the scheduler to consider.",
        runbook="Check `kubectl get nodes`. With a scheduler of your own, check which nodes it is configured to use.",
    ),
    Code(
        code="SCHED_NO_NODE_FITS",
        stage="filter",
        meaning="The scheduler found no node and did not report why.",
        runbook=(
            "Check the pod's other events and the scheduler's log. HAMi reports its reasons to kube-scheduler "
            "since v2.10."
        ),
    ),
    Code(
        code="SCHED_NO_EXTENDER",
        stage="filter",
        meaning=(
            "The scheduler could not reach its extender (HAMi, vgpu-manager, vgpuscope), or the extender could not "
            "decide. No decision was made."
        ),
        runbook=(
            "The scheduler retries automatically. If it does not pass, check the extender's pod, its log, its service "
            "and its certificate."
        ),
    ),
    # --- bind and allocate --------------------------------------------------------------------------------------------
    Code(
        code="SCHED_NODE_LOCKED",
        stage="bind",
        meaning="Another pod is being bound on the node, and HAMi allows only one at a time.",
        runbook=(
            "This passes in seconds, or after five minutes. If it does not, remove the annotation "
            "hami.io/mutex.lock (`kubectl annotate node NODE hami.io/mutex.lock-`) and check the node's device "
            "plugin."
        ),
    ),
    Code(
        code="SCHED_BIND_FAILED",
        stage="bind",
        meaning="A node was found, but the pod could not be bound to it.",
        runbook="The message is the API server's or the extender's answer. The scheduler retries automatically.",
    ),
    Code(
        code="SCHED_ALLOCATE_FAILED",
        stage="allocate",
        meaning="The pod was bound to a node, and its kubelet or device plugin rejected it.",
        runbook=(
            "Check the log of the node's device plugin. Delete the pod so that it is scheduled again. A pod that "
            "bypassed HAMi's scheduler cannot be allocated."
        ),
    ),
    Code(
        code="SCHED_OTHER",
        stage="filter",
        meaning="The scheduler reported a reason that has no code yet.",
        runbook="The message is the scheduler's own text, shortened. Please report it, so that it gets a code.",
    ),
)

BY_CODE: dict[str, Code] = {row.code: row for row in CODES}

WITHOUT_GPUS = "SCHED_NODE_UNREGISTERED"  # most nodes of many clusters: they say nothing about the pod


def telling(code: str, nodes: int) -> tuple[bool, int, str]:
    """Sorts codes of refusals: that of most nodes first, nodes without GPUs last."""
    return code == WITHOUT_GPUS, -nodes, code
