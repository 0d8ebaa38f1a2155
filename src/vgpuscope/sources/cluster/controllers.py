"""Reads the controller of an object from its metadata."""

from urllib.parse import quote

from vgpuscope.formats.kube.objects import decode_controller
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources.kube import Api

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"  # no spec: it may hold secrets


async def controller_of(api: Api, namespace: str, one: Controller) -> Controller | None:
    """Its controller; None if it has no controller or is deleted. Raises KubeForbidden, KubeUnreadable."""
    data = await api.find(_path(namespace, one), accept=_METADATA)
    try:
        return None if data is None else decode_controller(data, uid=one.uid)
    except ValueError as e:
        raise KubeUnreadable(f"{one.kind} {namespace}/{one.name}: {e}") from e


def _path(namespace: str, one: Controller) -> str:
    root = "/apis" if "/" in one.api_version else "/api"
    place = f"namespaces/{quote(namespace, safe='')}/{plural(one.kind)}/{quote(one.name, safe='')}"
    return f"{root}/{quote(one.api_version)}/{place}"


def plural(kind: str) -> str:
    """The kind's plural as used in paths, by the rule that all known controllers follow."""
    word = quote(kind.lower(), safe="")
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"
