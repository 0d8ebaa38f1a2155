"""docs/adr: numbered without a jump, dated, and mentioned by numbers that lead to the decision that is meant."""

import re
import subprocess

import pytest

from tests.paths import REPOSITORY
from tools.writers.decisions import decisions_page

FOLDER = REPOSITORY / "docs/adr"
DECISIONS = {int(page.name[:4]): page for page in sorted(FOLDER.glob("[0-9]*.md"))}
each_decision = pytest.mark.parametrize("page", DECISIONS.values(), ids=lambda page: page.stem)


def mentions(text: str) -> list[tuple[int, str]]:
    """Every "ADR 7" or docs/adr/0007 of a text, with the file to which it links."""
    found = re.findall(r"\[?ADR[ -]?(\d+)(?:\]\((?:\.\./|docs/)*(?:adr/)?(\d{4}-[a-z0-9-]+\.md))?", text)
    found += [(number, name) for name, number in re.findall(r"adr/((\d{4})[a-z0-9-]*(?:\.md)?)", text)]
    return [(int(number), name) for number, name in found]


def test_decisions_are_numbered_without_a_jump():
    assert list(DECISIONS) == list(range(1, len(DECISIONS) + 1))
    assert len(DECISIONS) == len(list(FOLDER.glob("[0-9]*.md")))


@each_decision
def test_a_decision_has_the_number_of_its_file_and_a_date(page):
    heading, _, dated, *_ = page.read_text().splitlines()
    assert heading.startswith(f"# {int(page.name[:4])}. ")
    assert re.match(r"20\d\d-[01]\d-[0-3]\d\b", dated)


def test_the_index_lists_every_decision():
    assert (FOLDER / "README.md").read_text() == decisions_page(FOLDER)


def test_a_mention_leads_to_the_decision_that_it_names():
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split("\0")
    wrong = []
    for name in names:
        path = REPOSITORY / name
        if name and path.suffix in {".md", ".py", ".toml", ".yml", ".yaml", ".ts", ".tsx", ""} and path.is_file():
            for number, file in mentions(path.read_text(errors="ignore")):
                known = DECISIONS.get(number)
                if known is None or (file.endswith(".md") and file != known.name):
                    wrong.append((name, number, file))
    assert wrong == []


def test_a_mention_is_recognised():
    assert mentions("see [ADR 7](adr/0007-a-table-of-operations.md)")[0] == (7, "0007-a-table-of-operations.md")
    assert mentions("(ADR 8)") == [(8, "")]
    assert mentions("see docs/adr/0004.") == [(4, "0004")]


@each_decision
def test_a_count_of_lines_is_about_right(page):
    """`sources/http_stream.py`, 314 lines: figures that are the argument of a decision."""
    for name, stated in re.findall(r"`([\w/]+\.(?:py|ts))`[^`.]{0,40}?(?<![\d,])(\d{2,4}) lines", page.read_text()):
        (path,) = [*(REPOSITORY / "src/vgpuscope").rglob(name), *REPOSITORY.glob(name)]
        lines = len(path.read_text().splitlines())
        assert abs(lines - int(stated)) <= lines / 5, f"{name} has {lines} lines"
