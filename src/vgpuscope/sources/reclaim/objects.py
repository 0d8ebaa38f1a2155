"""Reads single pods, their owners, their namespace, and all pods of one owner. Nothing is watched or kept.

Every method raises KubeForbidden or KubeUnreadable. Strangers write names, owners and selectors, so an answer that
cannot be had because of them is that object's fault (KubeObjectUnreadable). Only a pod or a namespace, which need
nothing but the API server itself, show that it does not answer. Of owners only metadata is asked for, unless their
selector is needed: a spec may hold secrets.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from vgpuscope.formats.kube.names import checked
from vgpuscope.formats.kube.paths import ObjectRef, list_path
from vgpuscope.formats.kube.workloads import decode_autoscalers, decode_object, decode_pod, decode_pods
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import KubeForbidden, KubeObjectUnreadable, KubeUnreadable
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
        data = await self._api.find(checked(ObjectRef("Pod", name, namespace)).path)
        with _of_this_object():
            return None if data is None else decode_pod(data)

    async def owner(self, namespace: str, of: Controller) -> KubeObject | None:
        """The object that a reference names; None if it is gone, or another one has its name."""
        accept = "*/*" if of.kind in _WITH_SELECTOR else _METADATA
        ref = checked(ObjectRef(of.kind, of.name, namespace, api_version=of.api_version))
        with _of_this_object():  # also 503: the reference may name a group whose own server is down
            data = await self._api.find(ref.path, accept=accept)
            found = None if data is None else decode_object(data, api_version=of.api_version, kind=of.kind)
        return found if found is not None and found.uid == of.uid else None

    async def namespace(self, name: str) -> KubeObject | None:
        data = await self._api.find(checked(ObjectRef("Namespace", name)).path, accept=_METADATA)
        with _of_this_object():
            return None if data is None else decode_object(data, api_version="v1", kind="Namespace")

    async def pods(self, namespace: str, selector: str) -> tuple[KubePod, ...]:
        """All pods that a selector selects."""
        asked = {"labelSelector": selector, "limit": str(_MOST)}
        with _of_this_object():  # also a list that is too large or too slow
            return decode_pods(await self._list(list_path("v1", "Pod", namespace=namespace), asked))

    async def autoscalers(self, namespace: str) -> tuple[Autoscaler, ...]:
        path = list_path("autoscaling/v2", "HorizontalPodAutoscaler", namespace=namespace)
        with _of_this_object():
            return decode_autoscalers(await self._list(path, {}))

    async def _list(self, path: str, asked: Mapping[str, str]) -> bytes:
        try:
            return await self._api.get(path, asked)
        except VersionForgotten as e:  # no version was asked for
            raise KubeUnreadable(f"the API server answered {e}") from e


@contextmanager
def _of_this_object() -> Iterator[None]:
    """What goes wrong in here costs only the workloads that need this object."""
    try:
        yield
    except (KubeForbidden, KubeObjectUnreadable):
        raise
    except KubeUnreadable as e:
        raise KubeObjectUnreadable(str(e)) from e
