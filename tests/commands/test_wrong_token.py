"""A token that is sent is compared, or the user is told that nothing could compare it."""

import asyncio
import base64

import pytest

from tests.commands.test_wrong_service import started
from tests.http.serving import SOON
from tests.services.analyzer.analyzing import StubSource, reading, running
from vgpuscope import cli
from vgpuscope.commands.actions import access

TOKEN = "sixteen-letters-long"
WRONG = {"authorization": "Bearer of-another-service"}


@pytest.fixture(autouse=True)
def _said_nothing_yet():
    access.say_unchecked.cache_clear()


async def test_with_a_token_configured_another_one_is_wrong_also_where_reading_is_open():
    async with running(StubSource(reading()), **{"analyzer.api_token": TOKEN}) as found:
        assert (await found.client.get("/results")).status_code == 200
        answer = await found.client.get("/results", headers=WRONG)
        assert answer.status_code == 401
        assert answer.json()["error"]["message"] == "the credentials are wrong"
        right = await found.client.get("/results", headers={"authorization": f"Bearer {TOKEN}"})
        assert right.status_code == 200


async def test_a_scrape_is_not_broken_by_the_token_that_prometheus_sends_to_all_targets():
    async with running(StubSource(reading()), **{"analyzer.api_token": TOKEN}) as found:
        for path in ("/metrics", "/healthz", "/readyz"):
            answer = await found.client.get(path, headers=WRONG)
            assert answer.status_code != 401
            assert "x-vgpuscope-credentials" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        WRONG | {"x-forwarded-for": "10.0.0.7"},  # oauth2-proxy and service meshes pass the user's token on
        {"authorization": "Basic " + base64.b64encode(b"user:of-the-proxy").decode()},  # nginx passes the password on
    ],
)
async def test_credentials_that_a_proxy_has_checked_do_not_break_a_page_behind_it(headers):
    async with running(StubSource(reading()), **{"analyzer.api_token": TOKEN}) as found:
        assert (await found.client.get("/results", headers=headers)).status_code == 200


async def test_without_credentials_a_listener_says_that_a_token_was_not_checked():
    async with running(StubSource(reading())) as found:
        assert "x-vgpuscope-credentials" not in (await found.client.get("/results")).headers
        answer = await found.client.get("/results", headers=WRONG)
        assert (answer.status_code, answer.headers["x-vgpuscope-credentials"]) == (200, "unchecked")


async def printed(*words):
    async with asyncio.timeout(SOON):
        return await asyncio.to_thread(cli.main, list(words))


async def test_a_command_says_that_its_token_is_wrong_and_where_it_came_from(monkeypatch, capfd):
    monkeypatch.setenv("VGPUSCOPE_TOKEN", "of-another-service")
    async with running(StubSource(reading()), **{"analyzer.api_token": TOKEN}) as found:
        url = str(found.client.base_url).rstrip("/")
        for words in (["results"], ["results", "--low"], ["waste"], ["reclaim"], ["reclaim", "stop"]):
            assert await printed(*words, "--url", url) == 1
            first, hint = capfd.readouterr().err.splitlines()
            said = f"the analyzer at {url} rejected the token of VGPUSCOPE_TOKEN (401)"
            assert first == f"vgpuscope: LOGIN_FAILED: {said}"
            assert hint.startswith("hint: It is wrong, was replaced, or is for another service.")


async def test_a_command_says_once_that_its_token_was_not_checked(monkeypatch, capfd):
    monkeypatch.setenv("VGPUSCOPE_TOKEN", "of-another-service")
    async with started("analyzer") as url:
        assert await printed("results", "--url", url) == 0
    out, err = capfd.readouterr()
    said = f"the analyzer at {url} has no credentials: the token of VGPUSCOPE_TOKEN was not checked"
    assert err == f"vgpuscope: {said}\n"
    assert "vgpuscope: " not in out


async def test_without_a_token_nothing_is_said(monkeypatch, capfd):
    monkeypatch.delenv("VGPUSCOPE_TOKEN", raising=False)
    async with started("analyzer") as url:
        assert await printed("results", "--url", url) == 0
    assert capfd.readouterr().err == ""
