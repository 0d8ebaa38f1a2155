"""OpenAI, Azure OpenAI and all servers that speak OpenAI's chat completions, through the SDK of OpenAI.

An answer is asked for by its JSON schema. Old models and some compatible servers reject that with 400: the question is
then asked again with less, down to the words of the prompt alone, and what worked is remembered.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.model.errors import AiAnswerInvalid, AiRejected
from vgpuscope.model.opinion import Answer, ModelReply, Prompt
from vgpuscope.sources.opinion.client import ModelAccess, http_client, our_errors

_NO_KEY = "none"  # the SDK wants a key; a local server needs none
_BOUNDS = ("minimum", "maximum")  # not in the subset of JSON schema that every server takes
FORMS = ("schema", "json", "plain")


class _Message(Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(Struct):
    """What is read of an answer of chat completions."""

    choices: list[_Choice]
    usage: _Usage | None = None
    model: str | None = None


class OpenAiClient:
    """One model behind OpenAI's protocol."""

    def __init__(self, module: Any, access: ModelAccess, *, hide: Callable[[str], str]) -> None:
        """`module`: the SDK. `hide` masks secrets in texts of errors."""
        self._module, self._access, self._hide = module, access, hide
        self._form = 0
        self._client = _sdk_client(module, access)

    async def ask(self, question: Prompt) -> ModelReply:
        for form in range(self._form, len(FORMS)):
            try:
                with our_errors(self._module, hide=self._hide):
                    raw = await self._client.chat.completions.with_raw_response.create(**self._body(question, form))
                    body = raw.content
            except AiRejected as e:
                if form + 1 < len(FORMS) and _may_be_format(e):
                    continue
                raise
            self._form = form
            return _reply(body)
        raise AssertionError("the last form raises or returns")

    async def close(self) -> None:
        await self._client.close()

    def _body(self, question: Prompt, form: int) -> dict[str, Any]:
        access = self._access
        limit = "max_tokens" if access.address.provider == "compatible" else "max_completion_tokens"
        body: dict[str, Any] = {
            "model": access.model,
            "messages": [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}],
            limit: access.max_tokens,
            "timeout": access.timeout,
        }
        if FORMS[form] == "schema":
            schema = {"name": "opinion", "strict": True, "schema": answer_schema(bounds=False)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif FORMS[form] == "json":
            body["response_format"] = {"type": "json_object"}
        return body


def answer_schema(*, bounds: bool) -> dict[str, Any]:
    """The JSON schema of an answer, without references, made from the struct that decodes it."""
    _, components = msgspec.json.schema_components([Answer])
    schema: dict[str, Any] = components["Answer"]
    properties = {
        name: {key: value for key, value in one.items() if bounds or key not in _BOUNDS}
        for name, one in schema["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _sdk_client(module: Any, access: ModelAccess) -> Any:
    address = access.address
    shared = {"api_key": access.key or _NO_KEY, "max_retries": 0, "http_client": http_client(access)}
    query = {name: value for name, value in address.query.items() if name != "api-version"}
    if address.provider == "azure" and not address.base.endswith("/openai/v1"):
        return module.AsyncAzureOpenAI(
            azure_endpoint=address.base,
            azure_deployment=address.deployment or access.model,
            api_version=address.query.get("api-version", access.api_version),
            default_query=query,
            **shared,
        )
    headers = {"api-key": access.key} if address.provider == "azure" and access.key else {}
    return module.AsyncOpenAI(base_url=address.base, default_query=address.query, default_headers=headers, **shared)


def _may_be_format(error: AiRejected) -> bool:
    """Only 400 and 422 are about the request itself; a wrong key or an unknown model is no reason to ask again."""
    return str(error).startswith(("the language model answered 400", "the language model answered 422"))


def _reply(body: bytes) -> ModelReply:
    try:
        found = msgspec.json.decode(body, type=_Completion)
    except (msgspec.DecodeError, RecursionError) as e:
        raise AiAnswerInvalid(f"the answer is not one of chat completions: {e}") from e
    if not found.choices:
        raise AiAnswerInvalid("the answer has no choices")
    choice, usage = found.choices[0], found.usage or _Usage()
    return ModelReply(
        text=choice.message.content or "",
        model=found.model or "",
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cut_off=choice.finish_reason == "length",
    )
