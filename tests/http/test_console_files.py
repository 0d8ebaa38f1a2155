"""The console's files: one page for every path, behind any prefix, with a strict policy."""

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from vgpuscope.http import console_files
from vgpuscope.http.console_files import page, with_console
from vgpuscope.model.errors import Unknown

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
INDEX = b'<!doctype html><head><base href="./" /><script type="module" src="./assets/a-1.js"></script></head>'


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A console with an index page and one file."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(INDEX)
    (tmp_path / "assets" / "a-1.js").write_bytes(b"export {}")
    files = {"index.html": tmp_path / "index.html", "assets/a-1.js": tmp_path / "assets" / "a-1.js"}
    monkeypatch.setattr(console_files, "_files", lambda: files)


def client():
    async def info(request):
        return JSONResponse({"service": "x"})

    return TestClient(Starlette(routes=with_console([Route("/", info, methods=["GET"])])), follow_redirects=False)


@pytest.mark.parametrize(
    ("path", "base"), [("", "./"), ("gpus", "./"), ("gpus/GPU-1", "../"), ("workloads/ml/train-0", "../../")]
)
def test_a_page_finds_its_files_from_every_depth(built, path, base):
    assert f'<base href="{base}" />'.encode() in page(path).body


EARLY = (
    b'<head><base href="./" />\n    <link rel="preload" as="fetch" crossorigin href="../api/v1/overview" />\n</head>'
)


def test_only_the_first_page_asks_for_its_data_early_and_only_for_callers_who_may_read(built, tmp_path):
    (tmp_path / "index.html").write_bytes(EARLY)
    assert b"preload" in page("", early=True).body
    assert b"preload" not in page("").body
    assert b"preload" not in page("gpus", early=True).body


def test_every_path_is_the_same_page_and_is_never_cached_blindly(built):
    answers = [client().get(f"/ui/{path}") for path in ("", "gpus", "no/such/page")]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers["cache-control"] for answer in answers} == {"no-cache"}


def test_built_files_are_cached_for_ever_and_others_do_not_exist(built):
    found = client().get("/ui/assets/a-1.js")
    assert (found.status_code, found.headers["content-type"]) == (200, "application/javascript")
    assert "immutable" in found.headers["cache-control"]
    with pytest.raises(Unknown):
        client().get("/ui/assets/a-0.js")


@pytest.mark.attack
@pytest.mark.parametrize("path", ["%2e%2e/pyproject.toml", "..%2f..%2fetc/passwd", "assets/%2e%2e/%2e%2e/server.py"])
def test_no_other_file_of_the_machine_is_served(built, path):
    try:
        body = client().get(f"/ui/{path}").content
    except Unknown:
        return
    assert b"<base href=" in body or body == b"Not Found"


@pytest.mark.attack
def test_the_policy_allows_only_what_the_package_ships(built):
    policy = client().get("/ui/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_browser_is_sent_to_the_console_and_a_program_gets_json():
    sent = client().get("/", headers=BROWSER)
    assert (sent.status_code, sent.headers["location"]) == (302, "ui/")
    for accept in ("application/json", "*/*", ""):
        assert client().get("/", headers={"accept": accept}).json() == {"service": "x"}


def test_without_a_build_the_page_says_why_and_what_to_do(monkeypatch):
    monkeypatch.setattr(console_files, "_files", dict)
    answer = client().get("/ui/gpus/GPU-1")
    assert answer.status_code == 200
    assert "make console" in answer.text
    assert 'href="../../docs"' in answer.text
