"""What the API server says to this caller: GPU nodes, the pods of HAMi and of vgpuscope, ended pods; and whether the
service accounts of our pods have their permissions.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import structs

from vgpuscope.formats.kube.health import (
    decode_allowed,
    decode_component_pods,
    decode_gpu_nodes,
    decode_names,
    decode_our_endpoints,
)
from vgpuscope.model.doctor import ComponentPod, KubeFacts, KubeNode, Missing, ServiceEndpoint
from vgpuscope.model.errors import ConfigInvalid, KubeForbidden, KubeUnreadable, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.doctor.missing import missing
from vgpuscope.sources.kube import KubeClient, open_client

T = TypeVar("T")
Right = tuple[str, str, str]  # verb, API group, resource

_PAGE = 500
_PAGES = 40  # of nodes
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_NAMESPACED: Final = tuple(
    (verb, "", resource) for resource in ("pods", "events", "resourcequotas") for verb in ("list", "watch")
)
# what each of our services needs in every cluster. What an agent and the analyzer need depends on their settings;
# they report it themselves
NEEDED: Final[dict[str, tuple[Right, ...]]] = {
    "cluster": (("list", "", "nodes"), ("watch", "", "nodes"), *_NAMESPACED),
    "extender": (
        *((verb, "", resource) for resource in ("nodes", "pods") for verb in ("get", "list", "watch", "patch")),
        ("list", "", "resourcequotas"),
        ("watch", "", "resourcequotas"),
        ("create", "", "pods/binding"),
    ),
    "plugin": (
        *((verb, "", "nodes") for verb in ("get", "patch")),
        *((verb, "", "pods") for verb in ("list", "patch")),
    ),
}
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
    status, _ = await api.send("GET", "/api/v1/nodes?limit=1", b"", media="application/json")
    if status == 401:  # unknown credentials, which is not the same as few permissions
        raise KubeForbidden("the API server answered 401")
    nodes, pods, ended = await asyncio.gather(_nodes(api), _pods(api), _ended(api))
    denied, judged = await _reviewed(api, pods or ())
    lists = {"list nodes": nodes, "list pods": pods}
    return KubeFacts(
        denied=denied,
        judged=judged,
        nodes=nodes,
        pods=pods,
        ended=ended,
        refused=tuple(name for name, found in lists.items() if found is None),
    )


# ── permissions of our services ──────────────────────────────────────────────────────────────────────────────────


async def _reviewed(api: KubeClient, pods: tuple[ComponentPod, ...]) -> tuple[tuple[str, ...] | None, int]:
    """What the accounts of our pods may not do, and how many permissions were reviewed; None if nobody may tell us."""
    accounts = {(pod.component, pod.namespace, pod.account) for pod in pods if pod.ours and pod.component in NEEDED}
    denied: list[str] = []
    judged = 0
    for component, namespace, account in sorted(accounts):
        needed = NEEDED[component]
        answers = await asyncio.gather(*(_allowed(api, namespace, account or "default", right) for right in needed))
        if any(answer is None for answer in answers):
            return None, judged
        allowed = dict(zip(needed, answers, strict=True))
        judged += len(needed)
        lacking = [right for right, yes in allowed.items() if not yes]
        if component == "cluster" and lacking == list(_NAMESPACED):
            continue  # an exporter that is limited to some namespaces may list nodes, and other kinds only there
        denied += [f"{namespace}/{account}: {verb} {resource}" for verb, _, resource in lacking]
    return tuple(denied), judged


async def _allowed(api: KubeClient, namespace: str, account: str, right: Right) -> bool | None:
    """Whether an account has a permission in all namespaces; None if this caller may not ask."""
    verb, group, resource = right
    kind, _, part = resource.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
            "resourceAttributes": {"verb": verb, "group": group, "resource": kind, "subresource": part},
        },
    }
    status, body = await api.send("POST", _REVIEWS, msgspec.json.encode(review), media="application/json")
    if status in {401, 403}:
        return None
    if status not in {200, 201}:
        raise KubeUnreadable(f"the API server answered {status} to a review of permissions")
    return decode_allowed(body)


# ── objects ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _nodes(api: KubeClient) -> tuple[KubeNode, ...] | None:
    """The nodes with GPUs; None if this caller may not list nodes."""
    found: list[KubeNode] = []
    more = ""
    for _ in range(_PAGES):
        params = {"limit": str(_PAGE)} | ({"continue": more} if more else {})
        page = await _if_allowed(api, "/api/v1/nodes", params, decode_gpu_nodes)
        if page is None:
            return None
        nodes, more = page
        found += nodes
        if not more:
            break
    hami = any(node.registered for node in found)  # without HAMi, none registers, and that is no fault
    return tuple(node if hami else structs.replace(node, registered=None) for node in found)


async def _pods(api: KubeClient) -> tuple[ComponentPod, ...] | None:
    pages = await asyncio.gather(
        *(
            _if_allowed(api, "/api/v1/pods", {"labelSelector": label, "limit": str(_PAGE)}, decode_component_pods)
            for label in _COMPONENTS
        )
    )
    if all(page is None for page in pages):
        return None
    by_name = {(pod.namespace, pod.name): pod for page in pages for pod in page or ()}
    return tuple(by_name.values())


async def _ended(api: KubeClient) -> tuple[tuple[str, str], ...] | None:
    pages = await asyncio.gather(
        *(
            _if_allowed(
                api, "/api/v1/pods", {"fieldSelector": f"status.phase={phase}", "limit": str(_PAGE)}, decode_names
            )
            for phase in ("Succeeded", "Failed")
        )
    )
    if all(page is None for page in pages):
        return None
    return tuple(name for page in pages for name in page or ())


async def _if_allowed(api: KubeClient, path: str, params: dict[str, str], decode: Callable[[bytes], T]) -> T | None:
    """A page; None if this caller may not read it."""
    try:
        return decode(await api.get(path, params))
    except KubeForbidden:
        return None


# ── addresses of our services ────────────────────────────────────────────────────────────────────────────────────

_SLICES: Final = "/apis/discovery.k8s.io/v1/{}endpointslices"
_OF_CHART: Final = "app.kubernetes.io/component in (agent,cluster,analyzer,extender,plugin)"
_NAMESPACE_FILE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


async def find_services(kubeconfig: str | None, *, within: Seconds) -> tuple[ServiceEndpoint, ...]:
    """The endpoints of our services, in all namespaces, or in the own one if only that is allowed; never raises."""
    everywhere = await _services_in("", kubeconfig, within=within)
    return everywhere if everywhere is not None else await find_beside(kubeconfig, within=within)


async def find_beside(kubeconfig: str | None, *, within: Seconds) -> tuple[ServiceEndpoint, ...]:
    """The endpoints of our services in the namespace of this pod; none outside of a pod. Never raises."""
    own = await asyncio.to_thread(_own_namespace)
    return (await _services_in(own, kubeconfig, within=within) or ()) if own else ()


async def _services_in(
    namespace: str, kubeconfig: str | None, *, within: Seconds
) -> tuple[ServiceEndpoint, ...] | None:
    """The endpoints in a namespace, "" for all; None if they cannot be listed."""
    path = _SLICES.format(f"namespaces/{namespace}/" if namespace else "")
    try:
        async with asyncio.timeout(within), open_client(kubeconfig) as client:
            body = await KubeClient(client, timeout=within).get(path, {"labelSelector": _OF_CHART, "limit": str(_PAGE)})
            return decode_our_endpoints(body)
    except (ConfigInvalid, ScopeError, TimeoutError):
        return None


def _own_namespace() -> str:
    try:
        return Path(_NAMESPACE_FILE).read_text().strip()
    except OSError:
        return ""
