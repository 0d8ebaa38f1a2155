"""What doctor collects from real listeners: one part that fails hides no other, and every part asked is listed."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contract.doctorworld import World, agent_route, cluster_route, serving
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets, collect

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def facts_of(**targets: Any) -> DoctorFacts:
    return asyncio.run(collect(DoctorTargets(**targets))).facts


def checks_of(facts: DoctorFacts) -> dict[str, CheckOutcome]:
    return {check.code: check.judgement for check in judged(facts)}


def states(facts: DoctorFacts) -> dict[str, str]:
    return {row.url: row.state for row in facts.services if row.url}


def test_an_agent_that_is_down_does_not_hide_another(stack: ExitStack):
    up = stack.enter_context(serving(agent_route(World(0.0))))
    facts = facts_of(agents=(ServiceAddress(up), ServiceAddress(NOBODY, name="node-z")))
    checks = checks_of(facts)
    assert states(facts) == {up: "answered", NOBODY: "no-answer"}
    assert checks["AGENT_DOWN"].status == "fail"
    assert checks["AGENT_DOWN"].numbers == {"count": 1, "place": f"{NOBODY} (node-z)"}
    assert checks["AGENT_SAMPLE_OLD"].status == "pass"  # of the one that answers


def test_every_kind_of_service_is_listed_asked_or_not(stack: ExitStack):
    agent = stack.enter_context(serving(agent_route(World(0.0))))
    wrong = stack.enter_context(serving(cluster_route(World(0.0))))
    refusing = World(0.0)
    refusing.refuse = {"agent"}
    refuses = stack.enter_context(serving(agent_route(refusing)))
    facts = facts_of(
        agents=(ServiceAddress(agent), ServiceAddress(refuses)),
        extender=ServiceAddress(wrong),
        cluster=ServiceAddress(NOBODY),
    )
    assert states(facts) == {agent: "answered", refuses: "refused", wrong: "wrong-service", NOBODY: "no-answer"}
    others = {row.service for row in facts.services if row.state == "not-configured"}
    assert others == {"analyzer", "plugin", "prometheus", "kubernetes"}
    checks = checks_of(facts)
    assert {checks[code].status for code in ("CREDENTIALS_REFUSED", "WRONG_SERVICE")} == {"fail"}


def test_an_address_in_a_cluster_that_cannot_be_reached_is_no_fault_of_the_service():
    far = ServiceAddress(NOBODY, found_by="cluster", name="node-a")
    facts = facts_of(agents=(far,), cluster=far, extender=far, plugins=(far,), analyzer=far)
    assert {row.state for row in facts.services if row.url} == {"no-answer"}
    assert {outcome.status for outcome in checks_of(facts).values()} == {"skipped"}


def test_passwords_of_addresses_are_not_shown():
    facts = facts_of(
        cluster=ServiceAddress("http://reader:hunter2@127.0.0.1:1"), prometheus=ServiceAddress("u:pw9@h:1")
    )
    assert {row.url for row in facts.services} == {"", "http://127.0.0.1:1", "h:1"}


@pytest.mark.parametrize(("found_by", "sent"), [("flag", True), ("default", True), ("demo", True), ("cluster", False)])
def test_the_token_is_not_sent_to_addresses_that_others_can_publish(found_by: Any, sent: bool):
    async def heard() -> list[bytes]:
        requests: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 503 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        one = ServiceAddress(url, found_by=found_by)
        await collect(
            DoctorTargets(agents=(one,), plugins=(one,), cluster=one, extender=one, analyzer=one, token="s3cret")
        )
        server.close()
        return requests

    requests = asyncio.run(heard())
    assert len(requests) >= 5
    assert {b"s3cret" in request for request in requests} == {sent}
