"""Reads single pods, their owners, their namespace, and all pods of one owner. Nothing is watched or kept.

Every method raises KubeForbidden or KubeUnreadable. Of owners only metadata is asked for, unless their selector is
needed: a spec may hold secrets.
"""

from collections.abc import Mapping

from vgpuscope.formats.kube.paths import list_path, object_path
from vgpuscope.formats.kube.workloads import decode_autoscalers, decode_object, decode_pod, decode_pods
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.kube_object import Autoscaler, KubeObject, KubePod
from vgpuscope.sources.kube import KubeClient, VersionForgotten

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_WITH_SELECTOR = {"Deployment", "StatefulSet", "ReplicaSet", "Job"}
_MOST = 1000  # pods of one owner: more are refused, because a part of them proves nothing


class ObjectReader:
    """Reads through one client of the API."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api

    async def pod(self, namespace: str, name: str) -> KubePod | None:
        """The pod that has this name now; None if there is none."""
        data = await self._api.find(object_path("v1", "Pod", name, namespace=namespace))
        return None if data is None else decode_pod(data)

    async def owner(self, namespace: str, of: Controller) -> KubeObject | None:
        """The object that a reference names; None if it is gone, or another one has its name."""
        accept = "*/*" if of.kind in _WITH_SELECTOR else _METADATA
        path = object_path(of.api_version, of.kind, of.name, namespace=namespace)
        data = await self._api.find(path, accept=accept)
        found = None if data is None else decode_object(data, api_version=of.api_version, kind=of.kind)
        return found if found is not None and found.uid == of.uid else None

    async def namespace(self, name: str) -> KubeObject | None:
        data = await self._api.find(object_path("v1", "Namespace", name), accept=_METADATA)
        return None if data is None else decode_object(data, api_version="v1", kind="Namespace")

    async def pods(self, namespace: str, selector: str) -> tuple[KubePod, ...]:
        """All pods that a selector selects."""
        asked = {"labelSelector": selector, "limit": str(_MOST)}
        return decode_pods(await self._list(list_path("v1", "Pod", namespace=namespace), asked))

    async def autoscalers(self, namespace: str) -> tuple[Autoscaler, ...]:
        path = list_path("autoscaling/v2", "HorizontalPodAutoscaler", namespace=namespace)
        return decode_autoscalers(await self._list(path, {}))

    async def _list(self, path: str, asked: Mapping[str, str]) -> bytes:
        try:
            return await self._api.get(path, asked)
        except VersionForgotten as e:  # no version was asked for
            raise KubeUnreadable(f"the API server answered {e}") from e
