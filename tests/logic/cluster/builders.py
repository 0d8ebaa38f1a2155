"""Small makers of clusters for the tests of the ledger."""

from vgpuscope.logic.cluster.capacity import CapacityTotals
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.model.allocation import (
    Assignment,
    ContainerRequest,
    HeldInstance,
    NodeState,
    PodState,
    QuotaState,
    RegisteredDevice,
)

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


def asks(amounts, *, container=0, init=False):
    """The requests of a pod of which one container requests devices."""
    return (ContainerRequest(container, "main", init, amounts),) if amounts else ()


def pod(name="p", *assignments, on="n1", bound=True, namespace="ml", phase="Running", requests=None, **more):
    more.setdefault("node", on if bound else "")
    return PodState(
        uid=f"uid-{namespace}-{name}",
        namespace=namespace,
        name=name,
        phase=phase,
        assigned_node=on if assignments else "",
        assignments=assignments,
        asks=asks(requests),
        **more,
    )


def instance(device="GPU-0", container=0, start=0, size=1, **more):
    return HeldInstance(container_index=container, device=device, profile="1g.10gb", start=start, size=size, **more)


def quota(name="q", namespace="ml", **hard):
    return QuotaState(namespace=namespace, name=name, hard={f"nvidia.com/{key}": hard[key] for key in hard})


def ledger(nodes=(), pods=(), quotas=(), **more):
    made = ClusterLedger(**more)
    for objects, keep in ((nodes, made.set_node), (pods, made.set_pod), (quotas, made.set_quota)):
        for one in objects:
            keep(one)
    return made


def relist_pods(made, pods):
    """Only these pods are left, as after a fresh list of the watch."""
    relist(set(made.pods), pods, key=lambda one: one.uid, keep=made.set_pod, drop=made.drop_pod)


def relist(known, found, *, key, keep, drop):
    listed = {key(one): one for one in found}
    for gone in known - listed.keys():
        drop(gone)
    for one in listed.values():
        keep(one)


def node_names(made):
    """Every node that has a ledger."""
    return made._nodes.keys() | made._at.keys()


def namespace_names(made):
    """Every namespace with a quota or a pod that holds devices."""
    return made._use.keys() | made._quotas.keys()


def settled(*devices_and_pods, **of_node):
    """The ledger of the one node that has these devices and pods."""
    devices = [one for one in devices_and_pods if isinstance(one, RegisteredDevice)]
    pods = [one for one in devices_and_pods if isinstance(one, PodState)]
    return ledger([node(*devices, **of_node)], pods).node("n1")


def totals(made):
    """The cluster's capacity, from every node of a ledger."""
    sums = CapacityTotals()
    for name in node_names(made):
        sums.put(made.node(name))
    return sums


def conclusions(made):
    """Everything a ledger has to say."""
    nodes = {name: made.node(name) for name in node_names(made)}
    namespaces = {name: made.namespace(name) for name in namespace_names(made)}
    sums = totals(made)
    return nodes, namespaces, sums.cluster(), sums.types()
