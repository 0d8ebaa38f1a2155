"""The registration with a kubelet that is absent, deaf, slow or none at all."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from tests.standins.kubelet import Kubelet, plugin_directory
from vgpuscope.model.errors import KubeletAbsent, KubeletDown
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
            kubelet.forget()
