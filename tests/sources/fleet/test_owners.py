"""Owners of pods, from a cluster exporter that may have nothing new, or be down."""

import json
from contextlib import asynccontextmanager

import pytest

from tests.sources.fleet.answering import answering
from vgpuscope.model.errors import SourceDown
from vgpuscope.sources.fleet.owners import Owners

GOOD = {"ml/train-0": "StatefulSet/train", "web/web-5d9-x": "Deployment/web"}


class Cluster:
    def __init__(self, said=GOOD, tag=""):
        self.said, self.tag, self.status = said, tag, 200
        self.asked = []
        self.address = ""

    def answer(self, request):
        self.asked.append(request)
        known = self.tag and f"if-none-match: {self.tag}".lower() in request.lower()
        status, body = (304, b"") if known else (self.status, json.dumps(self.said).encode())
        return status, f"etag: {self.tag}\r\n" if self.tag else "", body


@asynccontextmanager
async def asking(cluster, **options):
    async with answering(cluster.answer) as address, Owners(address, **options) as owners:
        yield owners


async def test_owners_are_known_by_namespace_and_pod():
    cluster = Cluster()
    async with asking(cluster) as owners:
        assert await owners.read() == {
            ("ml", "train-0"): "StatefulSet/train",
            ("web", "web-5d9-x"): "Deployment/web",
        }
    assert cluster.asked[0].startswith("GET /api/v1/owners ")


async def test_an_answer_is_kept_for_a_while():
    cluster = Cluster()
    async with asking(cluster) as owners:
        assert await owners.read() == await owners.read()
    assert len(cluster.asked) == 1


async def test_an_answer_that_has_not_changed_is_not_sent_again():
    cluster = Cluster(tag='"v1"')
    async with asking(cluster, kept=0.0) as owners:
        first = await owners.read()
        assert await owners.read() == first != {}
        cluster.said, cluster.tag = {"a/b": "Job/b"}, '"v2"'
        assert await owners.read() == {("a", "b"): "Job/b"}
    assert len(cluster.asked) == 3


@pytest.mark.parametrize(("status", "said"), [(404, {}), (503, {}), (401, {}), (200, ["no"]), (200, {"a/b": 5})])
async def test_what_is_no_list_of_owners_is_source_down(status, said):
    cluster = Cluster(said)
    cluster.status = status
    async with asking(cluster) as owners:
        with pytest.raises(SourceDown):
            await owners.read()


async def test_a_cluster_exporter_that_falls_is_source_down_and_may_come_back():
    cluster = Cluster()
    async with asking(cluster, kept=0.0) as owners:
        good = await owners.read()
        cluster.status = 503
        with pytest.raises(SourceDown):
            await owners.read()
        cluster.status = 200
        assert await owners.read() == good


async def test_nobody_there_is_source_down():
    async with Owners("127.0.0.1:1", timeout=1.0) as owners:
        with pytest.raises(SourceDown, match="no cluster exporter answers"):
            await owners.read()


async def test_names_that_are_none_and_empty_owners_are_left_out():
    async with asking(Cluster({"alone": "Job/x", "/p": "Job/x", "n/": "Job/x", "n/p": ""})) as owners:
        assert await owners.read() == {}
