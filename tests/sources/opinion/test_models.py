"""The clients of all providers, through the real SDKs, against a stand-in server that speaks each wire format."""

import asyncio
import json
import sys
from unittest import mock

import pytest

from tests.standins import llm
from tests.standins.llm import HONEST, Llm, Said
from vgpuscope.logic.opinion.answers import answer_of
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
    ConfigInvalid,
)
from vgpuscope.model.opinion import Prompt
from vgpuscope.runtime.redaction import redacted
from vgpuscope.sources.opinion.address import address_of
from vgpuscope.sources.opinion.client import ModelAccess, check_sdk
from vgpuscope.sources.opinion.models import open_model

KEY = "sk-test-0123456789abcdefghij"
ASKED = Prompt(system="You judge GPUs.", user="Is it idle?")
DEPLOYED = "/openai/deployments/my-gpt/chat/completions?api-version=2024-02-01"
# provider, path of ai.api_url, path that is asked, parameters, header with the key
WIRES = [
    ("openai", "/v1/chat/completions", "/v1/chat/completions", {}, "authorization"),
    ("openai", "", "/v1/chat/completions", {}, "authorization"),
    ("compatible", "/v1", "/v1/chat/completions", {}, "authorization"),
    (None, "/api/v3/chat/completions", "/api/v3/chat/completions", {}, "authorization"),
    ("azure", "", "/openai/deployments/gpt-4/chat/completions", {"api-version": ["2024-10-21"]}, "api-key"),
    (None, DEPLOYED, "/openai/deployments/my-gpt/chat/completions", {"api-version": ["2024-02-01"]}, "api-key"),
    ("azure", "/openai/v1/", "/openai/v1/chat/completions", {}, "api-key"),
    ("anthropic", "", "/v1/messages", {}, ""),
    (None, "/proxy/v1/messages", "/proxy/v1/messages", {}, ""),
]
PROVIDERS = [("openai", "/v1"), ("compatible", ""), ("azure", ""), ("anthropic", "")]


@pytest.fixture
async def server():
    async with Llm() as found:
        yield found


