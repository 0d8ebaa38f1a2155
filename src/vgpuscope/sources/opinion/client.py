"""What the SDKs of all providers share: one question, one bounded answer, no redirects, no retries, our errors."""

import importlib
import importlib.util
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx2
from msgspec import Struct

from vgpuscope.model.errors import (
    AiAnswerInvalid,
    AiAnswerTooLarge,
    AiFailed,
    AiRateLimited,
    AiRedirected,
    AiRejected,
    AiSdkAbsent,
    AiTimeout,
    AiUnreachable,
)
from vgpuscope.model.opinion import ModelReply, Prompt, Provider
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.authorities import authorities
from vgpuscope.sources.opinion.address import ModelAddress

LARGEST = 256 * 1024  # bytes of an answer
_LONGEST_WAIT: Seconds = 3600.0
_SHOWN = 200  # characters of a provider's own words
_SDKS: dict[Provider, str] = {"anthropic": "anthropic"}  # all others: openai


class ModelClient(Protocol):
    """One model. `ask` raises AiFailed and its subclasses."""

    async def ask(self, question: Prompt) -> ModelReply: ...
    async def close(self) -> None: ...


class ModelAccess(Struct, frozen=True, kw_only=True):
    """How one model is asked."""

    address: ModelAddress
    model: str
    key: str
    api_version: str
    max_tokens: int
    timeout: Seconds
    agent: str


def check_sdk(provider: Provider) -> None:
    """AiSdkAbsent if the SDK of a provider is not installed. Nothing is imported."""
    name = _SDKS.get(provider, "openai")
    if importlib.util.find_spec(name) is None:
        raise AiSdkAbsent(
            f"ai.enabled: the Python package {name} is not installed. Run pip install 'vgpuscope[ai]', "
            "or in a clone pip install '.[ai]'"
        )


def sdk(provider: Provider) -> Any:
    """The SDK of a provider, imported now; it takes seconds, so call it on a thread."""
    check_sdk(provider)
    return importlib.import_module(_SDKS.get(provider, "openai"))


def http_client(access: ModelAccess) -> httpx2.AsyncClient:
    """The HTTP client for an SDK: no redirects, bounded answers. A proxy of the environment is used."""
    return httpx2.AsyncClient(
        timeout=access.timeout,
        follow_redirects=False,
        verify=authorities(),
        event_hooks={"response": [_check_redirect, _bound]},
        headers={"user-agent": access.agent, "accept-encoding": "identity"},
    )


class _TooLarge(httpx2.TransportError):
    """The answer does not end."""


class _Packed(httpx2.TransportError):
    """The answer has an encoding that was not asked for."""


class _Redirected(httpx2.TransportError):
    """The address answers with another one."""


async def _check_redirect(answer: httpx2.Response) -> None:
    if answer.is_redirect or 300 <= answer.status_code < 400:
        raise _Redirected(f"status {answer.status_code}")


async def _bound(answer: httpx2.Response) -> None:
    """Count the bytes as they arrive: an answer may have no length, or a wrong one. What is packed was not asked for,
    and could unpack to a thousand times its size."""
    packed = answer.headers.get("content-encoding", "identity")
    if packed.strip().lower() not in {"", "identity"}:
        raise _Packed(packed[:_SHOWN])
    stream = answer.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    answer.stream = _Bounded(stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > LARGEST:
                raise _TooLarge("too large")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextmanager
def our_errors(module: Any, *, hide: Callable[[str], str]) -> Iterator[None]:
    """Translate the errors of an SDK; both SDKs have the same types. `hide` masks secrets in their texts."""
    try:
        yield
    except module.APITimeoutError as e:
        raise AiTimeout("the language model did not answer in time") from e
    except module.APIStatusError as e:
        raise _by_status(e, hide) from None  # the cause holds the request, with the key
    except module.APIConnectionError as e:
        raise _by_cause(e, hide) from None
    except (module.APIError, httpx2.HTTPError) as e:
        raise _by_cause(e, hide) from None


def _by_status(error: Any, hide: Callable[[str], str]) -> AiFailed:
    status = int(error.status_code)
    text = f"the language model answered {status}: {hide(' '.join(str(error.message).split()))[:_SHOWN]}"
    kind = AiRateLimited if status == 429 else AiFailed if status >= 500 or status == 408 else AiRejected
    found = kind(text)
    found.wait = _wait(error.response.headers.get("retry-after"))
    return found


def _by_cause(error: BaseException, hide: Callable[[str], str]) -> AiFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _TooLarge):
            return AiAnswerTooLarge(f"the language model's answer is larger than {LARGEST // 1024} KiB")
        if isinstance(cause, _Packed):
            return AiAnswerInvalid(f"the language model's answer is packed as {str(cause)!r}, which was not asked for")
        if isinstance(cause, _Redirected):
            return AiRedirected(f"the language model's address redirects ({cause})")
        if isinstance(cause, httpx2.TimeoutException):
            return AiTimeout("the language model did not answer in time")
        last, cause = cause, cause.__cause__ or cause.__context__
    return AiUnreachable(f"the language model cannot be reached: {type(last).__name__}: {hide(str(last))[:_SHOWN]}")


def _wait(text: str | None) -> Seconds:
    """Seconds of a retry-after header; a date counts as none."""
    if text is None or not re.fullmatch(r"\d{1,6}(\.\d+)?", text.strip()):
        return 0.0
    return min(_LONGEST_WAIT, float(text))
