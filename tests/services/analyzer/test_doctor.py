"""/api/v1/doctor: what the analyzer can check itself, for everybody who may read, and kept for a while."""

import json

import msgspec
import pytest

from tests.services.analyzer.analyzing import TOKEN, StubSource, running
from tests.services.analyzer.test_api import HOURLY
from tests.services.analyzer.test_console import exporter, source  # noqa: F401 - a fixture
from vgpuscope.logic.doctor.chain import CHAIN, judged
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.doctor.services import _Health, _older_analyzer, _Service, read_analyzer


def by_code(report: dict) -> dict[str, dict]:
    return {one["code"]: one for one in report["findings"]}


@pytest.fixture
async def analyzer(exporter):  # noqa: F811
    async with running(source(), **HOURLY, **{"analyzer.cluster_url": exporter.url}) as found:
        await found.analysed()
        yield found


async def test_the_report_has_every_check_and_names_what_the_cluster_exporter_found(analyzer):
    answer = await analyzer.get("/api/v1/doctor")
    report = answer.json()
    found = by_code(report)
    assert answer.status_code == 200
    assert list(found) == [link.code for link in CHAIN]
    assert report["place"] == "analyzer"
    assert found["GHOST_ALLOCATION"]["status"] == "warn"
    assert found["GHOST_ALLOCATION"]["examples"] == ["node-0: team-b/ghost-b (ended)"]
    assert found["DRIVER_FAILED"]["status"] == "skipped"
    assert found["ANALYZER_SOURCE_DOWN"]["status"] == "pass"
    assert found["HISTORY_OFF"]["cause"]["zh"]


async def test_a_source_that_fails_is_named(exporter):  # noqa: F811
    stub = StubSource()
    stub.fail("connection refused")
    async with running(stub, **HOURLY, **{"analyzer.cluster_url": exporter.url}) as analyzer:
        await analyzer.analysed()
        found = by_code((await analyzer.get("/api/v1/doctor")).json())
    assert found["ANALYZER_SOURCE_DOWN"]["status"] == "fail"
    assert "connection refused" in found["ANALYZER_SOURCE_DOWN"]["examples"][0]
    assert found["VERDICTS_UNKNOWN"]["status"] == "skipped"


async def test_a_caller_of_one_namespace_gets_the_numbers_without_the_examples(exporter):  # noqa: F811
    limited = {
        "analyzer.api_token": TOKEN,
        "analyzer.api_token_namespaces": "team-a",
        "analyzer.protect_reads": "true",
        "analyzer.cluster_url": exporter.url,
    }
    async with running(source(), **HOURLY, **limited) as analyzer:
        await analyzer.analysed()
        answer = await analyzer.get("/api/v1/doctor", headers={"Authorization": f"Bearer {TOKEN}"})
        nobody = await analyzer.get("/api/v1/doctor")
    assert nobody.status_code == 401
    assert answer.status_code == 200
    assert by_code(answer.json())["GHOST_ALLOCATION"]["numbers"] == {"count": 1}
    assert "team-b" not in json.dumps(answer.json())


async def test_the_report_is_made_once_for_many_callers(analyzer):
    first, second = (await analyzer.get("/api/v1/doctor")).json(), (await analyzer.get("/api/v1/doctor")).json()
    assert first == second


async def test_the_facts_say_the_same_as_the_answers_that_an_older_command_reads(analyzer):
    url = str(analyzer.client.base_url)
    answer = await read_analyzer(url, token=None, within=60)
    assert answer.known is not None
    assert answer.report is None
    async with _Service(ANALYZER, url, token=None, within=60) as api:
        health = msgspec.json.decode((await api.answer("/health")).content, type=_Health)
        older = await _older_analyzer(api, health, offset=0.0, answers=())
    not_told = {"url": "", "down": (), "clock_offset": 0.0, "unproductive": frozenset()}
    assert msgspec.structs.replace(older.facts, **not_told) == msgspec.structs.replace(answer.facts, **not_told)
    assert older.report is not None


async def test_the_report_is_a_judgement_of_the_facts(analyzer):
    report = (await analyzer.get("/api/v1/doctor")).json()
    facts = (await read_analyzer(str(analyzer.client.base_url), token=None, within=60)).known
    judgements = {check.code: check.judgement for check in judged(facts)}
    assert {code: one["status"] for code, one in by_code(report).items()} == {
        code: judgement.status for code, judgement in judgements.items()
    }
    assert report["services"] == list(msgspec.to_builtins(facts.services))


async def test_facts_name_objects_of_all_namespaces_so_a_caller_of_one_gets_none(exporter):  # noqa: F811
    limited = {
        "analyzer.api_token": TOKEN,
        "analyzer.api_token_namespaces": "team-a",
        "analyzer.protect_reads": "true",
        "analyzer.cluster_url": exporter.url,
    }
    async with running(source(), **HOURLY, **limited) as analyzer:
        await analyzer.analysed()
        refused = await analyzer.get("/api/v1/doctor/facts", headers={"Authorization": f"Bearer {TOKEN}"})
        nobody = await analyzer.get("/api/v1/doctor/facts")
        answer = await read_analyzer(str(analyzer.client.base_url), token=TOKEN, within=60)
    assert (refused.status_code, nobody.status_code) == (403, 401)
    assert (answer.known, answer.report is None) == (None, False)
    assert {row.url for row in answer.report.services} == {""}
