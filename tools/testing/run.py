"""`python -m tools.testing.run --all 3.12 --part 3.11 -n 5`: the test suite, on every Python that we promise.

All tests run on the Python of the image. Tests of what may differ between versions run on the lowest one too:
processes, signals, the event loop, sockets, HTTP and gRPC, bytes and files. Everything else computes values from
values; mypy and ruff check its syntax and its types for the lowest version.

The last line is a closing line of pytest with the numbers of both runs.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.testing import flaky
from tools.testing.environments import PythonMissing, environment

ROOT = Path(__file__).parents[2]
PART = (
    "tests/formats",
    "tests/http",
    "tests/runtime",
    "tests/services",
    "tests/sinks",
    "tests/sources",
    "tests/store/engine",
    "tests/test_config.py",
    "tests/test_worker.py",
)
NOT_IN_PART = ("tests/services/analyzer",)  # the slowest; what it has of its own is computed
_INTERRUPTED = 2
_ORDER = ("failed", "passed", "skipped", "xfailed", "xpassed", "error", "flaky")


class Outcome(NamedTuple):
    """What one run of pytest had."""

    code: int
    counts: dict[str, int]
    flaky: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the tests on every Python that we promise.")
    parser.add_argument("--all", metavar="VERSION", required=True, help="the Python that runs all tests")
    parser.add_argument("--part", metavar="VERSION", required=True, help="the Python that runs what may differ")
    parser.add_argument("-n", metavar="WORKERS", default="5")
    options = parser.parse_args(arguments)
    began, seed = time.monotonic(), random.getrandbits(32)
    try:
        pythons = _pythons(options.all, options.part)
    except PythonMissing as e:
        print(f"tests: {e}")
        return 1
    usual = ["-n", options.n, "--dist", "loadgroup"]
    outcomes = []
    for version, python in pythons.items():
        whole = version == options.all or len(pythons) == 1
        print(f"tests: {'all' if whole else 'what may differ'} on Python {version}", flush=True)
        chosen = ["-m", "not long"] if whole else ["-m", "not real and not soak and not long", *PART]
        chosen += [] if whole else [f"--ignore={path}" for path in NOT_IN_PART]
        outcomes.append(run([str(python), "-m", "pytest", *usual, *chosen], ROOT, seed=seed))
        if outcomes[-1].code == _INTERRUPTED:
            break
    lines, code = closing(outcomes, time.monotonic() - began)
    print("\n".join(lines), flush=True)
    return code


def run(command: Sequence[str], directory: Path, *, seed: int) -> Outcome:
    """Run pytest, which prints what it does; failed tests run again alone."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    with tempfile.TemporaryDirectory(prefix="tests-") as path:
        file = Path(path, "outcome.json")
        flags = ["-p", "tools.testing.alone", "--again", f"--outcome={file}", f"--hypothesis-seed={seed}"]
        with subprocess.Popen([*command, *flags], cwd=directory, env=environment) as process:
            try:
                code = process.wait()
            except KeyboardInterrupt:  # pytest was interrupted too, and ends in order
                code = process.wait() or _INTERRUPTED
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"counts": {"error": 1}}
    return Outcome(code, found["counts"], tuple(found.get("flaky", ())))


def closing(outcomes: Sequence[Outcome], seconds: float) -> tuple[list[str], int]:
    """The last lines of all runs together, and the exit code."""
    code = next((one.code for one in outcomes if one.code), 0)
    counts: Counter[str] = Counter()
    for one in outcomes:
        counts.update({name: number for name, number in one.counts.items() if name in _ORDER})
    names = [name for one in outcomes for name in one.flaky]
    lines = [f"FLAKY {name}" for name in names]
    if not code and len(names) > flaky.MOST_IN_RUN:  # each run had few enough
        lines.append(f"FLAKY: {len(names)} flaky tests in one run; more than {flaky.MOST_IN_RUN} fail it")
        counts["failed"] += len(names)
        counts["passed"] -= len(names)
        code = 1
    if lines:
        lines = ["FLAKY: failed once and passed alone; docs/testing.md says what follows", *lines]
    if code and not counts["failed"] and not counts["error"]:
        counts["error"] = 1  # interrupted, or pytest itself failed
    parts = [f"{counts[name]} {_plural(name, counts[name])}" for name in _ORDER if counts[name]]
    hours = time.strftime("%-H:%M:%S", time.gmtime(seconds))
    text = f" {', '.join(parts) or 'no tests ran'} in {seconds:.2f}s ({hours}) "
    return [*lines, text.center(100, "=")], code


def _plural(name: str, number: int) -> str:
    return "errors" if name == "error" and number > 1 else name


def _pythons(whole: str, part: str) -> dict[str, Path]:
    """The environments to run in, by version. Outside CI the tests run on what is there."""
    found: dict[str, Path] = {}
    for version in dict.fromkeys((whole, part)):
        try:
            found[version] = environment(version)
        except PythonMissing as e:
            if os.environ.get("CI") == "true":
                raise
            print(f"tests: {e}: they do not run on it")
    return found or {platform.python_version(): Path(sys.executable)}


if __name__ == "__main__":
    sys.exit(main())