@pytest.fixture
async def opened(server):
    """Opens clients of models behind the server, and closes them."""
    made = []

    async def make(provider, path="", *, within=20.0):
        access = ModelAccess(
            address=address_of(provider, server.url + path),
            model="gpt-4",
            key=KEY,
            api_version="2024-10-21",
            max_tokens=700,
            timeout=within,
            agent="vgpuscope/test",
        )
        made.append(await asyncio.to_thread(open_model, access, hide=lambda text: redacted(text, (KEY,))))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_each_provider_is_asked_in_its_own_words(server, opened, wire):
    provider, path, asked, query, header = wire
    client = await opened(provider, path)
    reply = await client.ask(ASKED)
    (found,) = server.asked
    assert (found.path, found.query) == (asked, query)
    assert (found.system, found.user) == (ASKED.system, ASKED.user)
    assert found.body["model"] == "gpt-4"
    limit = found.body.get("max_completion_tokens") or found.body.get("max_tokens")
    assert limit == 700
    keys = {name: value for name, value in found.headers.items() if KEY in value}
    assert keys, "the key is sent"
    assert not header or header in keys
    assert json.loads(reply.text) == HONEST
    assert (reply.input_tokens, reply.output_tokens) == (900, 60)
    assert answer_of(reply).status == "idle"


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
async def test_the_answer_is_asked_for_by_the_schema_of_our_struct(server, opened, provider, path):
    client = await opened(provider, path)
    await client.ask(ASKED)
    body = server.asked[0].body
    if provider == "anthropic":
        (tool,) = body["tools"]
        assert body["tool_choice"] == {"type": "tool", "name": tool["name"]}
        schema = tool["input_schema"]
    else:
        assert body["response_format"]["json_schema"]["strict"] is True
        schema = body["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == set(schema["required"]) == set(HONEST)
    assert schema["additionalProperties"] is False
    texts = ["reason", "recommendation", "reason_zh", "recommendation_zh"]
    assert [schema["properties"][name] for name in texts] == [{"type": "string"}] * 4, "no default: strict takes none"
    assert set(schema["properties"]["status"]["enum"]) == {"active", "idle", "suspicious"}


async def test_a_server_that_does_not_know_schemas_is_asked_with_less_and_that_is_remembered(server, opened):
    def old(asked):
        if "response_format" in asked.body:
            return llm.status(400, message="response_format is not supported")(asked)
        return llm.honest()(asked)

    server.says = old
    client = await opened("compatible")
    assert answer_of(await client.ask(ASKED)).status == "idle"
    assert len(server.asked) == 3  # the schema, JSON, words alone
    await client.ask(ASKED)
    assert len(server.asked) == 4


FAILURES = [
    (llm.status(429, retry_after="7"), AiRateLimited),
    (llm.status(500), AiFailed),
    (llm.status(503, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), AiFailed),
    (llm.status(529), AiFailed),
    (llm.status(401, message=f"wrong key {KEY}"), AiRejected),
    (llm.status(404, message="no such model"), AiRejected),
    (llm.status(302, location="http://127.0.0.1:9/elsewhere"), AiRedirected),
    (llm.status(307, location="/v1/other"), AiRedirected),
    (llm.said(Said(endless=b" " * 65536)), AiAnswerTooLarge),
    (llm.raw(b"<html>it works</html>"), AiAnswerInvalid),
    (llm.raw(b""), AiAnswerInvalid),
    (llm.raw(b"\xff\xfe"), AiAnswerInvalid),
    (llm.raw(b"[" * 100_000), AiAnswerInvalid),
    (llm.raw(b'{"choices": [], "content": 3}'), AiAnswerInvalid),
    (llm.said(Said(status=200, headers=(("connection", "close"),), body=b'{"cho')), AiAnswerInvalid),
]


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_is_one_request_and_one_of_our_errors_without_the_key(server, opened, provider, path, failure):
    server.says, error = failure
    client = await opened(provider, path)
    with pytest.raises(AiFailed) as raised:
        answer_of(await client.ask(ASKED))
    assert type(raised.value) is error
    assert len(server.asked) == 1, "no retries of the SDK, and no redirect is followed"
    assert KEY not in str(raised.value)
    cause = raised.value.__cause__
    assert cause is None or KEY not in repr(cause)


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
async def test_the_provider_says_how_long_to_wait(server, opened, provider, path):
    server.says = llm.status(429, retry_after="7")
    client = await opened(provider, path)
    with pytest.raises(AiRateLimited) as raised:
        await client.ask(ASKED)
    assert raised.value.wait == 7.0


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
async def test_a_server_that_hangs_is_given_up(server, opened, provider, path):
    server.says = llm.said(Said(hang=True))
    client = await opened(provider, path, within=0.3)
    with pytest.raises(AiTimeout):
        await client.ask(ASKED)


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
async def test_nobody_listens(server, opened, provider, path):
    client = await opened(provider, path)
    await server.__aexit__()
    with pytest.raises(AiUnreachable):
        await client.ask(ASKED)


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
@pytest.mark.parametrize(
    "text",
    [
        "The GPU is idle.",
        '{"status": "idle"}',
        '{"status": "idle", "confidence": 0.9, "recommendation": "", "recommendation_zh": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": 0.9, "reason": "", "reason_zh": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": 0.9, "reason_zh": 1, "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "busy", "confidence": 0.9, "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": NaN, "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": 1.5, "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": -0.1, "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": "0.9", "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": "idle", "confidence": 0.9, "reason": "", "recommendation": "", "ai_adjusted_score": 500}',
        '{"status": "idle", "confidence": 0.9, "reason": "", "recommendation": "", "ai_adjusted_score": 1e999}',
        '{"status": "idle", "confidence": 0.9, "reason": null, "recommendation": "", "ai_adjusted_score": 1}',
        '{"status": ["idle"], "confidence": 0.9, "reason": "", "recommendation": "", "ai_adjusted_score": 1}',
        '{"a": {"status": "idle"}}',
        "}{",
        "null",
    ],
)
async def test_an_answer_that_is_not_as_asked_for_is_no_opinion(server, opened, provider, path, text):
    server.says = llm.words(text)
    client = await opened(provider, path)
    with pytest.raises(AiAnswerInvalid):
        answer_of(await client.ask(ASKED))


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
async def test_an_answer_that_was_cut_off_is_no_opinion(server, opened, provider, path):
    server.says = llm.words(json.dumps(HONEST), finish="length")
    client = await opened(provider, path)
    with pytest.raises(AiAnswerInvalid, match="cut off"):
        answer_of(await client.ask(ASKED))


@pytest.mark.parametrize(("provider", "path"), PROVIDERS)
@pytest.mark.parametrize("text", ["```json\n{}\n```", "Here it is: {}", "{}\nI hope this helps."])
async def test_words_around_the_json_do_no_harm(server, opened, provider, path, text):
    server.says = llm.words(text.replace("{}", json.dumps(HONEST)))
    client = await opened(provider, path)
    assert answer_of(await client.ask(ASKED)).confidence == 0.9


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("https://api.openai.com/v1/chat/completions", "openai"),
        ("https://me.openai.azure.com/", "azure"),
        ("https://me.cognitiveservices.azure.com/openai/v1/", "azure"),
        ("https://gateway/openai/deployments/x/chat/completions?api-version=1", "azure"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://gateway/v1/messages", "anthropic"),
        ("http://vllm.models:8000/v1", "compatible"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions", "compatible"),
    ],
)
def test_the_provider_is_told_from_the_url(url, provider):
    assert address_of(None, url).provider == provider
    assert address_of("compatible", url).provider == "compatible"


@pytest.mark.parametrize(
    ("provider", "base"), [("openai", "https://api.openai.com/v1"), ("anthropic", "https://api.anthropic.com")]
)
def test_two_providers_have_an_address_of_their_own(provider, base):
    assert address_of(provider, "").base == base


@pytest.mark.parametrize("provider", [None, "azure", "compatible"])
def test_without_an_address_nobody_can_be_asked(provider):
    with pytest.raises(ConfigInvalid, match=r"ai\.api_url"):
        address_of(provider, "")


@pytest.mark.parametrize(("provider", "name"), [("openai", "openai"), ("azure", "openai"), ("anthropic", "anthropic")])
def test_an_sdk_that_is_not_installed_is_an_error_with_a_hint(provider, name):
    with mock.patch.dict(sys.modules, {name: None}), pytest.raises(AiSdkAbsent, match=name) as raised:
        check_sdk(provider)
    assert "pip install 'vgpuscope[ai]'" in raised.value.advice
    assert raised.value.code == "AI_SDK_ABSENT"
