"""The record of flaky tests: `flaky.jsonl`, one JSON object for each test that failed in a run and then passed alone.

One file in the user's cache is shared by all clones on a machine, so that a clone that is made for one run knows the
runs before it. `build/flaky.jsonl` has what was seen in this clone.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

MOST_IN_RUN = 3  # more in one run fail it
REMEMBERED = timedelta(days=30)


class Flaky(NamedTuple):
    """A test that failed once and passed alone."""

    time: str
    commit: str
    python: str
    test: str
    seed: int
    seconds: float  # of the failure
    load: float  # average of the machine's last minute when it failed
    log: str


def shared_file() -> Path:
    """The file of this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vgpuscope" / "flaky.jsonl"


def append(file: Path, entries: Iterable[Flaky]) -> None:
    """Add lines; runs that end at the same time do not mix them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as target:
        fcntl.flock(target, fcntl.LOCK_EX)
        target.write("".join(json.dumps(entry._asdict(), ensure_ascii=False) + "\n" for entry in entries))


def times_seen(file: Path, now: datetime) -> dict[str, int]:
    """How often each test was flaky in the last 30 days. A line that cannot be read does not count."""
    seen: dict[str, int] = {}
    for line in _lines(file):
        try:
            entry = json.loads(line)
            test, time = str(entry["test"]), datetime.fromisoformat(entry["time"])
            if now - time < REMEMBERED:
                seen[test] = seen.get(test, 0) + 1
        except (ValueError, KeyError, TypeError):
            continue
    return seen


def objections(tests: Iterable[str]) -> list[str]:
    """Why a run with these flaky tests fails; none if it may pass."""
    number = len(set(tests))
    return [f"{number} flaky tests in one run; more than {MOST_IN_RUN} fail it"] if number > MOST_IN_RUN else []


def now() -> datetime:
    return datetime.now(UTC)


def commit(directory: Path) -> str:
    """What is checked out; "unknown" without Git."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _lines(file: Path) -> Iterator[str]:
    try:
        yield from file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
