"""The registration with a kubelet that is absent, deaf, slow or none at all."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from tests.standins.kubelet import Kubelet, plugin_directory
from vgpuscope.model.errors import KubeletAbsent, KubeletDown
from vgpuscope.model.plugin import Injection
from vgpuscope.sources.plugin.kubelet import ENDPOINT, KubeletSide


@pytest.fixture
def directory():
    with plugin_directory() as path:
        yield path


class Nobody:
    async def allocate(self, ids):
        raise ValueError("secret words of a traceback")

    async def prefer(self, available, required, size):
        return tuple(available[:size])

    def unanswered(self, injection):
        pass


@asynccontextmanager
async def side(path, *, patience=60.0):
    made = KubeletSide(str(path), Nobody(), timeout=patience)
    yield made
    await made.close()


async def test_without_a_socket_the_kubelet_is_absent(directory):
    async with side(directory) as plugin:
        assert plugin.kubelet() is None
        with pytest.raises(KubeletAbsent):
            await plugin.register()


async def test_a_socket_that_nobody_listens_on_is_down(directory):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / "kubelet.sock"))
    async with side(directory) as plugin:
        with pytest.raises(KubeletDown, match="refused"):
            await plugin.register()


async def test_a_kubelet_that_hangs_is_down_after_the_timeout(directory):
    talks = []

    async def silent(reader, writer):
        talks.append(asyncio.current_task())
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(silent, str(directory / "kubelet.sock"))
    async with server, side(directory, patience=0.2) as plugin:
        with pytest.raises(KubeletDown, match=r"0\.2 s"):
            await plugin.register()
        await asyncio.gather(*talks)


async def test_a_plain_file_is_no_kubelet(directory):
    (directory / "kubelet.sock").touch()
    async with side(directory) as plugin:
        assert plugin.kubelet() is None


async def test_a_directory_that_cannot_be_used_is_an_error_with_a_code(directory):
    async with side(directory / "nowhere") as plugin:
        with pytest.raises(KubeletAbsent, match="nowhere"):
            await plugin.listen()


async def test_closing_removes_our_socket_but_not_one_of_another_program(directory):
    async with side(directory) as plugin:
        await plugin.listen()
        assert plugin.listening
        assert (directory / ENDPOINT).stat().st_mode & 0o777 == 0o600
        (directory / ENDPOINT).unlink()
        assert not plugin.listening
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(directory / ENDPOINT))
            await plugin.close()
            assert (directory / ENDPOINT).exists()
    (directory / ENDPOINT).unlink()
    async with side(directory) as plugin:
        await plugin.listen()
    assert not (directory / ENDPOINT).exists()


async def test_an_unexpected_error_reaches_the_kubelet_as_a_code_without_details(directory):
    import grpc

    with Kubelet(directory) as kubelet:
        async with side(directory) as plugin:
            await plugin.listen()
            await plugin.register()
            await asyncio.to_thread(kubelet.until, lambda: kubelet.lists)
            with pytest.raises(grpc.RpcError) as refused:
                await asyncio.to_thread(kubelet.allocate, ["a"])
            assert refused.value.details() == "SCHED_ALLOCATE_FAILED: ValueError"


async def test_the_list_of_devices_ends_with_a_status_and_the_socket_opens_again(directory):
    with Kubelet(directory) as kubelet:
        async with side(directory) as plugin:
            for _ in range(2):
                kubelet.lists.clear()
                async with asyncio.timeout(60):
                    await plugin.listen()
                await plugin.register()
                await asyncio.to_thread(kubelet.until, lambda: kubelet.lists)
        await asyncio.to_thread(kubelet.until, lambda: kubelet.ends == ["OK", "OK"])


async def test_an_answer_that_is_ready_reaches_the_kubelet_before_the_server_closes(directory):
    class Slow(Nobody):
        async def allocate(self, ids):
            asked.set()
            await released.wait()
            return Injection(envs={"ID": ids[0]}, mounts=())

    asked, released = asyncio.Event(), asyncio.Event()
    with Kubelet(directory) as kubelet:
        plugin = KubeletSide(str(directory), Slow())
        await plugin.listen()
        await plugin.register()
        await asyncio.to_thread(kubelet.until, lambda: plugin.followers)
        answer = asyncio.create_task(asyncio.to_thread(kubelet.allocate, ["a"]))
        await asked.wait()
        released.set()
        await plugin.close()
        assert [dict(one.envs) for one in await answer] == [{"ID": "a"}]


async def test_a_connection_that_the_kubelet_keeps_is_closed_by_the_plugin(directory):
    async with side(directory) as plugin:
        await plugin.listen()
        reader, writer = await asyncio.open_unix_connection(directory / ENDPOINT)
        settings = await reader.readexactly(9)  # the head of the first frame of HTTP/2
        assert settings[3] == 4
        async with asyncio.timeout(60):
            await plugin.close()
            await reader.read()
        writer.close()
