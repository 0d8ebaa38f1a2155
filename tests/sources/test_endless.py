"""A list of the API server that has no end is an error, and not a process that asks for ever."""

import json
from typing import Any

import pytest

from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources import kube
from vgpuscope.sources.fleet.targets import ServiceTargets
from vgpuscope.sources.kube import Watch

pytestmark = pytest.mark.attack


class Endless:
    """Answers every request for a list with one more page; `token` makes its continue token."""

    def __init__(self, kind, token):
        self.kind, self.token, self.asked = kind, token, 0

    async def get(self, path, params):
        self.asked += 1
        assert self.asked < 10_000, "it asks for ever"
        meta = {"resourceVersion": "7", "continue": self.token(self.asked)}
        return json.dumps({"kind": f"{self.kind}List", "metadata": meta, "items": []}).encode()


TOKENS = {"always the same": lambda _: "more", "always another": str, "two in turn": lambda n: "ab"[n % 2]}
PAGES = {"always the same": 2, "always another": 50, "two in turn": 3}


@pytest.mark.parametrize("kind", TOKENS)
async def test_a_list_without_an_end_is_an_error(kind, monkeypatch):
    monkeypatch.setattr(kube, "_MOST_PAGES", 50)
    api: Any = Endless("Pod", TOKENS[kind])
    watch = Watch(
        path="/api/v1/pods", params={}, decode_page=decode_pods, decode_event=decode_event, key=lambda pod: pod.uid
    )
    with pytest.raises(KubeUnreadable, match="does not end"):
        await watch.run(api, lambda: None)
    assert api.asked == PAGES[kind]


@pytest.mark.parametrize("kind", TOKENS)
async def test_endpoints_without_an_end_are_a_fault_of_their_service(kind, monkeypatch):
    monkeypatch.setattr(kube, "_MOST_PAGES", 50)
    api: Any = Endless("EndpointSlice", TOKENS[kind])
    targets = ServiceTargets(["ml/agent:9394"], api=api)
    with pytest.raises(KubeUnreadable, match="does not end"):
        await targets()
    assert [fault.part for fault in targets.faults()] == ["service ml/agent:9394"]


async def test_a_list_of_as_many_pages_as_a_large_cluster_has_is_read():
    api = Endless("Pod", lambda asked: str(asked) if asked < 3000 else "")
    pages = await kube.all_pages(lambda token: page(api, token))
    assert (len(pages), api.asked) == (3000, 3000)


async def page(api, token):
    return decode_pods(await api.get("/api/v1/pods", {"continue": token}))


class Broken:
    """Fails in a way that no error of ours describes, for one Service."""

    async def get(self, path, params):
        if "bad" in params["labelSelector"]:
            raise RuntimeError("a broken promise of our own")
        endpoint = {"addresses": ["10.0.0.1"]}
        item = {"metadata": {"name": "s"}, "endpoints": [endpoint], "ports": [{"port": 9394}]}
        return json.dumps({"kind": "EndpointSliceList", "items": [item]}).encode()


async def test_an_unexpected_error_of_one_service_leaves_the_targets_of_the_others():
    api: Any = Broken()
    targets = ServiceTargets(["ml/bad:9394", "ml/good:9394"], api=api)
    assert await targets() == ("http://10.0.0.1:9394",)
    assert [(fault.part, fault.code) for fault in targets.faults()] == [("service ml/bad:9394", "INTERNAL")]
