"""Users and tokens of the web configuration and the API token are one system, over real sockets."""

import hashlib

import bcrypt
import pytest

from tests.http.serving import until
from tests.services.analyzer.analyzing import TOKEN, running
from vgpuscope.config import load
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.services.analyzer.settings.check import check_settings

pytestmark = pytest.mark.attack

HOURLY = {"scheduler.interval": 3600}
BEARER = {"authorization": f"Bearer {TOKEN}"}
ROLES = ("read", "operate", "admin")
NEEDS = {"/results": "read", "/metrics": "read", "/analyze": "operate", "/config/update?threshold=25": "admin"}
PROXIED = ["x-forwarded-for", "X-Forwarded-Proto", "x-forwarded-host", "Forwarded", "x-real-ip", "via"]


def secret(name):
    return f"the-token-of-{name}-for-tests"


@pytest.fixture
def web(tmp_path):
    """A web configuration with a user and a token of each role."""
    users = "".join(
        f"  {role}: {{hash: '{bcrypt.hashpw(role.encode(), bcrypt.gensalt(4)).decode()}', role: {role}}}\n"
        for role in ROLES
    )
    tokens = "".join(
        f"  - {{name: {role}, sha256: {hashlib.sha256(secret(role).encode()).hexdigest()}, role: {role}}}\n"
        for role in ROLES
    )
    file = tmp_path / "web.yaml"
    file.write_text(f"basic_auth_users:\n{users}bearer_tokens:\n{tokens}")
    return {"analyzer.web_config_file": str(file)}


async def statuses(analyzer, **more):
    """What each kind of request is answered: reading, starting an analysis, changing a setting."""
    found = []
    for path, role in NEEDS.items():
        method = "GET" if role == "read" else "POST"
        found.append((await analyzer.client.request(method, path, **more)).status_code)
    return found


ALLOWED = {"read": [200, 200, 403, 403], "operate": [200, 200, 200, 403], "admin": [200] * 4}


@pytest.mark.parametrize("api_token", [{}, {"analyzer.api_token": TOKEN}], ids=["web alone", "with an API token"])
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_a_user_or_a_token_of_the_web_configuration_is_enough_for_its_role(web, api_token, listen):
    async with running(listen=listen, **HOURLY, **web, **api_token) as analyzer:
        await analyzer.client.get("/healthz")
        assert await statuses(analyzer) == [401] * 4
        for role in ROLES:
            by_token = await statuses(analyzer, headers={"authorization": f"Bearer {secret(role)}"})
            by_password = await statuses(analyzer, auth=(role, role))
            assert by_token == by_password == ALLOWED[role]
        assert await statuses(analyzer, auth=("admin", "wrong")) == [401] * 4


async def test_the_api_token_is_enough_where_a_web_configuration_guards(web):
    async with running(listen="0.0.0.0:0", **HOURLY, **web, **{"analyzer.api_token": TOKEN}) as analyzer:
        assert await statuses(analyzer, headers=BEARER) == [200] * 4
        assert await statuses(analyzer, headers={"authorization": f"Bearer {TOKEN}x"}) == [401] * 4


@pytest.mark.parametrize("role", ROLES)
async def test_the_api_token_has_the_role_of_the_settings(role):
    given = {"analyzer.api_token": TOKEN, "analyzer.api_token_role": role}
    async with running(**HOURLY, **given) as analyzer:
        assert await statuses(analyzer, headers=BEARER) == ALLOWED[role]
        assert await statuses(analyzer) == [200, 200, 401, 401]
        info = (await analyzer.get("/")).json()
        assert info["read_only"] is (role == "read")


async def test_a_refusal_says_which_role_is_missing(web):
    async with running(**HOURLY, **web) as analyzer:
        error = (await analyzer.client.post("/analyze", auth=("read", "read"))).json()["error"]
    assert error["code"] == "FORBIDDEN"
    assert error["message"] == "'read' has the role read, and this needs the role operate"


async def test_a_page_of_another_site_has_only_read_by_a_password_that_the_browser_sends(web):
    page = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    async with running(**HOURLY, **web) as analyzer:
        assert await statuses(analyzer, auth=("admin", "admin"), headers=page) == [200, 200, 403, 403]
        bearer = {"authorization": f"Bearer {secret('admin')}"}  # a browser does not send it by itself
        assert await statuses(analyzer, headers=page | bearer) == [200] * 4


