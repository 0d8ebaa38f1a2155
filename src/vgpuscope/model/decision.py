"""Why a pod waits: one stable set of codes, whichever scheduler said it and in whatever words.

A code is a contract: the metric's label, the API's field, the table in the terminal and the documentation say one
word. Codes are added, never renamed.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

# admit: the API server lets the pod in. filter: a node is looked for. bind: the pod is given to a node.
# allocate: the node hands out the devices.
Stage: TypeAlias = Literal["admit", "filter", "bind", "allocate"]


class Code(Struct, frozen=True, kw_only=True):
    """One reason why a pod does not run, and what to do about it."""

    code: str
    stage: Stage
    meaning: str
    runbook: str


class Reason(Struct, frozen=True, kw_only=True, gc=False):
    """What a scheduler said of a pod, in our words."""

    code: str
    nodes: tuple[str, ...] = ()  # the nodes it was said of, where they are named
    node_count: int | None = None  # of how many nodes it was said; None: not said
    cards: str = ""  # "2/2": of so many of the node's cards, as HAMi counts; "": not said
    detail: str = ""  # the foreign words it was made from


CODES: tuple[Code, ...] = (
    # --- admit --------------------------------------------------------------------------------------------------------
    Code(
        code="SCHED_ADMISSION_DENIED",
        stage="admit",
        meaning="The API server or a webhook refused to create the pod.",
        runbook=(
            "The detail names the webhook or the rule. HAMi's webhook refuses pods with nodeName set and privileged "
            "containers that ask for a GPU."
        ),
    ),
    Code(
        code="SCHED_QUOTA_EXCEEDED",
        stage="admit",
        meaning="The namespace's ResourceQuota does not allow what the pod asks for.",
        runbook="`kubectl describe resourcequota -n NAMESPACE` shows used and limit; end pods or raise the quota.",
    ),
    Code(
        code="SCHED_REQUEST_INVALID",
        stage="admit",
        meaning="The pod asks for devices in a way that no node can ever satisfy.",
        runbook="Correct the pod's resources: at most 100 cores for each card, no more cards than one pod may have.",
    ),
    Code(
        code="SCHED_GATED",
        stage="admit",
        meaning="The pod has scheduling gates, so no scheduler looks at it yet.",
        runbook="`kubectl get pod -o yaml` lists spec.schedulingGates; whoever set them (Kueue, for one) removes them.",
    ),
    Code(
        code="SCHED_NOT_TRIED",
        stage="admit",
        meaning="No scheduler has said anything about the pod yet.",
        runbook=(
            "It passes in seconds. If not: check that a scheduler by the name in the pod's spec.schedulerName runs; "
            "`kubectl get pod -o yaml` shows the name."
        ),
    ),
    Code(
        code="SCHED_QUEUE_QUOTA",
        stage="admit",
        meaning="The queue that the pod belongs to (Volcano, KAI, Kueue) has no quota left for it.",
        runbook="Look at the queue's quota and use; wait for its jobs to end, raise it, or make the pod preemptible.",
    ),
    Code(
        code="SCHED_GANG_WAITING",
        stage="admit",
        meaning="The pod's group cannot start together, so none of its pods is placed.",
        runbook="Look for another reason at the pods of the same group; `kubectl describe podgroup` says how many fit.",
    ),
    # --- filter: devices ----------------------------------------------------------------------------------------------
    Code(
        code="SCHED_INSUFFICIENT_GPU_MEMORY",
        stage="filter",
        meaning="No card that is looked at has as much free memory as the pod asks for.",
        runbook="`vgpuscope nodes` shows the largest request that still fits; ask for less or free a card.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_GPU_CORES",
        stage="filter",
        meaning="No card that is looked at has as large a share of its compute free as the pod asks for.",
        runbook="`vgpuscope gpus` shows what each card gave away; ask for fewer cores or free a card.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_GPU_COUNT",
        stage="filter",
        meaning="Too few cards of a node can be given to the pod: it has fewer, or fewer are suitable.",
        runbook="`vgpuscope nodes` shows cards and slots of each node; ask for fewer cards, they must be on one node.",
    ),
    Code(
        code="SCHED_SLOTS_EXHAUSTED",
        stage="filter",
        meaning="The cards are shared by as many containers as they may be.",
        runbook="`vgpuscope gpus` shows who shares a card; end a pod, or raise HAMi's deviceSplitCount.",
    ),
    Code(
        code="SCHED_EXCLUSIVE_CONFLICT",
        stage="filter",
        meaning="The pod wants a card for itself and each is in use, or somebody has the card for himself.",
        runbook="`vgpuscope gpus` shows idle cards; ask for less than 100 cores if the card may be shared.",
    ),
    Code(
        code="SCHED_DEVICE_TYPE_MISMATCH",
        stage="filter",
        meaning="The cards are of a type that the pod does not want.",
        runbook="Compare `vgpuscope gpus` with the pod's annotations nvidia.com/use-gputype and nouse-gputype.",
    ),
    Code(
        code="SCHED_DEVICE_UUID_MISMATCH",
        stage="filter",
        meaning="The pod names the cards it wants, or does not want, and these are not it.",
        runbook="Compare `vgpuscope gpus` with the pod's annotations nvidia.com/use-gpuuuid and nouse-gpuuuid.",
    ),
    Code(
        code="SCHED_DEVICE_UNHEALTHY",
        stage="filter",
        meaning="The cards are reported as unhealthy.",
        runbook="`vgpuscope gpus` names them; look for XIDs in the node's kernel log and at the device plugin's log.",
    ),
    Code(
        code="SCHED_DEVICE_CORDONED",
        stage="filter",
        meaning="The cards are taken out of service by an operator.",
        runbook="`vgpuscope gpus` names them; put the card back into service when the work on it is done.",
    ),
    Code(
        code="SCHED_DEVICE_RULE_MISMATCH",
        stage="filter",
        meaning="The cards break a rule of their vendor that the pod asks for, such as quality of service or class.",
        runbook="The detail is the scheduler's own word for the rule; compare the pod's annotations with the vendor's.",
    ),
    Code(
        code="SCHED_MODE_MISMATCH",
        stage="filter",
        meaning="The cards are shared in another way (hami-core, MIG, MPS) than the pod asks for.",
        runbook="Compare the pod's annotation nvidia.com/vgpu-mode with the node's mode in `vgpuscope gpus`.",
    ),
    Code(
        code="SCHED_MIG_INFEASIBLE",
        stage="filter",
        meaning="No MIG instance of the size is free, or it cannot be placed beside those that exist.",
        runbook="`nvidia-smi mig -lgipp` on the node shows the placements; ask for another profile or free a card.",
    ),
    Code(
        code="SCHED_NUMA_MISMATCH",
        stage="filter",
        meaning="Not enough suitable cards, or not all resources, are on one NUMA node.",
        runbook="Ask for fewer cards or drop the pod's numa-bind annotation; `nvidia-smi topo -m` shows the nodes.",
    ),
    Code(
        code="SCHED_LINK_TOPOLOGY",
        stage="filter",
        meaning="The free cards are not linked to each other as the pod asks for.",
        runbook="`nvidia-smi topo -m` shows the links; ask for fewer cards or for a topology that is only preferred.",
    ),
    Code(
        code="SCHED_DRA_UNALLOCATABLE",
        stage="filter",
        meaning="A resource claim of the pod does not exist or cannot be allocated.",
        runbook="`kubectl get resourceclaims,resourceslices,deviceclasses -A` shows what is asked for and offered.",
    ),
    Code(
        code="SCHED_NODE_UNREGISTERED",
        stage="filter",
        meaning="The node has not told the scheduler of any devices, or told it in a way that cannot be read.",
        runbook="`vgpuscope nodes` lists nodes with devices; on the others look at the device plugin's pod and log.",
    ),
    # --- filter: nodes ------------------------------------------------------------------------------------------------
    Code(
        code="SCHED_NODE_SELECTOR",
        stage="filter",
        meaning="The node is not one that the pod's node selector or node affinity allows.",
        runbook="Compare `kubectl get nodes -L LABEL` with the pod's nodeSelector and nodeAffinity.",
    ),
    Code(
        code="SCHED_TAINT",
        stage="filter",
        meaning="The node has a taint that the pod does not tolerate.",
        runbook="`kubectl describe node NODE` lists its taints; add a toleration if the pod belongs there.",
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
        meaning="The node is not ready, not reachable, or short of disk, memory or process ids.",
        runbook="`kubectl describe node NODE` shows its conditions; look at its kubelet.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_CPU",
        stage="filter",
        meaning="The node has too little CPU left, whatever its cards have.",
        runbook="`kubectl describe node NODE` shows what is requested; ask for less CPU.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_MEMORY",
        stage="filter",
        meaning="The node has too little main memory left, whatever its cards have.",
        runbook="`kubectl describe node NODE` shows what is requested; ask for less memory.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_STORAGE",
        stage="filter",
        meaning="The node has too little ephemeral storage left.",
        runbook="`kubectl describe node NODE` shows what is requested; ask for less ephemeral-storage.",
    ),
    Code(
        code="SCHED_INSUFFICIENT_RESOURCE",
        stage="filter",
        meaning="The node has too little of a resource that is neither a GPU nor CPU, memory or storage.",
        runbook="The detail names it (RDMA, huge pages …); `kubectl describe node NODE` shows what is offered.",
    ),
    Code(
        code="SCHED_TOO_MANY_PODS",
        stage="filter",
        meaning="The node runs as many pods as it may.",
        runbook="Remove finished pods from it, or raise the kubelet's maxPods.",
    ),
    Code(
        code="SCHED_PORT_CONFLICT",
        stage="filter",
        meaning="A host port that the pod asks for is taken.",
        runbook="Use another hostPort, or none.",
    ),
    Code(
        code="SCHED_POD_AFFINITY",
        stage="filter",
        meaning="The pod must be near, or must not be near, other pods, and here it is not so.",
        runbook="Compare the pod's podAffinity and podAntiAffinity with the pods of the node.",
    ),
    Code(
        code="SCHED_TOPOLOGY_SPREAD",
        stage="filter",
        meaning="The pod would be spread less evenly than its topologySpreadConstraints allow.",
        runbook="Check that the nodes have the constraint's label; allow more skew or use ScheduleAnyway.",
    ),
    Code(
        code="SCHED_VOLUME",
        stage="filter",
        meaning="A volume of the pod does not exist, is not bound, or cannot be had on this node.",
        runbook="`kubectl get pvc -n NAMESPACE` shows what is bound; `kubectl describe pvc` says why not.",
    ),
    Code(
        code="SCHED_NO_NODES",
        stage="filter",
        meaning="There is no node that could be looked at.",
        runbook="`kubectl get nodes`; with a scheduler of your own check which nodes it is told to use.",
    ),
    Code(
        code="SCHED_NO_NODE_FITS",
        stage="filter",
        meaning="The scheduler found no node and did not say why.",
        runbook="Look at the pod's other events and the scheduler's log; HAMi tells kube-scheduler why since v2.10.",
    ),
    Code(
        code="SCHED_NO_EXTENDER",
        stage="filter",
        meaning="The scheduler could not reach its extender (HAMi, vgpu-manager), so it decides nothing.",
        runbook="Look at the extender's pod, its service and its certificate.",
    ),
    # --- bind and allocate --------------------------------------------------------------------------------------------
    Code(
        code="SCHED_NODE_LOCKED",
        stage="bind",
        meaning="Another pod is being given devices on the node, and only one at a time may be.",
        runbook=(
            "It passes in seconds, or after five minutes. If not: remove the node's annotation hami.io/mutex.lock "
            "and look at its device plugin."
        ),
    ),
    Code(
        code="SCHED_BIND_FAILED",
        stage="bind",
        meaning="A node was found, but the pod could not be given to it.",
        runbook="The detail is the API server's or the extender's answer; the scheduler tries again by itself.",
    ),
    Code(
        code="SCHED_ALLOCATE_FAILED",
        stage="allocate",
        meaning="The pod was given to a node, and its kubelet or device plugin refused it.",
        runbook=(
            "Look at the log of the node's device plugin; delete the pod so that it is scheduled anew. A pod that "
            "passed HAMi's scheduler by cannot be allocated."
        ),
    ),
    Code(
        code="SCHED_OTHER",
        stage="filter",
        meaning="The scheduler gave a reason that is in no table of ours.",
        runbook="The detail is its own text, shortened; please report it, so that it gets a code.",
    ),
)

BY_CODE: dict[str, Code] = {row.code: row for row in CODES}
