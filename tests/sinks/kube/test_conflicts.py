"""A controller writes an object's status at the moment of our change. The stand-in keeps the rule of the API server:
a patch that names another resourceVersion than the object has is answered with 409, and changes nothing."""

import json
from typing import Any

import pytest

from vgpuscope.model.errors import CallFailed
from vgpuscope.model.reclaim import EarlierChange, ReclaimTarget
from vgpuscope.sinks.kube.reclaimer import ChangeReason, KubeReclaimer
from vgpuscope.sinks.kube.writer import KubeWriter

WEB = ReclaimTarget(kind="Deployment", api_version="apps/v1", name="web", uid="u-1")


def why(key: str) -> ChangeReason:
    return ChangeReason(key=key, namespace="n", pod="web-1", pod_uid="p-1", secret=f"secret of {key}")


def reclaimer(server: "Server") -> KubeReclaimer:
    return KubeReclaimer(server, KubeWriter(server, component="vgpuscope", instance="a"))


class Server:
    """One Deployment. `writes` is the number of our reads that a controller's write follows at once."""

    def __init__(self) -> None:
        self.item: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "uid": "u-1", "resourceVersion": "1", "annotations": {}},
            "spec": {"replicas": 3},
        }
        self.writes = 0
        self.patches = 0

    async def find(self, path: str) -> bytes:
        found = json.dumps(self.item).encode()
        if self.writes:
            self.writes -= 1
            self._newer()
        return found

    async def send(self, method: str, path: str, body: bytes, *, media: str) -> tuple[int, bytes]:
        if method != "PATCH":
            return 201, b"{}"  # the event
        self.patches += 1
        wanted = json.loads(body)
        if wanted["metadata"]["resourceVersion"] != self.item["metadata"]["resourceVersion"]:
            return 409, b'{"kind": "Status", "message": "the object has been modified"}'
        del wanted["metadata"]["resourceVersion"]
        self.item = merged(self.item, wanted)
        self._newer()
        return 200, json.dumps(self.item).encode()

    def _newer(self) -> None:
        self.item["metadata"]["resourceVersion"] = str(int(self.item["metadata"]["resourceVersion"]) + 1)


def merged(item: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(item) if isinstance(item, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


@pytest.fixture
async def taken() -> Server:
    server = Server()
    await reclaimer(server).stop(WEB, why("take"), now=1000.0)
    assert server.item["spec"]["replicas"] == 0
    return server


async def restored(server: Server) -> None:
    await reclaimer(server).restore(
        WEB, why("back"), earlier=[EarlierChange(key="take", secret="secret of take")], now=2000.0
    )


async def test_a_restore_that_meets_a_controllers_write_looks_again_at_once(taken: Server):
    taken.writes, taken.patches = 2, 0
    await restored(taken)
    assert (taken.item["spec"]["replicas"], taken.patches) == (3, 3)


async def test_a_restore_that_is_repeated_changes_nothing(taken: Server):
    await restored(taken)
    before = taken.item["metadata"]["resourceVersion"]
    await restored(taken)
    assert taken.item["metadata"]["resourceVersion"] == before


async def test_an_object_that_never_rests_is_left_for_a_later_attempt(taken: Server):
    taken.writes = 1000
    with pytest.raises(CallFailed):
        await restored(taken)
    assert taken.item["spec"]["replicas"] == 0


async def test_a_stop_is_not_repeated_on_an_object_that_changed_since_the_look():
    """What was looked at may not hold any more: the whole check comes first again."""
    server = Server()
    server.writes = 1
    with pytest.raises(CallFailed, match="409"):
        await reclaimer(server).stop(WEB, why("take"), now=1000.0)
    assert (server.item["spec"]["replicas"], server.patches) == (3, 1)
