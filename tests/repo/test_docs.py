"""What the documentation names exists, in both languages, and no file names what must stay outside."""

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tools.writers.families import FAMILY_HELP
from vgpuscope import cli
from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin
from vgpuscope.config import SETTINGS
from vgpuscope.http.sending import HTTP_ERRORS
from vgpuscope.knowledge.exporters import GROUPS
from vgpuscope.model.errors import error_types
from vgpuscope.model.scheduling_codes import BY_CODE
from vgpuscope.views.doctor.words import CHECK_WORDS

ROOT = REPOSITORY
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
PAGES = (
    *READMES,
    *sorted(page for page in ROOT.glob("*.md") if page not in READMES),
    *sorted((ROOT / "docs").rglob("*.md")),
)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# --- reading Markdown ------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^```.*?\n(.*?)^```$", re.M | re.S)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n?)+", re.M)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^(#+) +(.+?)\s*$", re.M)
_TABLE_ROW = re.compile(r"^\|.*\|$", re.M)


def blocks(text: str) -> list[str]:
    return _FENCE.findall(text)


def prose(text: str) -> str:
    return _FENCE.sub("", text)


def commands(text: str) -> list[str]:
    """Everything that a reader may type: spans of code and lines of blocks, without their comments."""
    lines = [line for block in [*blocks(text), *_INDENTED.findall(prose(text))] for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", code).strip() for code in [*lines, *_CODE_SPAN.findall(prose(text))]]


def links(text: str) -> list[str]:
    return _LINK.findall(_CODE_SPAN.sub("", prose(text)))


def relative_links(text: str) -> list[str]:
    return [link for link in links(text) if not re.match(r"[a-z][a-z0-9+.-]*:", link)]


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings; a title that comes again gets a number."""
    found: set[str] = set()
    for _, title in _HEADING.findall(prose(text)):
        words = re.sub(r"[^\w\- ]", "", _LINK.sub("", title).lower()).replace(" ", "-")
        number = sum(1 for name in found if re.fullmatch(re.escape(words) + r"(-\d+)?", name))
        found.add(f"{words}-{number}" if number else words)
    return found


# --- links -----------------------------------------------------------------------------------------------------------


@each_page
def test_every_link_and_picture_leads_to_something_that_exists(page):
    for link in relative_links(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link} is not there"
        assert not anchor or anchor in anchors(target.read_text()), f"{link}: no such heading"


def test_each_language_leads_to_the_other_at_the_top():
    for page, other in (READMES, READMES[::-1]):
        assert other.name in relative_links("\n".join(page.read_text().splitlines()[:8]))


# --- two languages, one content --------------------------------------------------------------------------------------

_SHAPE = {
    "sections": lambda text: [len(level) for level, _ in _HEADING.findall(prose(text))],
    "rows of tables": lambda text: [row.count("|") for row in _TABLE_ROW.findall(prose(text))],
    "links": lambda text: [  # a picture of the console, and a page, in the language of the README
        link.replace("-zh.png", ".png").replace(".zh-CN.md", ".md")
        for link in links(text)
        if not link.startswith("README")
    ],
    "commands": lambda text: [re.sub(r"\s*#.*", "", block) for block in blocks(text)],
}


@pytest.mark.parametrize("part", _SHAPE)
def test_both_readmes_have_the_same(part):
    english, chinese = (_SHAPE[part](page.read_text()) for page in READMES)
    assert english
    assert english == chinese


# --- names that the code declares ------------------------------------------------------------------------------------

DECLARED = (*agent.METRICS, *cluster.METRICS, *analyzer.METRICS, *extender.METRICS, *plugin.METRICS)
EXPOSED = [exposed for metric in DECLARED for exposed in metric.exposed(frozenset(FAMILY_HELP))]
PARTS = ("bucket", "sum", "count")  # of a histogram
METRICS = {exposed.name for exposed in EXPOSED} | {name for group in GROUPS for name in group.names}
METRICS |= {f"{e.name}_{part}" for e in EXPOSED if e.type == "histogram" for part in PARTS}
LABELS = {label for exposed in EXPOSED for label, _ in exposed.labels}
_METRIC = re.compile(  # neither a file nor a field of an answer: HostSide.faults
    r"(?<![\w/.-])((?:vgpuscope|hami|DCGM_FI|pod_gpu|pod_total|vGPU|Device)_\w*|Host[A-Z]\w+|MigInfo\w*)(\*?)(?!\w|\.[a-z])"
)


@each_page
def test_every_metric_that_is_named_is_in_the_catalog(page):
    for name, star in _METRIC.findall(page.read_text()):
        known = any(metric.startswith(name) for metric in METRICS) if star else name in METRICS | LABELS
        assert known, f"{name}{star} is not in the catalog"


@each_page
def test_every_make_target_that_is_named_exists(page):
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    for command in commands(page.read_text()):
        words = command.split()
        if words[:1] == ["make"]:
            assert {word for word in words[1:] if "=" not in word} <= targets, command


def flags_of(parser: argparse.ArgumentParser, name: str = "") -> dict[str, set[str]]:
    """The flags of every command, by its words: "config print"."""
    found = {name: {flag for action in parser._actions for flag in action.option_strings}}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, sub in action.choices.items():
                found |= flags_of(sub, f"{name} {word}".strip())
    return found


FLAGS = flags_of(cli.parser())
# a command, and the second word of one that has further commands
_WORDS = "|".join([*sorted((words for words in FLAGS if " " in words), reverse=True), "[a-z]+"])
# flags of other programs, in the commands that doctor advises
ADVISED = " ".join(text for said in CHECK_WORDS.values() for text in (said.fix.en, *said.commands))
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w|(?<![\w-])--[a-z]\b")
THEIRS = set(_FLAG.findall(ADVISED))

# A line of another program: its flags are not ours. What follows a pipe belongs to it, too; what follows && does not.
_OTHER_PROGRAM = re.compile(
    r"(?<![\w/.-])(?:cosign|curl|docker|helm|kubectl|pg_dump|pip|prometheus|promtool|python3|sqlite3|uvicorn) "
    r"(?:[^`\n&]|\\\n)*"
)
_OTHERS = frozenset(  # flags of `python -m bench`, docker, pytest and uvicorn
    [
        "--again",
        "--hypothesis-seed",
        "--quick",
        "--build",
        "--build-arg",
        "--entrypoint",
        "--global",
        "--name",
        "--profile",
        "--host",
        "--port",
        "--lifespan",
        "--limit-concurrency",
        "--ssl-certfile",
        "--ssl-keyfile",
        "--timeout-keep-alive",
        "--workers",
    ]
)


@each_page
def test_every_flag_that_is_named_exists(page):
    text = _OTHER_PROGRAM.sub("", page.read_text())
    assert set(_FLAG.findall(text)) <= set().union(_OTHERS, THEIRS, *FLAGS.values())


@each_page
def test_every_command_that_is_named_exists_and_takes_its_flags(page):
    for command in commands(_OTHER_PROGRAM.sub("", page.read_text())):
        for words, rest in re.findall(rf"(?<![\w/])(?<!-n )vgpuscope ({_WORDS})([^&|]*)", command):
            assert words in FLAGS, command
            assert set(_FLAG.findall(rest)) <= FLAGS[words], command


ERRORS = {error.code for error in error_types()} | {code for code, _, _ in HTTP_ERRORS.values()}
ERRORS |= BY_CODE.keys()  # a plugin's error has the code of the pod's reason
_CODE = re.compile(
    rf"(?<![\w/])(?:{'|'.join(sorted({code.split('_')[0] for code in ERRORS if '_' in code}))})_[A-Z_]+\b"
)


@each_page
def test_every_error_code_that_is_named_exists(page):
    text = page.read_text()
    variables = {name for setting in SETTINGS for name in (setting.env, *setting.aliases)}
    known = ERRORS | set(CHECK_WORDS) | set(BY_CODE) | variables
    assert {*_CODE.findall(text), *re.findall(r"error_code=([A-Z_]+)", text)} <= known


# --- what must stay outside ------------------------------------------------------------------------------------------

_HOSTS = """
    pypi org | files pythonhosted org | registry npmjs org | registry npmmirror com | registry yarnpkg com
    proxy golang org | sum golang org | goproxy cn | goproxy io | crates io | rubygems org | repo maven apache org
    repo1 maven org | conda anaconda org | deb debian org | security debian org | archive ubuntu com
    security ubuntu com | pypi tuna tsinghua edu cn | mirrors aliyun com
"""
FORBIDDEN = [  # put together here, so that this file does not name them either
    *(".".join(host.split()) for host in _HOSTS.replace("\n", "|").split("|") if host.strip()),
    "/".join(("", "work", "shared")),
    "/".join(("..", "shared")),
]


def repository_files() -> list[Path]:
    """Everything that is or would be committed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_registry_or_a_place_outside_the_repository():
    pattern = re.compile("|".join(map(re.escape, FORBIDDEN)).encode(), re.I)
    files = repository_files()
    assert Path(__file__) in files
    assert {str(path): found[0] for path in files if (found := pattern.search(path.read_bytes()))} == {}
