"""What the API server says to this caller: its rights, GPU nodes, the pods of HAMi and of vgpuscope, ended pods."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import structs

from vgpuscope.formats.kube.health import decode_allowed, decode_component_pods, decode_gpu_nodes, decode_names
from vgpuscope.model.doctor import ComponentPod, KubeFacts, KubeNode, Missing
from vgpuscope.model.errors import ConfigInvalid, KubeForbidden, KubeUnreadable, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.doctor.missing import missing
from vgpuscope.sources.kube import KubeClient, open_client

T = TypeVar("T")

_PAGE = 500
_PAGES = 40  # of nodes
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NEEDED: Final = tuple(
    (verb, resource) for resource in ("nodes", "pods", "events", "resourcequotas") for verb in ("list", "watch")
)
_COMPONENTS: Final = (
    "app.kubernetes.io/name in (vgpuscope,hami,hami-webui,dcgm-exporter)",
    "app in (nvidia-dcgm-exporter,hami-scheduler,hami-device-plugin)",
)


async def read_kube(kubeconfig: str | None, *, within: Seconds, given: bool = True) -> KubeFacts | Missing:
    """What the API server answers; never raises."""
    place = kubeconfig or "the default kubeconfig or service account"
    try:
        async with asyncio.timeout(within), open_client(kubeconfig) as client:
            return await _facts(KubeClient(client, timeout=within))
    except ConfigInvalid as e:
        return missing("kubernetes", KubeUnreadable(str(e)), place=place, given=given)
    except (ScopeError, TimeoutError) as e:
        return missing("kubernetes", e, place=place, given=given)


async def _facts(api: KubeClient) -> KubeFacts:
    denied = await _denied(api)
    nodes, pods, ended = await asyncio.gather(_nodes(api), _pods(api), _ended(api))
    return KubeFacts(denied=denied, nodes=nodes, pods=pods, ended=ended)


async def _denied(api: KubeClient) -> tuple[str, ...]:
    """The requests that this caller may not make. The API server is asked for each, and nothing is changed."""
    answers = await asyncio.gather(*(_allowed(api, verb, resource) for verb, resource in NEEDED))
    return tuple(f"{verb} {resource}" for (verb, resource), yes in zip(NEEDED, answers, strict=True) if not yes)


async def _allowed(api: KubeClient, verb: str, resource: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource}},
    }
    status, body = await api.send("POST", _REVIEWS, msgspec.json.encode(review), media="application/json")
    if status in {401, 403}:
        raise KubeForbidden(f"the API server answered {status}")
    if status not in {200, 201}:
        raise KubeUnreadable(f"the API server answered {status} to a review of rights")
    return decode_allowed(body)


async def _nodes(api: KubeClient) -> tuple[KubeNode, ...]:
    found: list[KubeNode] = []
    more = ""
    for _ in range(_PAGES):
        params = {"limit": str(_PAGE)} | ({"continue": more} if more else {})
        page = await _if_allowed(api, "/api/v1/nodes", params, decode_gpu_nodes)
        if page is None:
            break
        nodes, more = page
        found += nodes
        if not more:
            break
    hami = any(node.registered for node in found)  # without HAMi, none registers, and that is no fault
    return tuple(node if hami else structs.replace(node, registered=None) for node in found)


async def _pods(api: KubeClient) -> tuple[ComponentPod, ...]:
    pages = await asyncio.gather(
        *(
            _if_allowed(api, "/api/v1/pods", {"labelSelector": label, "limit": str(_PAGE)}, decode_component_pods)
            for label in _COMPONENTS
        )
    )
    by_name = {(pod.namespace, pod.name): pod for page in pages for pod in page or ()}
    return tuple(by_name.values())


async def _ended(api: KubeClient) -> tuple[tuple[str, str], ...]:
    pages = await asyncio.gather(
        *(
            _if_allowed(
                api, "/api/v1/pods", {"fieldSelector": f"status.phase={phase}", "limit": str(_PAGE)}, decode_names
            )
            for phase in ("Succeeded", "Failed")
        )
    )
    return tuple(name for page in pages for name in page or ())


async def _if_allowed(api: KubeClient, path: str, params: dict[str, str], decode: Callable[[bytes], T]) -> T | None:
    """A page; None if this caller may not read it, which the review of rights reports."""
    try:
        return decode(await api.get(path, params))
    except KubeForbidden:
        return None
