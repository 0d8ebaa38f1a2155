"""The files that hold the project's habits agree with each other."""

import ast
import re
import tomllib

import msgspec
import pytest

from tests.conftest import WHOLE
from tests.paths import REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))


def commands(recipe: str) -> set[str]:
    """Program and first word of each linter: `ruff format`, `mypy`, `tools/console/run check`."""
    found = re.findall(r"(?:\$\(BIN\)/|\.venv/bin/|(?=tools/))([^\s&]+)(?: ([a-z]\w*))?", recipe)
    return {" ".join(filter(None, words)) for words in found}


def recipe(target: str) -> str:
    (found,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return found


def test_a_commit_is_checked_by_the_linters_of_make_lint():
    config = msgspec.yaml.decode((REPOSITORY / ".pre-commit-config.yaml").read_bytes())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]  # nothing is fetched
    hooks = "\n".join(hook["entry"] for repo in config["repos"] for hook in repo["hooks"])
    python = {"ruff format", "ruff check", "mypy", "lint-imports"}
    assert commands(recipe("lint")) == {
        *python,
        "hadolint",
        "tools/console/run check",
        "tools/helm/lint",
        "tools/actionlint/lint",
    }
    assert commands(recipe("lint")) <= commands(hooks)
    assert "-m tools.gen --check" in hooks


def test_everything_that_is_tested_or_shipped_is_type_checked():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["mypy"]
    folders = {path.parts[len(REPOSITORY.parts)] for path in REPOSITORY.glob("[a-z]*/**/*.py")}
    assert folders == set(settings["files"])


def test_all_tests_run_on_the_python_of_the_image_and_some_on_the_lowest_that_is_promised():
    versions = dict(re.findall(r"^(\w+)_PYTHON +:= (\S+)$", MAKEFILE, re.MULTILINE))
    (image,) = re.findall(
        r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)\.", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE
    )
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    lowest = settings["project"]["requires-python"].removeprefix(">=")
    assert versions == {"IMAGE": image, "LOWEST": lowest}
    assert settings["tool"]["mypy"]["python_version"] == lowest
    assert settings["tool"]["ruff"]["target-version"] == f"py{lowest.replace('.', '')}"
    assert "--all $(IMAGE_PYTHON) --part $(LOWEST_PYTHON)" in recipe("test")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/testing.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_every_make_target_that_is_named_exists(page):
    named = set(re.findall(r"(?:`|^|    )make ([a-z][a-z0-9-]*)", (REPOSITORY / page).read_text(), re.MULTILINE))
    assert named
    assert named <= TARGETS


def test_the_image_gets_what_its_dockerfile_copies_and_nothing_else():
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    copied = {
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    }
    ignore = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert "*" in ignore
    named = {name for name in copied if not any(name.startswith(f"{other}/") for other in copied)}
    assert {line[1:] for line in ignore if line.startswith("!")} == named


@pytest.mark.parametrize("lock", sorted((REPOSITORY / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_a_lock_file_holds_names_versions_and_hashes_only(lock):
    text = lock.read_text()
    assert "://" not in text
    assert "--index" not in text
    for line in filter(None, text.splitlines()):
        assert re.match(r"[a-z0-9]\S*==\S+|    --hash=sha256:|    #", line), line


def test_only_one_function_builds_the_body_of_an_error():
    own = {path: path.read_text() for path in (REPOSITORY / "src").rglob("*.py")}
    built = {path.name for path, text in own.items() if re.search(r'"error": \{\s*"code"|ErrorBody\(ErrorText', text)}
    assert built == {"error_body.py"}


def answers_too_many(text: str) -> bool:
    """Whether a call in the text has the status 429 as an argument."""
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    given = [value for one in calls for value in (*one.args, *(keyword.value for keyword in one.keywords))]
    return any(isinstance(value, ast.Constant) and value.value == 429 for value in given)


def test_only_one_function_answers_429_so_that_retry_after_is_never_missing():
    texts = {path.name: path.read_text() for path in (REPOSITORY / "src").rglob("*.py")}
    assert {name for name, text in texts.items() if "429" in text and answers_too_many(text)} == {"too_many.py"}


SKIPPING = {  # a program or a right that a developer's machine may lack; CI fails without it
    "tests/chart/helmrun.py",
    "tests/controlplane.py",
    "tests/native/build.py",
    "tests/needed.py",
    "tests/sources/node/test_cgroups.py",
}


def leaves_out(source: str) -> bool:
    """Whether a module may leave a test out: a mark or a call of pytest, not a text about one."""
    words = "skip", "skipif", "xfail", "flaky", "importorskip"
    if not any(word in source for word in words):
        return False
    names = {ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    return any(name in names for word in words for name in (f"pytest.{word}", f"pytest.mark.{word}"))


def test_no_test_is_in_quarantine():
    """CONTRIBUTING.md: what may fail proves nothing. A test is left out only where a program is missing."""
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "tests").rglob("*.py")
        if leaves_out(path.read_text())
    }
    assert found == SKIPPING
    assert leaves_out("import pytest\n@pytest.mark.xfail\ndef test_a(): pass\n")


def unexplained_pauses(source: str) -> list[str]:
    """Lines that pause for some time, and say not why; texts of programs that a test starts do not count."""
    if "sleep(" not in source and "Event().wait(" not in source:
        return []
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) in {"asyncio.sleep", "time.sleep", "threading.Event().wait"}
        and node.args
        and ast.unparse(node.args[0]) != "0"
    ]
    lines = source.splitlines()
    return [line for call in calls if "  # " not in (line := lines[call.lineno - 1])]


def test_a_test_waits_for_a_state_and_not_for_a_time():
    """tests/waiting.py looks again until the state is there. A pause of another kind has its reason beside it."""
    found = {
        path.relative_to(REPOSITORY).as_posix(): lines
        for path in (REPOSITORY / "tests").rglob("*.py")
        if path.name != "waiting.py" and (lines := unexplained_pauses(path.read_text()))
    }
    assert found == {}


def test_a_pause_is_noticed():
    assert unexplained_pauses("import time\ntime.sleep(1)\n") == ["time.sleep(1)"]
    assert unexplained_pauses("import time\ntime.sleep(1)  # the pace of a slow client\n") == []
    assert unexplained_pauses("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n") == []


def test_the_fast_tests_leave_out_what_is_whole():
    assert "not whole" in recipe("test-fast")
    assert [name for name in sorted(WHOLE) if not (REPOSITORY / name).exists()] == []
