"""AdmissionReview of admission.k8s.io/v1: the request to judge a pod that is created, and the answer.

The API server sends the review as JSON and expects the same uid in the answer. A patch is a JSON Patch in base64.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.knowledge.holder_keys import LABELS, is_assignment
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.admission import AdmissionResult, SubmittedContainer, SubmittedPod
from vgpuscope.model.errors import BodyInvalid

_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"
_IGNORE = ("hami.io/webhook", "ignore")
_READ = frozenset({*NVIDIA.resources, "nvidia.com/priority"})


class AdmissionReview(Struct, frozen=True, kw_only=True):
    """A request of the API server."""

    uid: str
    pod: SubmittedPod | None  # None: it is not about a pod that is created
    user: str = ""  # who asks
    assigned: tuple[str, ...] = ()  # what the request changes of the annotations that say who has a GPU


def decode_review(data: bytes) -> AdmissionReview:
    """The request; raises BodyInvalid for anything but an AdmissionReview of version 1."""
    try:
        found = msgspec.json.decode(data, type=_Review)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BodyInvalid(f"AdmissionReview: {e}") from e
    if found.api_version != _VERSION or found.kind != _KIND:
        said = f"{found.api_version[:60]!r} {found.kind[:60]!r}"
        raise BodyInvalid(f"expected {_KIND} of {_VERSION}, got {said}")
    asked = found.request
    if asked is None or not asked.uid:
        raise BodyInvalid("AdmissionReview: request.uid is missing")
    created = (
        asked.operation == "CREATE" and (asked.kind is None or asked.kind.kind == "Pod") and not asked.sub_resource
    )
    pod = _pod(asked) if created and asked.object else None
    return AdmissionReview(uid=asked.uid, pod=pod, user=asked.user_info.username or "", assigned=_assigned(asked))


def submitted_pod(pod: bytes) -> SubmittedPod:
    """A manifest of a pod as the webhook would get it; raises BodyInvalid for anything else."""
    try:
        return _pod(_Request(object=msgspec.json.decode(pod, type=_Pod)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BodyInvalid(f"Pod: {e}") from e


def encode_answer(uid: str, answer: AdmissionResult) -> bytes:
    """The AdmissionReview that allows the pod, changed or not, or denies it."""
    response: dict[str, Any] = {"uid": uid, "allowed": not answer.code}
    if answer.code:
        response["status"] = {"code": 403, "reason": answer.code, "message": f"{answer.code}: {answer.message}"}
    elif answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": _KIND, "response": response})


class _Meta(Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, object] | None = None
    annotations: dict[str, object] | None = None


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _Security(Struct):
    privileged: bool | None = None


class _Variable(Struct):
    name: str | None = None


class _Container(Struct, rename="camel"):
    name: str = ""
    resources: _Resources | None = None
    security_context: _Security | None = None
    env: list[_Variable] | None = None


class _Spec(Struct, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Pod(Struct):
    metadata: _Meta | None = None
    spec: _Spec | None = None


class _Kind(Struct):
    kind: str = ""


class _User(Struct, frozen=True):
    username: str | None = None


class _Request(Struct, rename="camel"):
    uid: str = ""
    operation: str = ""
    namespace: str | None = None
    sub_resource: str | None = None
    kind: _Kind | None = None
    object: _Pod | None = None
    old_object: _Pod | None = None
    user_info: _User = _User()


class _Review(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


def _assigned(asked: _Request) -> tuple[str, ...]:
    after, before = _said(asked.object), _said(asked.old_object)
    return tuple(sorted(key for key in after.keys() | before.keys() if after.get(key) != before.get(key)))


def _said(pod: _Pod | None) -> dict[str, object]:
    """The annotations and labels that say who has a GPU."""
    meta = (pod.metadata if pod is not None else None) or _Meta()
    labels = {f"label {key}": text for key, text in (meta.labels or {}).items() if key in LABELS}
    return labels | {key: text for key, text in (meta.annotations or {}).items() if is_assignment(key)}


def _pod(asked: _Request) -> SubmittedPod:
    assert asked.object is not None
    meta, spec = asked.object.metadata or _Meta(), asked.object.spec or _Spec()
    first, others = spec.init_containers or [], spec.containers or []
    label = (meta.labels or {}).get(_IGNORE[0])
    return SubmittedPod(
        namespace=asked.namespace or meta.namespace or "default",
        name=meta.name or meta.generate_name or "",
        ignored=label == _IGNORE[1],
        node=spec.node_name or "",
        scheduler=spec.scheduler_name or "",
        containers=(
            *(_container(one, f"/spec/initContainers/{number}") for number, one in enumerate(first)),
            *(_container(one, f"/spec/containers/{number}") for number, one in enumerate(others)),
        ),
    )


def _container(one: _Container, path: str) -> SubmittedContainer:
    resources = one.resources or _Resources()
    amounts, wrong = _amounts({**(resources.requests or {}), **(resources.limits or {})})
    return SubmittedContainer(
        path=path,
        name=one.name,
        privileged=bool(one.security_context and one.security_context.privileged),
        amounts=amounts,
        wrong=tuple(f"container {one.name}: {text}" for text in wrong),
        limits=resources.limits is not None,
        requests=resources.requests is not None,
        env=None if one.env is None else frozenset(variable.name or "" for variable in one.env),
    )


def _amounts(given: Mapping[str, object]) -> tuple[dict[str, int], list[str]]:
    amounts, wrong = dict[str, int](), list[str]()
    for name, value in given.items():
        if name not in _READ:
            continue
        amount = whole_number(value)
        if amount is None or amount < 0:
            wrong.append(f"{name} {str(value)[:40]!r} is not a whole number of at least 0")
        else:
            amounts[name] = amount
    return amounts, wrong
