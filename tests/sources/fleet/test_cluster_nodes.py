"""Nodes of the cluster, from a cluster exporter that may be starting or down."""

import json
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec import structs

from tests.logic.console.clusters import GIB, device, holder, node
from tests.sources.fleet.answering import answering
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.errors import SourceDown
from vgpuscope.sources.fleet.cluster_nodes import ClusterNodes

LEDGERS = [NodeLedger(name="node-a"), NodeLedger(name="node-b", ready=False), NodeLedger(name="ghost", known=False)]


class Exporter:
    """Answers as a cluster exporter does: /readyz says what has yet to be listed."""

    def __init__(self):
        self.missing, self.status, self.asked = [], 200, []
        self.nodes = msgspec.json.encode(LEDGERS)

    def answer(self, request):
        path = request.split()[1]
        self.asked.append(path)
        status, body = self.status, self.nodes
        if path == "/readyz":
            status = 503 if self.missing else 200
            body = json.dumps({"ready": not self.missing, "missing": self.missing}).encode()
        return status, "", body


@asynccontextmanager
async def asking(exporter, **options):
    async with answering(exporter.answer) as address, ClusterNodes(address, **options) as nodes:
        yield nodes


async def test_nodes_that_the_cluster_has_are_listed_also_those_that_are_not_ready():
    exporter = Exporter()
    async with asking(exporter) as nodes:
        assert await nodes.read() == {"node-a", "node-b"}
        assert await nodes.read() == {"node-a", "node-b"}
    assert exporter.asked == ["/readyz", "/api/v1/nodes"]  # the answer was kept


async def test_before_all_nodes_are_listed_nothing_is_known():
    exporter = Exporter()
    exporter.missing = ["nodes"]
    async with asking(exporter) as nodes:
        with pytest.raises(SourceDown, match="has not listed nodes yet"):
            await nodes.read()
        exporter.missing = []
        assert await nodes.read() == {"node-a", "node-b"}


@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (200, b"<html>"), (200, b'{"a": 1}'), (404, b"")])
async def test_an_answer_that_is_no_list_of_nodes_is_none(status, body):
    exporter = Exporter()
    exporter.status, exporter.nodes = status, body
    async with asking(exporter) as nodes:
        with pytest.raises(SourceDown):
            await nodes.read()


async def test_allocations_are_those_of_the_ledger_and_are_fetched_with_the_nodes():
    exporter = Exporter()
    held = [
        holder("GPU-0", "a", memory=GIB, cores=30),
        holder("GPU-0", "a", memory=GIB),
        holder("GPU-0", "b", memory=7),
    ]
    ledger = node("node-a", device("GPU-0", allocated=2 * GIB + 7, cores=30), device("GPU-1"), holders=tuple(held))
    exporter.nodes = msgspec.json.encode([ledger])
    async with asking(exporter) as nodes:
        found = await nodes.allocations()
        assert await nodes.read() == {"node-a"}
    assert found.gpus == {"GPU-0": (2 * GIB + 7, 30), "GPU-1": (0, 0)}
    assert {pod: value for (_, _, pod), value in found.pods.items()} == {"a": (2 * GIB, 30), "b": (7, None)}
    assert exporter.asked == ["/readyz", "/api/v1/nodes"]


async def test_uids_are_those_of_pods_with_a_gpu_however_it_is_assigned_but_not_of_a_name_with_two():
    exporter = Exporter()
    replaced = (holder("GPU-0", "b"), structs.replace(holder("GPU-1", "b"), pod_uid="another"))
    shared = node("node-a", device("GPU-0"), device("GPU-1"), holders=(holder("GPU-0", "a"), *replaced))
    requested = [{"namespace": "ml", "pod": "c", "pod_uid": "uid-c", "count": 1}]
    whole = {"name": "node-b", "offers": [{"holders": requested}]}
    exporter.nodes = json.dumps([msgspec.to_builtins(shared), whole]).encode()
    async with asking(exporter) as nodes:
        found = await nodes.allocations()
    assert found.uids == {("node-a", "ml", "a"): "uid-a", ("node-b", "ml", "c"): "uid-c"}
