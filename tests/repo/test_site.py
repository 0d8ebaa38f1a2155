"""The site that `make site` builds: links lead somewhere, nothing comes from another host, two languages meet."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.paths import REPOSITORY
from tools.site.hooks import CHINESE, counterpart, language

DOCS = REPOSITORY / "docs"
CHINESE_PAGES = sorted(page.name for page in DOCS.glob(f"*{CHINESE}"))


def build(site: Path, *, config: Path = REPOSITORY / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """`mkdocs build --strict`, as `make site` runs it."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environ)


class Page(HTMLParser):
    """What a page of the site refers to, and what can be referred to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loads: list[str] = []  # what a browser fetches without a click
        self.anchors: set[str] = set()
        self.alternates: dict[str, str] = {}
        self.language = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "html":
            self.language = given.get("lang", "")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "hreflang" in given:
                self.alternates[given["hreflang"]] = given["href"]
        elif tag == "link" and given.get("rel") not in {"canonical", "alternate", "prev", "next"}:
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


def target_of(site: Path, page: Path, link: str) -> Path:
    """The file that a relative link leads to."""
    path = unquote(urlsplit(link).path)
    found = (site / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found


def elsewhere(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    found = {path.resolve(): Page(path.resolve()) for path in site.rglob("*.html")}
    assert len(found) > 50
    return found


def test_every_link_of_the_site_leads_to_a_page_and_a_heading_that_exist(site, pages):
    broken = []
    for page in pages.values():
        if page.path.name == "404.html":  # its links begin at the root of wherever the site is
            continue
        for link in (*page.links, *page.loads):
            if elsewhere(link):
                continue
            target = target_of(site, page.path, link)
            anchor = unquote(urlsplit(link).fragment)
            known = target.exists() and (not anchor or target not in pages or anchor in pages[target].anchors)
            if not known:
                broken.append(f"{page.path.relative_to(site.resolve())}: {link}")
    assert broken == []


def test_a_browser_loads_nothing_from_another_host(site, pages):
    assert {load for page in pages.values() for load in page.loads if elsewhere(load)} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)'\"]*", styles) == []


@pytest.mark.parametrize("name", CHINESE_PAGES)
def test_a_chinese_page_is_in_chinese_and_leads_to_its_counterpart(site, pages, name):
    page = pages[(site / name.removesuffix(".md") / "index.html").resolve()]
    assert page.language == "zh"
    english = target_of(site, page.path, page.alternates["en"])
    assert pages[english].language == "en"
    known = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    expected = counterpart(name, "en", known).removesuffix(".md").removesuffix("index")
    assert english == (site / expected / "index.html").resolve()
    if expected:
        assert target_of(site, english, pages[english].alternates["zh"]) == page.path


def test_the_language_of_a_page_is_in_its_name():
    names = ("faq.md", "faq.zh-CN.md", "runbooks/a.md", "runbooks/zh/a.md")
    assert [language(name) for name in names] == ["en", "zh", "en", "zh"]
    assert counterpart("runbooks/a.md", "zh", {"runbooks/zh/a.md"}) == "runbooks/zh/a.md"
    assert counterpart("runbooks/zh/a.md", "en", {"runbooks/a.md"}) == "runbooks/a.md"
    assert counterpart("faq.zh-CN.md", "en", {"faq.md"}) == "faq.md"
    assert counterpart("codes.zh-CN.md", "en", {"codes.zh-CN.md"}) == "index.md"
    assert counterpart("faq.md", "zh", {"faq.zh-CN.md"}) == "faq.zh-CN.md"
    assert counterpart("cli.md", "zh", {"faq.zh-CN.md"}) == "index.zh-CN.md"


def test_chinese_words_can_be_searched_for(site):
    """The index has the text, and its separator splits between Chinese characters: the package has no Chinese words."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert index["config"]["lang"] == ["en", "zh"]
    assert any("空闲" in document["text"] for document in index["docs"])
    assert re.split(index["config"]["separator"], "判定空闲") == ["判", "定", "空", "闲"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](#no-such-heading)", "no-such-heading"),
        ("[gone](../no/such/file.py)", "no/such/file.py"),
    ],
    ids=["page", "heading", "file"],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path, text, complaint):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Home\n\n{text}\n")
    (docs / "index.zh-CN.md").write_text("# 首页\n")
    (docs / "site.css").touch()
    settings = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:")[0]
    settings = settings.replace("docs_dir: docs", f"docs_dir: {docs}")
    settings = settings.replace("hooks: [", f"hooks: [{REPOSITORY}/")
    config = tmp_path / "mkdocs.yml"
    config.write_text(settings)
    done = build(tmp_path / "site", config=config)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
