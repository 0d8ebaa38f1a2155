"""This node and its pods, read from the API server when they are needed: a cache could be late."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from vgpuscope.formats.hami.seal import Seals
from vgpuscope.formats.kube.allocating import decode_allocating, decode_node_notes, decode_pod_notes, decode_pod_uids
from vgpuscope.formats.kube.lists import ObjectPage
from vgpuscope.formats.kube.objects import decode_cluster_pods
from vgpuscope.formats.kube.paths import list_path, object_path, selector_value
from vgpuscope.model.errors import KubeAbsent, KubeUnreadable
from vgpuscope.model.plugin import AllocatingPod, NodeNotes, PodNotes
from vgpuscope.model.quantity import DeviceUUID, PodUID
from vgpuscope.sources.kube import KubeClient, all_pages

T = TypeVar("T")
_PAGE = "500"


async def node_notes(api: KubeClient, node: str) -> NodeNotes:
    """The node's annotations; KubeAbsent if there is no such node, or one of our errors if it cannot be read."""
    found = await api.find(object_path("v1", "Node", node))
    if found is None:
        raise KubeAbsent(f"there is no node {node}")
    return decode_node_notes(found)


async def pod_notes(api: KubeClient, namespace: str, name: str) -> PodNotes | None:
    """One pod; None if it does not exist. It is listed by its name: the plugin has no right to get pods."""
    path = list_path("v1", "Pod", namespace=namespace)
    page = decode_pod_notes(await api.get(path, {"fieldSelector": f"metadata.name={selector_value(name)}"}))
    if page.faults:
        raise KubeUnreadable(f"pod {namespace}/{name} cannot be read")
    return page.items[0] if page.items else None


async def allocating_pods(api: KubeClient, node: str, seals: Seals | None) -> tuple[AllocatingPod, ...]:
    """All pods of the node: one that the kubelet knows and the API server does not is a stranger."""
    return await _pods(api, f"spec.nodeName={node}", partial(decode_allocating, seals=seals))


async def given_gpus(
    api: KubeClient, node: str, seals: Seals | None
) -> dict[tuple[PodUID, str], frozenset[DeviceUUID]]:
    """The GPUs that the containers on the node were given, by pod UID and name."""
    found: dict[tuple[PodUID, str], frozenset[DeviceUUID]] = {}
    for pod in await _pods(api, f"spec.nodeName={node}", partial(decode_cluster_pods, seals=seals)):
        for one in pod.assignments if pod.place == node else ():
            found[pod.uid, one.container] = found.get((pod.uid, one.container), frozenset()) | {one.device}
    return found


async def pod_uids(api: KubeClient, node: str) -> frozenset[PodUID]:
    """All pods of the node."""
    return frozenset(await _pods(api, f"spec.nodeName={node}", decode_pod_uids))


async def _pods(api: KubeClient, selector: str, decode: Callable[[bytes], ObjectPage[T]]) -> tuple[T, ...]:
    select = {"fieldSelector": selector, "limit": _PAGE}

    async def page(token: str) -> ObjectPage[T]:
        return decode(await api.get("/api/v1/pods", {**select, **({"continue": token} if token else {})}))

    return tuple(pod for one in await all_pages(page) for pod in one.items)
