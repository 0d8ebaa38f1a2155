"""Directories of containers whose pods are gone: removed with a list of pods, and never without one."""

import os
from types import SimpleNamespace

import pytest

from tests.standins.smallapi import small_api
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.services.plugin.leftovers import Leftovers
from vgpuscope.sinks.container_dirs import ContainerDirs

NOW = 1_800_000_000.0


@pytest.fixture
async def world(tmp_path):
    """A pod that runs on the node, one that ended there, one of another node, and one that is gone."""
    root = tmp_path / "containers"
    for name, age in {"here": 900, "ended": 900, "elsewhere": 900, "gone": 900, "young": 200}.items():
        path = root / f"uid-{name}_main"
        path.mkdir(parents=True)
        (path / "region.cache").touch()
        os.utime(path, (NOW - age, NOW - age))
    (root / "notes").mkdir()
    os.utime(root / "notes", (NOW - 900, NOW - 900))
    with small_api(tmp_path) as api:
        api.node("n1")
        api.pod("here", {}, phase="Running")
        api.pod("ended", {}, phase="Succeeded")
        api.pod("elsewhere", {}, node="n2", phase="Running")
        cluster, counters = ClusterSide("n1", api.kubeconfig), Counters()
        dirs = ContainerDirs(str(tmp_path), str(tmp_path / "locks"))
        left = Leftovers(cluster, dirs, count=counters.count, clock=lambda: NOW)
        yield SimpleNamespace(api=api, root=root, left=left, counters=counters)
        await cluster.close()


def names(world):
    return sorted(path.name.removeprefix("uid-").removesuffix("_main") for path in world.root.iterdir())


ALL = ["elsewhere", "ended", "gone", "here", "notes", "young"]


async def test_directories_of_pods_that_are_not_on_the_node_are_removed(world):
    await world.left.round()
    assert names(world) == ["ended", "here", "notes", "young"]
    assert world.left.removed == 2
    await world.left.round()
    assert (world.left.removed, world.counters.errors) == (2, {})


@pytest.mark.parametrize(
    ("part", "status", "code"),
    [("/pods", 503, "KUBE_UNREADABLE"), ("/pods", 403, "KUBE_FORBIDDEN"), ("/nodes", 500, "")],
)
async def test_without_a_list_of_pods_nothing_is_removed(world, part, status, code):
    world.api.fail["GET", part] = status
    await world.left.round()
    assert names(world) == ALL
    assert world.left.removed == 0
    assert world.counters.errors == {code or "KUBE_UNREADABLE": 1}


async def test_a_node_that_the_api_server_does_not_know_loses_nothing(world):
    world.api.objects.clear()  # a wrong name of the node: its list of pods would be empty
    await world.left.round()
    assert names(world) == ALL
    assert world.counters.errors == {"KUBE_ABSENT": 1}


async def test_a_pod_that_cannot_be_read_is_not_taken_for_gone(world):
    world.api.objects["/api/v1/namespaces/ml/pods/here"]["metadata"]["uid"] = 7
    await world.left.round()
    assert names(world) == ALL
    assert world.counters.errors == {"KUBE_UNREADABLE": 1}


async def test_without_old_directories_the_api_server_is_not_asked(world):
    await world.left.round()
    world.api.fail["GET", "/"] = 500
    for path in world.root.iterdir():
        os.utime(path, (NOW, NOW))
    await world.left.round()
    assert world.counters.errors == {}
