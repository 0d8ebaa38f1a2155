"""What `make test` says at its end, and which Pythons it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import bare
from tests.paths import REPOSITORY
from tools.testing import environments, run
from tools.testing.environments import PythonMissing
from tools.testing.run import NOT_IN_PART, PART, Outcome, closing

OWN = "{}.{}".format(*sys.version_info)
PASSED = Outcome(0, {"passed": 10, "skipped": 1, "deselected": 400, "warnings": 3})


def last(*outcomes: Outcome) -> tuple[str, int]:
    lines, code = closing(outcomes, 812.3)
    return lines[-1].strip("= "), code


def test_the_last_line_has_the_numbers_of_all_runs():
    assert last(PASSED, Outcome(0, {"passed": 5})) == ("15 passed, 1 skipped in 812.30s (0:13:32)", 0)


def test_a_run_that_passed_has_no_failed_in_its_last_line_and_names_its_flaky_tests():
    flaky = Outcome(0, {"passed": 5, "flaky": 1}, ("tests/test_a.py::test_b",))
    lines, code = closing([PASSED, flaky], 812.3)
    assert "FLAKY tests/test_a.py::test_b" in lines
    assert (lines[-1].strip("= "), code) == ("15 passed, 1 skipped, 1 flaky in 812.30s (0:13:32)", 0)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_failure_on_one_python_fails_the_run(order):
    failed = Outcome(1, {"failed": 2, "passed": 5})
    both = [(PASSED, failed)[number] for number in order]
    assert last(*both) == ("2 failed, 15 passed, 1 skipped in 812.30s (0:13:32)", 1)


def test_flaky_tests_of_all_runs_count_together():
    two = Outcome(0, {"passed": 5, "flaky": 2}, ("a", "b"))
    lines, code = closing([two, two], 812.3)
    assert (lines[-1].strip("= "), code) == ("4 failed, 6 passed, 4 flaky in 812.30s (0:13:32)", 1)
    assert "FLAKY: 4 flaky tests in one run; more than 3 fail it" in lines


@pytest.mark.parametrize("code", [2, 3, -9])
def test_a_run_that_was_interrupted_or_broke_is_an_error(code):
    assert last(PASSED, Outcome(code, {"passed": 4})) == ("14 passed, 1 skipped, 1 error in 812.30s (0:13:32)", code)


def test_pytest_that_dies_without_a_word_is_an_error(tmp_path):
    done = run.run([sys.executable, "-c", "import os; os._exit(9)"], tmp_path, seed=1)
    assert (done.code, done.counts) == (9, {"error": 1})


def test_what_runs_on_the_lowest_python_exists():
    assert [path for path in (*PART, *NOT_IN_PART) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("ci", ["true", None])
def test_a_python_that_is_missing_fails_ci_and_is_told_elsewhere(ci, monkeypatch, capsys):
    def only_own(version):
        if version != OWN:
            raise PythonMissing(f"Python {version} is missing")
        return Path(sys.executable)

    monkeypatch.setattr(run, "environment", only_own)
    monkeypatch.setattr(run, "run", lambda command, directory, *, seed: Outcome(0, {"passed": 1}))
    monkeypatch.setenv("CI", ci) if ci else monkeypatch.delenv("CI", raising=False)
    code = run.main(["--all", "3.99", "--part", OWN])
    told = capsys.readouterr().out
    assert "Python 3.99 is missing" in told
    assert code == (1 if ci else 0)
    assert ("tests: all on Python" in told) == (not ci)  # outside CI all tests run on what is there


def test_an_own_version_needs_no_other_environment():
    assert environments.environment(OWN) == Path(sys.executable)


def test_the_python_that_runs_is_found_from_an_empty_home(tmp_path):
    """As in CI, where PATH may name another version first, and pyenv has this one without having selected it."""
    path = f"/usr/bin:/bin:{Path(sys.base_prefix, 'bin')}"
    environment = bare(HOME=str(tmp_path)) | {"PATH": path}
    done = subprocess.run(
        [REPOSITORY / "tools/python", OWN], env=environment, capture_output=True, text=True, check=True
    )
    code = 'import sys; print("{}.{}".format(*sys.version_info))'
    answer = subprocess.run([done.stdout.strip(), "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == OWN


def test_a_version_that_nobody_has_is_one_sentence(tmp_path):
    done = subprocess.run(
        [REPOSITORY / "tools/python", "3.99"], env=bare(HOME=str(tmp_path)), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "python: there is no Python 3.99 on this machine; tools/python has the list of places\n"


def test_a_version_of_pyenv_is_found_beside_its_shims(tmp_path):
    root = tmp_path / "pyenv"
    (root / "shims").mkdir(parents=True)
    (root / "versions" / "3.99.1" / "bin").mkdir(parents=True)
    shim, real = root / "shims" / "python3.99", root / "versions" / "3.99.1" / "bin" / "python3"
    shim.write_text("#!/bin/sh\nexit 127\n")
    real.write_text(f"#!/bin/sh\necho 3.99 {real}\n")
    (root / "shims" / "python3").write_text("#!/bin/sh\necho 3.10 /elsewhere/python3\n")
    for file in (shim, real, root / "shims" / "python3"):
        file.chmod(0o755)
    environment = {"PATH": f"{root}/shims:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([REPOSITORY / "tools/python", "3.99"], env=environment, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(real), "")
