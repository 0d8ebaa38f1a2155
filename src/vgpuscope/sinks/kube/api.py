"""What writers need of the client of the Kubernetes API; `sources.kube.Api` is one."""

from typing import Protocol


class KubeRequests(Protocol):
    """Requests to the API server; they raise KubeForbidden or KubeUnreadable, and end within a time limit."""

    async def find(self, path: str) -> bytes | None: ...

    async def send(self, method: str, path: str, body: bytes, *, media: str) -> tuple[int, bytes]: ...
