"""A pytest plugin: a test that fails is run once more, alone, after all others; the slowest files are printed.

    python -m pytest -p tools.testing.alone --again -n 5

A test that passes alone is flaky: the run passes, and the first failure is printed under FLAKY and appended to the
record of tools/testing/flaky.py, which also says how many are too many. Alone means: in a fresh process, without
workers, after all tests of the run, with the same seed. So a property that Hypothesis refuted is refuted again.
An error of the collection, an interrupted run and a run that ran out of workers are never run again.

pytest-rerunfailures runs a test again at once, in the same worker, beside the same load.
"""

import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tools.testing import flaky

MOST_AGAIN = 10  # failed tests; more are no races
SLOWEST = 10
_WITHIN = 1200.0  # seconds for one test alone; pytest-timeout ends it before that
_LOG = 20_000  # characters of a failure that are kept


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vgpuscope")
    group.addoption("--again", action="store_true", help="run a test that failed once more, alone, at the end")
    group.addoption("--outcome", metavar="FILE", help="write the numbers of this run into a JSON file")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if config.option.again and getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(random.getrandbits(32))
    config.pluginmanager.register(_Run(config), "vgpuscope-alone")


class _Again:
    """A test that ran again, alone."""

    def __init__(self, passed: bool, seconds: float, output: str) -> None:
        self.passed, self.seconds, self.output = passed, seconds, output


