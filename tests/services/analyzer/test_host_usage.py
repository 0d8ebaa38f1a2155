"""A pod or a node beside its GPUs: who is asked, how often, and what a failure leaves."""

import asyncio
import json
from typing import cast

import pytest

from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.host import HostSide, HostUse, NodeHost
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.services.analyzer.console import host_usage as module
from vgpuscope.services.analyzer.console.agent_facts import EngineFacts, PageFacts
from vgpuscope.services.analyzer.console.host_usage import HostUsage
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.sources.fleet.scrape import LastPage

KEY = ContainerKey(namespace="ml", pod="train", pod_uid="u", container="main")
SAMPLE = NodeSnapshot(
    at=1000.0,
    node="n",
    ratio=1.0,
    host=HostSide(node=NodeHost(cpus=8, cpu_used=0.5), containers=(HostUse(key=KEY, cpu_cores=6.5, over=60.0),)),
)


class Agents:
    """Agents that answer with one sample, or not at all; counts what they are asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    def client(self, target: str, **_: object) -> "Agents":
        self.asked.append(target)
        return self

    async def __aenter__(self) -> "Agents":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def snapshot(self) -> NodeSnapshot:
        if self.down:
            raise SourceDown("no answer")
        return SAMPLE


@pytest.fixture
def agents(monkeypatch) -> Agents:
    found = Agents()
    monkeypatch.setattr(module, "AgentApi", found.client)
    return found


async def scraped() -> HostUsage:
    pages = PageFacts(lambda: {"agent-n:9394": LastPage(b'vgpuscope_source_up{node="n",source="nvml"} 1\n', False)})
    await pages.fleet()
    return HostUsage(pages, token=None)


async def test_many_who_look_at_one_node_cost_its_agent_one_request(agents):
    beside = await scraped()
    pods = await asyncio.gather(*(beside.pod("n", "ml", "train", "u") for _ in range(50)))
    node = await beside.node("n")
    assert {pod.containers[0].cpu_cores for pod in pods if pod} == {6.5}
    assert node is not None
    assert node.cpu_used == 0.5
    assert agents.asked == ["agent-n:9394"]


async def test_an_agent_that_does_not_answer_leaves_nothing(agents):
    beside = await scraped()
    agents.down = True
    assert await beside.pod("n", "ml", "train", "u") is None
    assert await beside.node("n") is None


async def test_a_node_whose_agent_is_not_scraped_is_not_known(agents):
    beside = await scraped()
    assert await beside.node("elsewhere") is None
    assert agents.asked == []
    assert await HostUsage(None, token=None).pod("n", "ml", "train", "u") is None


async def test_what_is_kept_is_bounded(agents):
    names = {f"t{n}:9394": f"n{n}" for n in range(200)}
    pages = PageFacts(
        lambda: {
            target: LastPage(f'vgpuscope_source_up{{node="{node}",source="nvml"}} 1\n'.encode(), False)
            for target, node in names.items()
        }
    )
    await pages.fleet()
    beside = HostUsage(pages, token=None)
    for node in names.values():
        await beside.node(node)
    assert len(beside._readers) <= 64


class Engine:
    """A PromQL engine that answers with one series."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def query(self, query: str, **_: object) -> bytes:
        self.queries.append(query)
        labels = {"__name__": "vgpuscope_host_cpu_seconds_total", "container": "main"}
        row = {"metric": labels, "values": [[985.0, "10"], [1000.0, "40"]]}
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [row]}}).encode()


async def test_with_an_engine_one_query_has_everything_of_a_pod_and_names_it_by_its_uid():
    engine = Engine()
    beside = HostUsage(EngineFacts(cast(PromApi, engine), condition='{cluster="a",pod="x"}'), token=None)
    found = [await beside.pod("n", "ml", "train", "u") for _ in range(3)]
    assert [one.containers[0].cpu_cores for one in found if one] == [2.0, 2.0, 2.0]
    (query,) = engine.queries
    assert 'pod_uid="u"' in query
    assert 'cluster="a"' in query
    assert 'pod="x"' not in query  # that selects tenants of the analysis
    assert query.endswith("[299999ms]")  # one query for the samples of five minutes


async def test_a_pod_that_was_made_again_is_asked_for_under_its_new_uid():
    engine = Engine()
    beside = HostUsage(EngineFacts(cast(PromApi, engine), condition="{}"), token=None)
    for uid in ("u", "v", None):
        await beside.pod("n", "ml", "train", uid)
    assert ['pod_uid="u"' in query for query in engine.queries] == [True, False, False]
    assert 'namespace="ml"' in engine.queries[2]
