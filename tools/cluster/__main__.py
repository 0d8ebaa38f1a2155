"""`make e2e`, `make demo CLUSTER=1`, `make e2e-down`: tests on a real cluster, one to try things in, its end."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from tools.cluster import layout, machine, playground, warden
from tools.cluster.errors import Failed, Lacking
from tools.cluster.progress import say

LACKING = 3  # exit code: this machine cannot run a cluster


def main(words: list[str]) -> int:
    if words == ["down"]:
        down()
        return 0
    try:
        if words == ["check"]:
            machine.check_rights()
            return 0
        with machine.alone():
            down()
            machine.check()
            if words == ["demo"]:
                playground.main()
                return 0
            return tests(words)
    except Lacking as e:
        return lacking(e)
    except Failed as e:
        say(f"{e}\nThe logs of all programs are in {layout.LOGS}")
        return 1


def lacking(reason: Lacking) -> int:
    """Says what this machine lacks; the exit code."""
    say(str(reason))
    return 1 if os.environ.get("CI") == "true" else LACKING


def tests(words: list[str]) -> int:
    """Runs tests/e2e with further words for pytest; its exit code.

    A test that fails runs once more on a cluster of its own, by the rule of `make test`; not if the cluster stays, and
    not the soak, which takes longer than a test may.
    """
    again = [] if os.environ.get("KEEP") or "tests/e2e/soak.py" in words else ["-p", "tools.testing.alone", "--again"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-s",
        "-v",
        "--durations=20",
        *again,
        *(words or ["tests/e2e"]),
    ]
    runner = subprocess.Popen(command, env={**os.environ, "VGPUSCOPE_E2E": "1"}, cwd=layout.REPOSITORY)
    while True:
        try:
            return runner.wait()
        except KeyboardInterrupt:  # pytest got it, too, and ends the cluster
            continue


def down() -> None:
    """Ends a cluster that was kept, and removes what one that was killed left behind."""
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        pid = int(warden.PID_FILE.read_text())
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            if b"tools.cluster.warden" not in line.read():
                raise ProcessLookupError
        os.kill(pid, signal.SIGTERM)
        say("ending the cluster that runs here")
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.1)
    warden.clean()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
