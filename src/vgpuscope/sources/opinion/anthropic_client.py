"""Anthropic's messages, through the SDK of Anthropic. The answer is the input of a tool that the model has to call."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.model.errors import AiAnswerInvalid
from vgpuscope.model.opinion import ModelReply, Prompt
from vgpuscope.sources.opinion.client import ModelAccess, http_client, our_errors
from vgpuscope.sources.opinion.openai_client import answer_schema

_NO_KEY = "none"
_TOOL = "give_opinion"


class _Block(Struct):
    type: str
    text: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw()


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Message(Struct):
    """What is read of an answer of the messages API."""

    content: list[_Block]
    usage: _Usage | None = None
    model: str | None = None
    stop_reason: str | None = None


class AnthropicClient:
    """One model of Anthropic."""

    def __init__(self, module: Any, access: ModelAccess, *, hide: Callable[[str], str]) -> None:
        """`module`: the SDK. `hide` masks secrets in texts of errors."""
        self._module, self._access, self._hide = module, access, hide
        self._client = module.AsyncAnthropic(
            base_url=access.address.base,
            api_key=access.key or _NO_KEY,
            default_query=access.address.query,
            max_retries=0,
            http_client=http_client(access),
        )

    async def ask(self, question: Prompt) -> ModelReply:
        with our_errors(self._module, hide=self._hide):
            raw = await self._client.messages.with_raw_response.create(
                model=self._access.model,
                max_tokens=self._access.max_tokens,
                system=question.system,
                messages=[{"role": "user", "content": question.user}],
                tools=[{"name": _TOOL, "description": "Give the opinion.", "input_schema": answer_schema(bounds=True)}],
                tool_choice={"type": "tool", "name": _TOOL},
                timeout=self._access.timeout,
            )
            body = await _content(raw)
        return _reply(body)

    async def close(self) -> None:
        await self._client.close()


async def _content(raw: Any) -> bytes:
    found: bytes = raw.http_response.content
    return found


def _reply(body: bytes) -> ModelReply:
    try:
        found = msgspec.json.decode(body, type=_Message)
    except (msgspec.DecodeError, RecursionError) as e:
        raise AiAnswerInvalid(f"the answer is not one of the messages API: {e}") from e
    usage = found.usage or _Usage()
    return ModelReply(
        text=_text(found.content),
        model=found.model or "",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cut_off=found.stop_reason == "max_tokens",
    )


def _text(blocks: list[_Block]) -> str:
    """The tool's input; a model that answers in words instead is read like any other."""
    called = next((block for block in blocks if block.type == "tool_use" and block.name == _TOOL), None)
    if called is not None:
        return bytes(called.input).decode(errors="replace")
    return "\n".join(block.text for block in blocks if block.type == "text")