class _Run:
    """What happened in this run; in the process that collects the reports of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._began = config, time.monotonic()
        self._failures: dict[str, list[pytest.TestReport]] = {}
        self._load: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._tests: dict[str, set[str]] = {}
        self._again: dict[str, _Again] = {}
        self._seen: dict[str, int] = {}
        self._flaky: list[flaky.Flaky] = []
        self._objections: list[str] = []
        self._notes: list[str] = []

    @property
    def _seed(self) -> int:
        return int(getattr(self._config.option, "hypothesis_seed", None) or 0)

    def pytest_report_header(self) -> str | None:
        return f"seed: {self._seed} (again: --hypothesis-seed={self._seed})" if self._config.option.again else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, test = report.nodeid.partition("::")[0], _test(report.nodeid)
        self._seconds[file] = self._seconds.get(file, 0.0) + report.duration
        self._tests.setdefault(file, set()).add(test)
        if report.failed:
            self._failures.setdefault(test, []).append(report)
            self._load.setdefault(test, os.getloadavg()[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        done = yield  # an interrupted run, a run without workers and one that could not collect raise here
        if self._config.option.again and self._failures:
            self._run_again(session)
        return done

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if file := self._config.option.outcome:
            outcome = {
                "python": platform.python_version(),
                "exit": int(exitstatus),
                "counts": self._counts(),
                "flaky": [entry.test for entry in self._flaky],
                "objections": self._objections,
                "seconds": time.monotonic() - self._began,
            }
            Path(file).write_text(json.dumps(outcome))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        out = terminalreporter
        out.ensure_newline()
        for test, again in self._again.items():
            if not again.passed:
                out.section(f"FAILED AGAIN, ALONE: {test}", sep="_", red=True)
                out.write(again.output)
        if self._flaky:
            out.section("FLAKY", yellow=True)
        for entry in self._flaky:
            out.section(entry.test, sep="_", yellow=True)
            out.write_line(
                f"failed after {entry.seconds:.1f} s and passed alone; Python {entry.python}, seed {entry.seed}, "
                f"load {entry.load:.1f}, {entry.time}"
            )
            out.write_line(entry.log)
            if times := self._seen.get(entry.test):
                out.write_line(f"FLAKY: seen {times} times before: mend it first: {entry.test}", yellow=True)
        if self._flaky:
            out.section("flaky tests", sep="-", yellow=True)
        for entry in self._flaky:
            out.write_line(f"FLAKY {entry.test}", yellow=True)
        for line in self._notes + self._objections:
            out.write_line(f"FLAKY: {line}", red=line in self._objections)
        self._write_slowest(out)

    # --- tests that failed --------------------------------------------------------------------------------------------

    def _run_again(self, session: pytest.Session) -> None:
        if len(self._failures) > MOST_AGAIN:
            self._notes.append(f"{len(self._failures)} tests failed; more than {MOST_AGAIN} are not run again")
            return
        for test in self._failures:
            self._again[test] = self._alone(test)
        commit, now = flaky.commit(self._config.rootpath), flaky.now()
        self._flaky = [
            flaky.Flaky(
                time=now.isoformat(timespec="seconds"),
                commit=commit,
                python=platform.python_version(),
                test=test,
                seed=self._seed,
                seconds=round(sum(report.duration for report in reports), 2),
                load=round(self._load[test], 2),
                log="\n".join(map(_log, reports))[-_LOG:],
            )
            for test, reports in self._failures.items()
            if self._again[test].passed and not any(map(_refuted, reports))
        ]
        if not self._flaky:
            return
        self._seen = flaky.times_seen(flaky.shared_file(), now)
        self._objections = flaky.objections(entry.test for entry in self._flaky)
        for file in (flaky.shared_file(), self._config.rootpath / "build" / "flaky.jsonl"):
            try:
                flaky.append(file, self._flaky)
            except OSError as e:
                self._notes.append(f"{file} cannot be written: {e.strerror}")
        if not self._objections:
            self._forgive(session, [entry.test for entry in self._flaky])

    def _alone(self, test: str) -> _Again:
        with tempfile.TemporaryDirectory(prefix="alone-") as path:
            outcome = Path(path, "outcome.json")
            command = [sys.executable, "-m", "pytest", "-p", "tools.testing.alone", f"--outcome={outcome}"]
            command += [f"--rootdir={self._config.rootpath}", "-ra", "--color=no"]
            command += [f"--config-file={self._config.inipath}"] if self._config.inipath else []
            command += ["-n0"] if hasattr(self._config.option, "numprocesses") else []
            command += [f"--hypothesis-seed={self._seed}"] if hasattr(self._config.option, "hypothesis_seed") else []
            began = time.monotonic()
            output = _output([*command, test], self._config.rootpath)
            counts = json.loads(outcome.read_text())["counts"] if outcome.exists() else {}
        passed = counts.get("passed") == 1 and not counts.keys() & {"failed", "error", "skipped", "xfailed"}
        return _Again(passed, time.monotonic() - began, output)

    def _forgive(self, session: pytest.Session, tests: Sequence[str]) -> None:
        """Count tests that passed alone as passed, and beside that as flaky."""
        stats = self._terminal().stats
        for test in tests:
            reports = self._failures[test]
            session.testsfailed -= len(reports)
            for category in list(stats):
                kept = [one for one in stats[category] if not any(one is report for report in reports)]
                stats[category] = kept
                if not kept:
                    del stats[category]
            stats.setdefault("flaky", []).append(reports[0])
            if not any(_test(one.nodeid) == test for one in stats.get("passed", ())):
                first = reports[0]
                passed = pytest.TestReport(first.nodeid, first.location, first.keywords, "passed", None, "call")
                stats.setdefault("passed", []).append(passed)

    # --- the summary --------------------------------------------------------------------------------------------------

    def _terminal(self) -> pytest.TerminalReporter:
        found = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, pytest.TerminalReporter)
        return found

    def _counts(self) -> dict[str, int]:
        """By category, as the closing line counts them."""
        return {
            category: sum(getattr(one, "count_towards_summary", True) for one in reports)
            for category, reports in self._terminal().stats.items()
            if category
        }

    def _write_slowest(self, out: pytest.TerminalReporter) -> None:
        if not self._config.option.again:
            return
        out.section(f"the {SLOWEST} slowest files of {len(self._seconds)}: set up, call and tear down", sep="-")
        for file, seconds in sorted(self._seconds.items(), key=lambda item: -item[1])[:SLOWEST]:
            out.write_line(f"{seconds:8.1f} s  {file} ({len(self._tests[file])} tests)")
        took = time.monotonic() - self._began
        out.write_line(f"{sum(self._seconds.values()):8.1f} s  all files; the run took {took:.1f} s")


def _test(nodeid: str) -> str:
    """Without the group that xdist appends with --dist loadgroup."""
    test, at, group = nodeid.rpartition("@")
    return test if at and "]" not in group and "::" in test else nodeid


def _refuted(report: pytest.TestReport) -> bool:
    """Whether Hypothesis found an example that fails each time: a fault, although another run may not find it again."""
    text = report.longreprtext
    return ("Failing test case: " in text or "Falsifying example: " in text) and "hypothesis.errors.Flaky" not in text


def _log(report: pytest.TestReport) -> str:
    parts = [f"--- {report.when} ---", report.longreprtext]
    parts += [f"--- {title} ---\n{text}" for title, text in report.sections]
    return "\n".join(parts)


def _output(command: Sequence[str], directory: Path) -> str:
    """What the command printed; it is killed after a while, with all that it started."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, cwd=directory, stdout=out, stderr=out, env=environment, process_group=0)
        try:
            process.wait(_WITHIN)
        except subprocess.TimeoutExpired:
            out.write(f"\nended after {_WITHIN:g} s\n")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return out.read()
