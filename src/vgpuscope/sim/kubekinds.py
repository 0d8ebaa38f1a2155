"""The kinds of objects that the simulated API server serves, and the documents by which clients discover them."""

from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]

CORE, LEASES, EVENTS, REVIEWS = "v1", "coordination.k8s.io/v1", "events.k8s.io/v1", "authorization.k8s.io/v1"
APPS, AUTOSCALING = "apps/v1", "autoscaling/v2"
REVIEW_PATH = f"/apis/{REVIEWS}/selfsubjectaccessreviews"
_VERSION = {"major": "1", "minor": "35", "gitVersion": "v1.35.8+vgpuscope-demo", "platform": "linux/amd64"}
_READ = ("get", "list", "watch")


class Resource(NamedTuple):
    """One kind of object: its names, and the verbs that are answered."""

    kind: str
    version: str = CORE
    namespaced: bool = True
    short: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _READ
    fields: frozenset[str] = frozenset()  # that a field selector can name, beside those of every kind


KINDS: dict[str, Resource] = {  # by the plural in the path
    "namespaces": Resource("Namespace", namespaced=False, short=("ns",), fields=frozenset({"status.phase"})),
    "nodes": Resource(
        "Node",
        namespaced=False,
        short=("no",),
        verbs=(*_READ, "patch"),
        fields=frozenset({"spec.unschedulable"}),
    ),
    "pods": Resource(
        "Pod",
        short=("po",),
        verbs=(*_READ, "patch"),  # bound and evicted by their subresources
        fields=frozenset({"spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase", "status.podIP"}),
    ),
    "resourcequotas": Resource("ResourceQuota", short=("quota",)),
    "events": Resource(
        "Event",
        short=("ev",),
        verbs=(*_READ, "create", "patch"),
        fields=frozenset({"reason", "type", "reportingComponent"})
        | {f"involvedObject.{name}" for name in ("apiVersion", "fieldPath", "kind", "name", "namespace", "uid")},
    ),
    "leases": Resource("Lease", LEASES, verbs=(*_READ, "create", "patch", "update")),
    "statefulsets": Resource("StatefulSet", APPS, short=("sts",), verbs=(*_READ, "patch")),
    "horizontalpodautoscalers": Resource("HorizontalPodAutoscaler", AUTOSCALING, short=("hpa",)),
}
GROUPS = (APPS, AUTOSCALING, LEASES, EVENTS, REVIEWS)


def _resource(plural: str, one: Resource) -> Json:
    names = {"name": plural, "singularName": one.kind.lower(), "shortNames": list(one.short)}
    return names | {"namespaced": one.namespaced, "kind": one.kind, "verbs": list(one.verbs)}


def _resources(version: str) -> list[Json]:
    """What one version of a group serves. Events of the new group are only written: they are listed in the old form."""
    if version == EVENTS:
        return [_resource("events", KINDS["events"]._replace(verbs=("create", "patch")))]
    if version == REVIEWS:
        review = Resource("SelfSubjectAccessReview", namespaced=False, verbs=("create",))
        return [_resource("selfsubjectaccessreviews", review)]
    return [_resource(plural, one) for plural, one in KINDS.items() if one.version == version]


def _group(version: str) -> Json:
    name, _, number = version.partition("/")
    served = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _documents() -> dict[str, Json]:
    found: dict[str, Json] = {
        "/api": {"kind": "APIVersions", "versions": [CORE]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(version) for version in GROUPS]},
        "/version": _VERSION,
    }
    for version in (CORE, *GROUPS):
        listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        found[f"/{'apis' if '/' in version else 'api'}/{version}"] = listing | {"resources": _resources(version)}
    for version in GROUPS:
        found[f"/apis/{version.partition('/')[0]}"] = {"kind": "APIGroup", "apiVersion": "v1"} | _group(version)
    return found


DOCUMENTS: dict[str, bytes] = {path: msgspec.json.encode(content) for path, content in _documents().items()}


def review(sent: Json) -> Json:
    """The answer to "may I?": everything that is served may be done."""
    asked = (sent.get("spec") or {}).get("resourceAttributes") or {}
    served = KINDS.get(str(asked.get("resource", "")))
    allowed = served is not None and asked.get("verb") in served.verbs
    return {**sent, "kind": "SelfSubjectAccessReview", "apiVersion": REVIEWS, "status": {"allowed": allowed}}