@pytest.mark.parametrize("header", PROXIED)
async def test_a_request_through_a_proxy_is_not_from_this_machine(header):
    async with running(**HOURLY) as analyzer:
        assert await statuses(analyzer, headers={header: "10.0.0.9"}) == [200, 200, 403, 403]
        assert await statuses(analyzer) == [200] * 4


async def test_a_header_that_names_a_user_opens_no_guard_and_raises_no_role(web):
    named = {"x-forwarded-user": "ann"}
    async with running(**HOURLY, **web, **{"analyzer.proxy_user_header": "x-forwarded-user"}) as analyzer:
        assert await statuses(analyzer, headers=named) == [401] * 4
        for role in ROLES:
            found = await statuses(analyzer, headers=named | {"authorization": f"Bearer {secret(role)}"})
            assert found == ALLOWED[role]
        page = {"sec-fetch-site": "cross-site", "authorization": f"Bearer {secret('admin')}"}
        assert await statuses(analyzer, headers=named | page) == [200, 200, 403, 403]  # the proxy's cookie brought it


@pytest.mark.parametrize("emptied", ["", "# nothing\n", "analyzer: {}\n", "analyzer: {api_token: }\n"])
async def test_an_emptied_settings_file_takes_no_protection_away(tmp_path, emptied):
    file = tmp_path / "config.yaml"
    file.write_text(f"analyzer: {{api_token: {TOKEN}, protect_reads: true}}\n")
    async with running(file=file, paces={"look_every": 0.02}, **HOURLY) as analyzer:
        assert await statuses(analyzer) == [401] * 4
        file.write_text(emptied)
        await until(lambda: "CONFIG_INVALID" in analyzer.analyzer.counters.errors)
        assert await statuses(analyzer) == [401] * 4
        file.write_text(f"analyzer: {{api_token: {TOKEN}, protect_reads: false}}\n")

        async def readable():
            return await statuses(analyzer) == [200, 200, 401, 401]

        await until(readable)


@pytest.mark.parametrize(
    ("given", "possible"),
    [
        ({}, False),
        ({"analyzer.api_token": TOKEN}, True),
        ({"analyzer.proxy_user_header": "x-user"}, True),
        ({"analyzer.web_config_file": "web.yaml"}, True),
    ],
)
def test_reading_is_not_protected_by_nothing(given, possible):
    config = load(flags={"prometheus.url": "http://x", "analyzer.protect_reads": "true", **given}, environ={}).config
    if possible:
        check_settings(config)
    else:
        with pytest.raises(ConfigInvalid, match="protect_reads"):
            check_settings(config)


@pytest.mark.parametrize(("protect_reads", "possible"), [("true", True), ("false", False)])
def test_a_token_is_not_restricted_where_everyone_else_sees_more(protect_reads, possible):
    given = {
        "analyzer.api_token": TOKEN,
        "analyzer.api_token_namespaces": "ml",
        "analyzer.protect_reads": protect_reads,
    }
    config = load(flags={"prometheus.url": "http://x", **given}, environ={}).config
    if possible:
        check_settings(config)
    else:
        with pytest.raises(ConfigInvalid, match="api_token_namespaces"):
            check_settings(config)


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_document_asks_for_credentials_exactly_where_a_request_without_them_is_401(web, guarded):
    settings = web if guarded else {"analyzer.protect_reads": True, "analyzer.api_token": TOKEN}
    headers = {"authorization": f"Bearer {secret('read')}"} if guarded else BEARER
    async with running(listen="0.0.0.0:0", **HOURLY, **settings) as analyzer:
        document = (await analyzer.client.get("/openapi.json", headers=headers)).json()
        asked = {
            (path, method): "security" in operation
            for path, found in document["paths"].items()
            for method, operation in found.items()
        }
        refused = {
            (path, method): (await analyzer.client.request(method, path.replace("{", "").replace("}", ""))).status_code
            for path, method in asked
        }
    assert {one: status == 401 for one, status in refused.items()} == asked
    assert {path for (path, _), needed in asked.items() if not needed} == {
        "/api/v1/session",
        "/healthz",
        "/readyz",
        *(() if guarded else ("/health", "/docs", "/openapi.json")),
    }
