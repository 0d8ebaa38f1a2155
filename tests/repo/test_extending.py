"""docs/extending.md, walked in a copy of the repository: a metric is added, and all that the page says is run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.repo.test_doc_blocks import example

_PARTS = ("src", "tests", "tools", "docs", "charts", "deploy", "bench", "web/src", "web/package.json")
_FILES = (
    "pyproject.toml",
    "mkdocs.yml",
    "Makefile",
    "README.md",
    "README.zh-CN.md",
    ".github/CODEOWNERS",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "MAINTAINERS.md",
    "RELEASING.md",
    "SECURITY.md",
)
# Of `make test-fast`, what a new metric can break: names, pages, figures of the documentation, recorded pages.
_CONCERNED = (
    "tests/repo/test_catalog.py",
    "tests/repo/test_docs.py",
    "tests/repo/test_doc_blocks.py",
    "tests/services/agent/test_golden.py",
)
_NAME = "vgpuscope_gpu_power_headroom_watts"


class Copy:
    """A copy of the repository, in which commands run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in (*_PARTS, *_FILES):
            source, target = REPOSITORY / part, root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"), symlinks=True)
            elif source.exists():
                shutil.copy(source, target)
        for words in (("init", "-q"), ("add", "-A")):  # some tests ask Git which files there are
            subprocess.run(("git", *words), cwd=root, check=True)

    def run(self, *words: str, **environ: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": f"{self.root / 'src'}:{self.root}", **environ},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def insert(self, path: str, before: str, text: str) -> None:
        content = (self.root / path).read_text()
        assert content.count(before) == 1, before
        (self.root / path).write_text(content.replace(before, text + before))

    def text(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


def test_the_metric_of_the_page_is_added_by_what_the_page_says(copy):
    catalog, view = "src/vgpuscope/catalog/agent.py", "src/vgpuscope/views/node/metrics.py"
    copy.insert(catalog, "GPU_ENERGY = _gpu(", example("GPU_POWER_HEADROOM"))
    copy.insert(view, "        (m.GPU_FAN, gpu.fan),\n", f"        {example('(m.GPU_POWER_HEADROOM').strip()},\n")
    copy.insert(view, "def _process_count(", f"{example('def _headroom')}\n\n")

    written = copy.run("-m", "tools.gen")  # make gen
    assert "docs/metrics-agent.md written" in written
    assert _NAME in copy.text("docs/metrics-agent.md")
    assert "docs/sizing.md written" in written  # its series are those of the catalog
    golden = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/services/agent/test_golden.py")
    copy.run(*golden, VGPUSCOPE_GOLDEN="write")  # make golden
    recorded = [path for path in (copy.root / "tests").rglob("*") if path.is_file() and _NAME in _read(path)]
    assert recorded, "the recorded pages have the new lines"

    copy.run("-m", "ruff", "format", "--check", catalog, view)  # make lint
    copy.run("-m", "ruff", "check", catalog, view)
    copy.run("-m", "mypy", catalog, view)
    assert "written" not in copy.run("-m", "tools.gen", "--check")
    example_is_new = "test_the_metric_of_the_worked_example_is_one"  # the page needs another example then
    copy.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not real", *_CONCERNED, "-k", f"not {example_is_new}"
    )


def test_the_copy_notices_a_metric_that_is_only_half_added(copy):
    copy.insert("src/vgpuscope/catalog/agent.py", "GPU_ENERGY = _gpu(", example("GPU_POWER_HEADROOM"))
    with pytest.raises(AssertionError, match=re.escape("docs/metrics-agent.md is not current")):
        copy.run("-m", "tools.gen", "--check")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""
