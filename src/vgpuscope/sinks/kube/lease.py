"""A Lease at the API server that one replica holds at a time; its record is client-go's, so others can read it."""

from msgspec.structs import replace

from vgpuscope.formats.kube.lease import LeaseRecord, decode_lease, lease_spec
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.sinks.kube.api import KubeRequests
from vgpuscope.sinks.kube.writer import KubeWriter

_GROUP = "coordination.k8s.io/v1"


class KubeLease:
    """One Lease object. Every call may raise KubeUnreadable, KubeForbidden or KubeUnwritten."""

    def __init__(self, api: KubeRequests, writer: KubeWriter, *, namespace: str, name: str) -> None:
        self._api, self._writer = api, writer
        self._namespace, self._name = namespace, name
        self._path = ObjectRef("Lease", name, namespace, api_version=_GROUP).path

    async def read(self) -> LeaseRecord | None:
        """The record; None: there is no such lease yet."""
        found = await self._api.find(self._path)
        return None if found is None else decode_lease(found)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Write a record over the version that it names, or create the lease; raises KubeConflict if that is old."""
        spec = lease_spec(record)
        if record.version:
            version = await self._writer.patch(self._path, {"spec": spec}, version=record.version)
        else:
            body = {
                "apiVersion": _GROUP,
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            version = await self._writer.create(self._path.rpartition("/")[0], body)
        return replace(record, version=version)
