"""ResourceSlices and ResourceClaims at the API server, as far as they concern one node.

They are asked for, not watched: a claim keeps its devices as long as a pod uses it, so a new claim is the only event
that matters. The agent needs two rights for this: to list slices, and to get a claim by its name.
"""

from urllib.parse import quote

from vgpuscope.formats.kube.dra import decode_claim, decode_slices
from vgpuscope.formats.kube.lists import ObjectPage
from vgpuscope.model.dra import AllocatedClaim, SliceState
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.kube import KubeClient, RenewedClient, all_pages, served_version

_GROUP, _VERSIONS = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")
_PAGE = "500"


class KubeClaims:
    """Slices of one node, and claims by name."""

    def __init__(self, *, node: str, kubeconfig: str | None, timeout: Seconds = 10.0) -> None:
        self._node = node
        self._client = RenewedClient(kubeconfig)
        self._api = KubeClient(self._client, timeout=timeout)
        self._version = ""

    async def slices(self) -> tuple[SliceState, ...]:
        """The slices of the node that have GPUs; raises KubeForbidden or KubeUnreadable."""
        return await self._slices_of(self._node)

    async def slices_without_node(self) -> tuple[SliceState, ...]:
        """The slices of the cluster that name no node, so that each of their devices may. Raises as `slices` does."""
        return await self._slices_of("")

    async def _slices_of(self, node: str) -> tuple[SliceState, ...]:
        path = f"{await self._group()}/resourceslices"
        first = {"fieldSelector": f"spec.nodeName={node}", "limit": _PAGE}

        async def page(token: str) -> ObjectPage[SliceState]:
            more = {"continue": token} if token else {"resourceVersion": "0"}  # 0: from the server's cache
            answer = await self._api.find(path, first | more)
            if answer is None:
                self._version = ""  # the server was changed
                raise KubeUnreadable(f"the API server does not serve {path} any more")
            return decode_slices(answer)

        return tuple(one for found in await all_pages(page) for one in found.items)

    async def claim(self, whole_name: str) -> AllocatedClaim | None:
        """The claim by namespace/name; None if it does not exist any more. Raises as `slices` does."""
        namespace, name = (quote(part, safe="") for part in whole_name.split("/", 1))
        path = f"{await self._group()}/namespaces/{namespace}/resourceclaims/{name}"
        answer = await self._api.find(path)
        return None if answer is None else decode_claim(answer)

    async def close(self) -> None:
        await self._client.close()

    async def _group(self) -> str:
        """The path of the newest version that the server serves."""
        self._version = self._version or await served_version(self._api, _GROUP, _VERSIONS) or ""
        if not self._version:
            raise KubeUnreadable(f"the API server serves none of {_GROUP} {', '.join(_VERSIONS)}")
        return f"/apis/{_GROUP}/{self._version}"
