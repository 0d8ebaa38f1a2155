"""docs/architecture.md is one page that is true: its length, its picture, its five lines, and every path it names."""

import re

import pytest

from tests.paths import REPOSITORY
from tests.repo.test_docs import blocks, prose

DOCS = REPOSITORY / "docs"
PACKAGE = REPOSITORY / "src/vgpuscope"
PAGE = (DOCS / "architecture.md").read_text()
MOST_WORDS = 1200
PAGES = ("architecture.md", "internals.md", "extending.md")
NEW = {"web/src/pages/owners.tsx"}  # a recipe makes it


def paths(text: str) -> set[str]:
    """Every file and folder that a page names between backticks; capitals stand for a name that the reader chooses."""
    named = set()
    for span in re.findall(r"`([a-z][\w./{},-]*)`", prose(text)):
        whole = re.fullmatch(r"(.*)\{([\w,]+)\}(.*)", span)
        for name in [f"{whole[1]}{word}{whole[3]}" for word in whole[2].split(",")] if whole else [span]:
            if (
                re.fullmatch(r"[a-z][\w/-]*/|(?:[\w-]+/)*[\w-]+\.(?:py|tsx?|ya?ml|md)|[a-z]\w*/[\w/]+", name)
                and name == name.lower()
            ):
                named.add(name)
    return named


def exists(name: str) -> bool:
    """In the repository, in the package, or as the end of a path in the package: `place.py`, `reclaim/newest.py`."""
    return any((root / name).exists() for root in (REPOSITORY, PACKAGE)) or any(PACKAGE.rglob(name.rstrip("/")))


def test_the_page_is_one_page():
    assert len(PAGE.split()) <= MOST_WORDS


def test_the_page_has_one_picture():
    assert len(blocks(PAGE)) == 1


def test_the_page_has_a_line_for_each_process():
    rows = re.findall(r"^\| `services/(\w+)`", PAGE, re.MULTILINE)
    processes = {path.parent.name for path in (PACKAGE / "services").glob("*/process.py")}
    assert len(rows) == 5
    assert set(rows) == processes


def test_the_page_lists_every_folder_of_the_package():
    rows = [row for row in PAGE.splitlines() if row.startswith("| `") and "/`" in row]
    listed = {name for row in rows for name in re.findall(r"`(\w+)/`", row.split("|")[1])}
    assert listed == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_is_named_exists(page):
    named = paths((DOCS / page).read_text()) - NEW
    assert len(named) > 10
    assert sorted(name for name in named if not exists(name)) == []


def test_a_path_that_is_gone_is_noticed():
    assert paths("`logic/gone.py`, `web/src/words/{en,zh}.ts` and `vgpuscope fit`") == {
        "logic/gone.py",
        "web/src/words/en.ts",
        "web/src/words/zh.ts",
    }
    assert not exists("logic/gone.py")


def test_recipes_say_where_to_add_what_is_added_most():
    recipes = set(re.findall(r"^\| (an? [^|]+?) \|", (DOCS / "extending.md").read_text(), re.MULTILINE))
    wanted = {"a metric", "an exporter's schema", "a column of the console", "a command", "a setting", "an endpoint"}
    assert wanted <= recipes
