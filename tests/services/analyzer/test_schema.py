"""The API against its own OpenAPI document: what it allows is answered as it says, what it does not is refused."""

import asyncio
import threading

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from tests.http.serving import SOON
from tests.services.analyzer.analyzing import IDLE, TOKEN, StubSource, reading, running, track
from vgpuscope.http.openapi import COMMON
from vgpuscope.http.operations import EVENTS
from vgpuscope.http.parameters import NoQuery
from vgpuscope.services.analyzer.api import AnalyzerApi
from vgpuscope.services.analyzer.console.parameters import NamespaceQuery

BEARER = {"Authorization": f"Bearer {TOKEN}"}

FEW = settings(
    max_examples=min(50, settings.default.max_examples),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.fixture(scope="module")
def api():
    """The document of an analyzer that runs on a thread of its own."""
    ready, urls, done = threading.Event(), [], []

    async def run():
        stop = asyncio.Event()
        done.append((asyncio.get_running_loop(), stop))
        source = StubSource(reading(track(0), track(1, util=IDLE)))
        flags = {"scheduler.interval": 3600, "analyzer.rate_limit": 1e6, "analyzer.api_token": TOKEN}
        async with running(source, **flags) as analyzer:
            await analyzer.analysed()
            urls.append(str(analyzer.client.base_url))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(SOON)
    yield schemathesis.openapi.from_url(f"{urls[0]}/openapi.json")
    loop, stop = done[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(SOON)


TABLE = [*AnalyzerApi(None).operations, *COMMON]
OPERATIONS = [o for o in TABLE if not o.hidden and EVENTS not in o.media]  # a stream has no end to wait for
FREE = (NoQuery, NamespaceQuery)  # nothing that could be given to them is wrong
TAKING = [operation for operation in OPERATIONS if operation.query not in FREE or operation.body]
ORDERED = ("/config/update", "/api/v1/settings/preview", "/api/v1/fit")


def tried(api, operation, mode) -> None:
    """Some requests of a kind, each answered as the document says.

    Which ones depends on all code that is loaded: a change anywhere, or another order of tests, makes it others.
    """
    # that thresholds must rise, and that no language model can be asked, is nothing that a schema can say; of what is
    # made to be refused some is by chance allowed
    beyond = [checks.positive_data_acceptance] if operation.path in ORDERED else []

    named = api.raw_schema["paths"][operation.path][operation.method.lower()]["responses"].keys()

    @given(case=api[operation.path][operation.method].as_strategy(generation_mode=mode))
    @FEW
    def check(case):
        asked = case.query or {}
        # a parameter without a value is not sent, and so not refused; any text is the name of a namespace
        assume([] not in asked.values() and {} not in asked.values() and not isinstance(asked.get("namespace"), dict))
        answer = case.call_and_validate(timeout=SOON, headers=BEARER, excluded_checks=beyond)
        assert str(answer.status_code) in named  # `default` is for errors of any path

    check()


def name(operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_what_the_document_allows_is_answered_as_it_says(api, operation):
    tried(api, operation, GenerationMode.POSITIVE)


@pytest.mark.parametrize("operation", TAKING, ids=name)
def test_what_the_document_does_not_allow_is_refused_as_it_says(api, operation):
    tried(api, operation, GenerationMode.NEGATIVE)
