"""A stand-in for a language model's server, on a real socket: it speaks each provider's wire format, well or badly.

It follows the public references: OpenAI's "Create chat completion", Azure OpenAI's data plane ("Chat completions -
Create", api-version and api-key), Anthropic's "Messages". It shares no code with the product.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

_ENOUGH = 16 * 2**20  # bytes of an answer without an end: a reader that takes them all has no limit
HONEST = {
    "status": "idle",
    "confidence": 0.9,
    "reason": "Nothing was computed",
    "recommendation": "Take it back",
    "reason_zh": "窗口内没有计算",
    "recommendation_zh": "可以收回",
    "ai_adjusted_score": 3.5,
}


class Asked(NamedTuple):
    """One request as it arrived."""

    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def user(self) -> str:
        return str(self.body["messages"][-1]["content"])

    @property
    def system(self) -> str:
        return str(self.body.get("system") or self.body["messages"][0]["content"])


class Said(NamedTuple):
    """One answer: a status, headers and a body; `endless`: the body never ends; `hang`: nothing is ever sent."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    endless: bytes = b""
    drip: bytes = b""  # sent again and again, slowly, within a declared length
    hang: bool = False


Speaks = Callable[[Asked], Said]


class Llm:
    """The server. `says` decides what is answered; it may be replaced at any time."""

    def __init__(self, says: Speaks | None = None) -> None:
        self.says: Speaks = says or honest()
        self.asked: list[Asked] = []
        self.open = 0  # requests in work
        self.most_open = 0
        self.hold: asyncio.Event | None = None  # if set, answers wait for it
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Llm":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, EOFError, asyncio.CancelledError):
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                self.open += 1
                self.most_open = max(self.most_open, self.open)
                try:
                    if self.hold is not None:
                        await self.hold.wait()
                    await _write(writer, self.says(asked))
                finally:
                    self.open -= 1
        self._tasks.discard(task)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    line = await reader.readline()
    if not line:
        return None
    target = line.split()[1].decode()
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).strip()) != b"":
        name, _, value = header.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Asked(parts.path, parse_qs(parts.query), headers, json.loads(body) if body else {})


async def _write(writer: asyncio.StreamWriter, said: Said) -> None:
    if said.hang:
        await asyncio.Event().wait()
    endless = said.endless or said.drip
    length = "" if endless else f"content-length: {len(said.body)}\r\n"
    extra = "".join(f"{name}: {value}\r\n" for name, value in said.headers)
    head = f"HTTP/1.1 {said.status} X\r\ncontent-type: application/json\r\n{length}{extra}"
    writer.write((head + ("connection: close\r\n" if endless else "") + "\r\n").encode() + said.body)
    await writer.drain()
    for _ in range(_ENOUGH // len(endless) if endless else 0):
        writer.write(endless)
        await writer.drain()
        if said.drip:
            await asyncio.sleep(0.05)  # the pace of a slow stream, which is what is tested
    if "close" in dict(said.headers).get("connection", ""):
        writer.close()


@contextlib.contextmanager
def listening(says: Speaks | None = None) -> Iterator[Llm]:
    """The server in a thread of its own, for tests without a loop."""
    loop, found = asyncio.new_event_loop(), Llm(says)
    thread = threading.Thread(target=loop.run_forever, name="language model")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(found.__aenter__(), loop).result(30)
        try:
            yield found
        finally:
            asyncio.run_coroutine_threadsafe(found.__aexit__(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# ── what it can say ──────────────────────────────────────────────────────────────────────────────────────────────


def wire(asked: Asked, text: str, *, finish: str = "stop", tokens: tuple[int, int] = (900, 60)) -> bytes:
    """A model's words in the format of the address that was asked."""
    if asked.path.endswith("/v1/messages"):
        return _messages(asked, text, finish=finish, tokens=tokens)
    assert asked.path.endswith("/chat/completions"), asked.path
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": asked.body["model"] + "-0613",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
    }
    return json.dumps(body).encode()


def _messages(asked: Asked, text: str, *, finish: str, tokens: tuple[int, int]) -> bytes:
    """The tool is called if the words are JSON; else the model answers in words."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if isinstance(given, dict):
        block = {"type": "tool_use", "id": "toolu_1", "name": asked.body["tools"][0]["name"], "input": given}
    else:
        block = {"type": "text", "text": text}
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.body["model"],
        "content": [block],
        "stop_reason": "max_tokens" if finish == "length" else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]},
    }
    return json.dumps(body).encode()


def honest(**changes: Any) -> Speaks:
    return words(json.dumps({**HONEST, **changes}, ensure_ascii=False))


def words(text: str, **more: Any) -> Speaks:
    return lambda asked: Said(body=wire(asked, text, **more))


def status(code: int, *, message: str = "no", **headers: str) -> Speaks:
    body = json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return lambda _: Said(status=code, body=body, headers=given)


def raw(body: bytes) -> Speaks:
    return lambda _: Said(body=body)


def said(one: Said) -> Speaks:
    return lambda _: one
