"""Manifests → the pods that they would create: a pod itself, or the template of a workload with its replicas."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.model.errors import BodyInvalid

_DEEPEST = 4  # lists within lists
MOST_REPLICAS = 10_000


class WantedPod(Struct, frozen=True, kw_only=True):
    """A pod that a manifest asks for, and how many of it."""

    kind: str  # of the manifest: Deployment
    name: str
    pod: dict[str, Any]  # a manifest of kind Pod
    replicas: int | None = None  # None: the manifest does not say it


def wanted_pods(manifest: object, *, depth: int = 0) -> Iterator[WantedPod]:
    """The pods of a manifest; none for objects that create no pods, such as a Service. Raises BodyInvalid."""
    found = _object(manifest, "the manifest")
    kind, meta = str(found.get("kind") or ""), _object(found.get("metadata"), "metadata")
    if kind.endswith("List") and "items" in found:
        if depth >= _DEEPEST:
            raise BodyInvalid("the manifest has lists within lists within lists")
        for item in _list(found.get("items"), "items"):
            yield from wanted_pods(item, depth=depth + 1)
        return
    spec = _object(found.get("spec"), "spec")
    name = str(meta.get("name") or meta.get("generateName") or "")
    if kind in {"Pod", ""} and "containers" in spec:
        yield WantedPod(kind="Pod", name=name, pod={**found, "kind": "Pod", "metadata": dict(meta)})
    elif (template := _template(spec)) is not None:
        yield WantedPod(
            kind=kind, name=name, pod=_pod(template, meta, name), replicas=_replicas(kind, _spec_of_pods(spec))
        )


def patched(pod: Mapping[str, Any], patch: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A pod with the changes of a JSON Patch that only adds, as the webhook's does."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    for change in patch:
        *parents, last = [part.replace("~1", "/") for part in change["path"].split("/")[1:]]
        place: Any = made
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            place.append(change["value"])
        else:
            place[last] = change["value"]
    return made


def _spec_of_pods(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a spec that has the template: a CronJob's is one level further down."""
    inner = spec.get("jobTemplate")
    return _object(_object(inner, "spec.jobTemplate").get("spec"), "spec.jobTemplate.spec") if inner else spec


def _template(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = _spec_of_pods(spec).get("template")
    if found is None:
        return None
    template = _object(found, "spec.template")
    return template if "containers" in _object(template.get("spec"), "spec.template.spec") else None


def _pod(template: Mapping[str, Any], of: Mapping[str, Any], name: str) -> dict[str, Any]:
    meta = {**_object(template.get("metadata"), "spec.template.metadata"), "name": name}
    if of.get("namespace"):
        meta["namespace"] = of["namespace"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def _replicas(kind: str, spec: Mapping[str, Any]) -> int | None:
    if kind in {"Job", "CronJob"}:
        given = [_count(spec.get(name), f"spec.{name}") for name in ("parallelism", "completions")]
        return min((one for one in given if one is not None), default=1) if given[0] is not None else 1
    found = _count(spec.get("replicas"), "spec.replicas")
    return None if kind == "DaemonSet" else 1 if found is None else found


def _count(value: object, at: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_REPLICAS:
        raise BodyInvalid(f"{at} is {value!r}, not a number from 0 to {MOST_REPLICAS}")
    return value


def _object(value: object, at: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BodyInvalid(f"{at} is not an object")
    return value


def _list(value: object, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyInvalid(f"{at} is not a list")
    return value
