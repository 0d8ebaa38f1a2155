"""Small makers of clusters for the tests of the ledger."""

from vgpuscope.logic.cluster.capacity import CapacityTotals
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState, RegisteredDevice

GIB = 1024**3
MIB = 1024**2


def device(uuid="GPU-0", index=0, **more):
    defaults = {"slots": 10, "memory": 80 * GIB, "cores": 100, "type": "A100", "healthy": True, "vendor": "NVIDIA"}
    return RegisteredDevice(id=uuid, index=index, **{**defaults, **more})


def node(*devices, name="n1", **more):
    return NodeState(name=name, devices=devices, **more)


def given(device="GPU-0", memory=8 * GIB, cores=0, *, container=0, init=False, vendor="NVIDIA"):
    return Assignment(
        container_index=container,
        container=f"c{container}",
        init=init,
        vendor=vendor,
        device=device,
        memory=memory,
        cores=cores,
    )


def pod(name="p", *assignments, on="n1", bound=True, namespace="ml", phase="Running", **more):
    more.setdefault("node", on if bound else "")
    return PodState(
        uid=f"uid-{namespace}-{name}",
        namespace=namespace,
        name=name,
        phase=phase,
        assigned_node=on if assignments else "",
        assignments=assignments,
        **more,
    )


def instance(device="GPU-0", container=0, start=0, size=1, **more):
    return HeldInstance(container_index=container, device=device, profile="1g.10gb", start=start, size=size, **more)


def quota(name="q", namespace="ml", **hard):
    return QuotaState(namespace=namespace, name=name, hard={f"limits.nvidia.com/{key}": hard[key] for key in hard})


def ledger(nodes=(), pods=(), quotas=(), **more):
    made = ClusterLedger(**more)
    made.replace_nodes(nodes)
    made.replace_pods(pods)
    made.replace_quotas(quotas)
    return made


def settled(*devices_and_pods, **of_node):
    """The ledger of the one node that has these devices and pods."""
    devices = [one for one in devices_and_pods if isinstance(one, RegisteredDevice)]
    pods = [one for one in devices_and_pods if isinstance(one, PodState)]
    return ledger([node(*devices, **of_node)], pods).node("n1")


def totals(made):
    """The cluster's capacity, from every node of a ledger."""
    sums = CapacityTotals()
    for name in made.node_names():
        sums.put(made.node(name))
    return sums


def conclusions(made):
    """Everything a ledger has to say."""
    nodes = {name: made.node(name) for name in made.node_names()}
    namespaces = {name: made.namespace(name) for name in made.namespace_names()}
    sums = totals(made)
    return nodes, namespaces, sums.cluster(), sums.types()
