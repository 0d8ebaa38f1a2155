import asyncio
import json
import os
from contextlib import aclosing

import pytest

from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.sources.node.podfile import PodFile


def listed(*names, **more):
    items = [{"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"nodeName": "a"}} for name in names]
    return json.dumps({"kind": "PodList", "items": items, **more})


async def until(pods, *names):
    """Follow until these and no other pods are there."""
    async with asyncio.timeout(60):
        async for found in pods:
            if [pod.name for pod in found] == list(names):
                return found
    raise AssertionError("the pods ended")


async def first(source):
    async with aclosing(source.follow()) as pods:
        return await anext(pods)


async def test_the_pods_of_a_file_are_read(tmp_path):
    (tmp_path / "pods.json").write_text(listed("p", "q"))
    assert [pod.name for pod in await first(PodFile(str(tmp_path / "pods.json")))] == ["p", "q"]


async def test_the_pods_of_other_nodes_are_left_out_when_a_node_is_named(tmp_path):
    (tmp_path / "pods.json").write_text(listed("p"))
    assert await first(PodFile(str(tmp_path / "pods.json"), node="b")) == ()


async def test_every_poll_is_a_sign_of_life_and_an_unchanged_file_is_not_decoded_again(tmp_path):
    (tmp_path / "pods.json").write_text(listed("p"))
    async with aclosing(PodFile(str(tmp_path / "pods.json"), poll=0.001).follow()) as pods:
        one, two = await anext(pods), await anext(pods)
    assert one is two


async def test_a_file_that_is_written_to_is_read_again(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text(listed("p"))
    async with aclosing(PodFile(str(path), poll=0.001).follow()) as pods:
        await until(pods, "p")
        path.write_text(listed("q"))
        os.utime(path, ns=(1, 1))
        await until(pods, "q")


@pytest.mark.parametrize("names", [["q"], ["p", "q"]])
async def test_another_file_of_the_same_time_is_read_again(tmp_path, names):
    path, new = tmp_path / "pods.json", tmp_path / "new.json"
    path.write_text(listed("p"))
    async with aclosing(PodFile(str(path), poll=0.001).follow()) as pods:
        await until(pods, "p")
        new.write_text(listed(*names))
        os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        os.replace(new, path)
        await until(pods, *names)


async def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(KubeUnreadable, match=r"pods\.json: No such file"):
        await first(PodFile(str(tmp_path / "pods.json")))


@pytest.mark.parametrize("text", ["", "not JSON", "{}", '{"kind": "PodList", "items": ['])
async def test_a_bad_file_is_refused_each_time_and_taken_once_it_is_good(tmp_path, text):
    path = tmp_path / "pods.json"
    source = PodFile(str(path), poll=0.001)
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(KubeUnreadable, match=r"pods\.json: "):
            await first(source)
    path.write_text(listed("good"))
    assert [pod.name for pod in await first(source)] == ["good"]


async def test_a_file_that_turns_bad_ends_the_following(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text(listed("p"))
    async with aclosing(PodFile(str(path), poll=0.001).follow()) as pods:
        await anext(pods)
        path.write_text("{")
        with pytest.raises(KubeUnreadable):
            await until(pods, "never")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
async def test_what_is_no_file_does_not_hold_us(tmp_path, make):
    make(tmp_path / "pods.json")
    with pytest.raises(KubeUnreadable, match=r"pods\.json: "):
        await first(PodFile(str(tmp_path / "pods.json")))


async def test_what_was_wrong_in_the_list_can_be_asked(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text('{"items": [{"metadata": {"name": "n", "namespace": "ml"}}]}')
    source = PodFile(str(path))
    assert await first(source) == ()
    assert [fault.object for fault in source.faults] == ["Pod/ml/n"]
