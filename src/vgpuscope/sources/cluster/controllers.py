"""Reads the controller of an object from its metadata."""

from vgpuscope.formats.kube.objects import decode_controller
from vgpuscope.formats.kube.paths import object_path
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources.kube import KubeClient

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"  # no spec: it may hold secrets


async def controller_of(api: KubeClient, namespace: str, one: Controller) -> Controller | None:
    """Its controller; None if it has no controller or is deleted. Raises KubeForbidden, KubeUnreadable."""
    path = object_path(one.api_version, one.kind, one.name, namespace=namespace)
    data = await api.find(path, accept=_METADATA)
    try:
        return None if data is None else decode_controller(data, uid=one.uid)
    except ValueError as e:
        raise KubeUnreadable(f"{one.kind} {namespace}/{one.name}: {e}") from e
