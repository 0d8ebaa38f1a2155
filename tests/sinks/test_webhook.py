"""The signature of a call, against the example that the Standard Webhooks libraries publish; and slow services."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from vgpuscope.model.errors import CallFailed
from vgpuscope.sinks.webhook import Webhook, signature

TIMEOUT = 0.5
PATIENCE = 20 * TIMEOUT  # far more than a call may take, however slow the machine


def test_the_published_example_is_signed_as_published():
    signed = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        key="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@asynccontextmanager
async def dripping(head: str, piece: bytes, *, pause: float = TIMEOUT / 5) -> AsyncIterator[tuple[str, list[int]]]:
    """A service that sends its answer piece by piece, and never ends it. Beside its address: what it sent, in bytes."""
    sent: list[int] = []

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode())
        with suppress(ConnectionError):
            while True:
                writer.write(piece)
                sent.append(len(piece))
                await writer.drain()
                await asyncio.sleep(pause)  # the pace of a receiver that answers slowly
        writer.close()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", sent
    finally:
        async with asyncio.timeout(PATIENCE):
            await served.wait()  # the caller has closed its connection
        server.close()


async def send(url: str) -> int:
    async with asyncio.timeout(PATIENCE), Webhook(url, secret="", timeout=TIMEOUT, agent="test") as webhook:
        return await webhook.send(b"{}", key="k", now=0.0)


@pytest.mark.attack
async def test_the_timeout_is_that_of_the_whole_call_and_not_of_each_byte():
    begun = time.monotonic()
    async with dripping("HTTP/1.1 200 OK\r\n", b"x: y\r\n") as (url, _):
        with pytest.raises(CallFailed, match=r"within 0\.5 s"):
            await send(url)
    assert time.monotonic() - begun >= TIMEOUT


@pytest.mark.attack
async def test_a_refusal_without_an_end_is_given_up():
    async with dripping("HTTP/1.1 500 No\r\ncontent-length: 9999999\r\n\r\n", b"x") as (url, _):
        with pytest.raises(CallFailed, match=r"500|within"):
            await send(url)


@pytest.mark.attack
async def test_the_body_of_an_acceptance_is_not_read():
    async with dripping("HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n", b"x") as (url, _):
        assert await send(url) == 200


@pytest.mark.attack
async def test_only_the_beginning_of_a_refusal_is_read():
    async with dripping("HTTP/1.1 418 No\r\ncontent-length: 9999999999\r\n\r\n", b"tea " * 65536, pause=0) as (
        url,
        sent,
    ):
        with pytest.raises(CallFailed, match="418: 'tea tea"):
            await send(url)
    assert sum(sent) < 64 * 2**20
