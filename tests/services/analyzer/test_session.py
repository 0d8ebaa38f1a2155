"""Logging in to the analyzer with a browser's means, over real sockets."""

import pytest

from tests.services.analyzer.analyzing import TOKEN, running
from tests.services.analyzer.test_one_identity import HOURLY, secret, web  # noqa: F401 - a fixture

SESSION = "/api/v1/session"


async def test_without_credentials_the_answer_is_that_nobody_is_logged_in():
    async with running(listen="0.0.0.0:0", **HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        answer = await analyzer.client.get(SESSION)
        assert answer.status_code == 200
        assert answer.json() == {
            "user": None,
            "role": "read",
            "namespaces": None,
            "expires": None,
            "can_log_in": True,
            "ways": ["token"],
        }


async def test_a_token_is_sent_once_and_then_the_cookie_changes_settings():
    async with running(listen="0.0.0.0:0", **HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        assert (await analyzer.client.post("/config/update?threshold=25")).status_code == 401
        answer = await analyzer.client.post(SESSION, json={"token": TOKEN})
        assert (answer.status_code, answer.json()["user"], answer.json()["role"]) == (200, "token", "admin")
        assert answer.json()["expires"] is not None
        assert TOKEN not in answer.text + str(answer.headers)
        assert (await analyzer.client.post("/config/update?threshold=25")).status_code == 200
        assert (await analyzer.client.get(SESSION)).json()["user"] == "token"


async def test_after_logging_out_the_browser_has_no_cookie():
    async with running(listen="0.0.0.0:0", **HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        await analyzer.client.post(SESSION, json={"token": TOKEN})
        assert (await analyzer.client.delete(SESSION)).json()["user"] is None
        assert (await analyzer.client.post("/analyze")).status_code == 401


@pytest.mark.attack
@pytest.mark.parametrize(
    "body", [{"token": "x" * 20}, {"user": "admin", "password": "wrong"}, {"user": "ghost", "password": "admin"}]
)
async def test_wrong_credentials_get_one_answer(web, body):  # noqa: F811
    async with running(listen="0.0.0.0:0", **HOURLY, **web) as analyzer:
        answer = await analyzer.client.post(SESSION, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "LOGIN_FAILED")
        assert "set-cookie" not in answer.headers


async def test_a_user_logs_in_with_a_password_and_has_its_role(web):  # noqa: F811
    async with running(listen="0.0.0.0:0", **HOURLY, **web) as analyzer:
        assert (await analyzer.client.get("/results")).status_code == 401
        assert (await analyzer.client.get(SESSION)).json()["role"] is None
        answer = await analyzer.client.post(SESSION, json={"user": "operate", "password": "operate"})
        assert answer.json()["role"] == "operate"
        assert (await analyzer.client.get("/results")).status_code == 200
        assert (await analyzer.client.post("/analyze")).status_code == 200
        assert (await analyzer.client.post("/config/update?threshold=25")).status_code == 403


@pytest.mark.attack
@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_a_page_of_another_site_neither_logs_in_nor_acts_with_the_cookie(headers):
    async with running(listen="0.0.0.0:0", **HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        assert (await analyzer.client.post(SESSION, json={"token": TOKEN}, headers=headers)).status_code == 403
        await analyzer.client.post(SESSION, json={"token": TOKEN})
        assert (await analyzer.client.post("/analyze", headers=headers)).status_code == 403
        assert (await analyzer.client.delete(SESSION, headers=headers)).status_code == 403


@pytest.mark.parametrize("body", [{}, {"user": "a"}, {"token": secret("read"), "user": "a"}, {"tokens": "x"}, []])
async def test_a_body_that_names_no_credentials_is_refused(web, body):  # noqa: F811
    async with running(**HOURLY, **web) as analyzer:
        answer = await analyzer.client.post(SESSION, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "BODY_INVALID")


async def test_a_script_is_not_answered_with_a_prompt_of_the_browser(web):  # noqa: F811
    async with running(**HOURLY, **web) as analyzer:
        to_script = await analyzer.client.get("/results", headers={"sec-fetch-dest": "empty"})
        to_person = await analyzer.client.get("/results")
        assert "Basic" not in to_script.headers.get("www-authenticate", "")
        assert "Basic" in to_person.headers["www-authenticate"]


async def test_who_is_not_logged_in_gets_the_console_but_no_data(web):  # noqa: F811
    async with running(**HOURLY, **web) as analyzer:
        browser = {"accept": "text/html,*/*;q=0.8"}
        assert (await analyzer.client.get("/ui/gpus", headers=browser)).status_code == 200
        assert (await analyzer.client.get("/", headers=browser)).headers["location"] == "ui/"
        assert (await analyzer.client.get("/api/v1/overview", headers=browser)).status_code == 401
        assert (await analyzer.client.get("/")).status_code == 401
