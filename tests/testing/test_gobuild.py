"""Programs that are built once: what a developer reads while that takes minutes."""

import fcntl
import os
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

# Stands in for Go: it answers what the scripts ask, and builds only once a test has opened the gate.
_GO = """#!/bin/bash
case "$1" in
  list) exit 0 ;;
  env) echo go1.99 ;;
  build)
    until [ -e "$GATE" ]; do sleep 0.05; done
    while [ "$1" != -o ]; do shift; done
    case "$2" in
      */) touch "$2"kube-{apiserver,scheduler,controller-manager} && chmod 755 "$2"* ;;
      *) touch "$2" && chmod 755 "$2" ;;
    esac ;;
esac
"""


class Build:
    """One of the scripts at work, in a copy of its own, and what it has said so far."""

    def __init__(self, root: Path, name: str) -> None:
        self.cache, self.gate = root / "cache", root / "gate"
        tools = root / "tools"
        if not tools.exists():
            (root / "bin").mkdir()
            (root / "bin" / "go").write_text(_GO)
            (root / "bin" / "go").chmod(stat.S_IRWXU)
            for part in ("gobuild.sh", "go.txt"):
                tools.mkdir(exist_ok=True)
                shutil.copy(REPOSITORY / "tools" / part, tools)
        shutil.copytree(REPOSITORY / "tools" / name, tools / name, dirs_exist_ok=True)
        self._process = subprocess.Popen(
            [tools / name / "build"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
                "XDG_CACHE_HOME": str(self.cache),
                "GATE": str(self.gate),
                "STILL_SECONDS": "0.1",
            },
        )
        self.said, self._news = "", threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, words: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: words in self.said, 60), self.said

    def open(self) -> None:
        self.gate.touch()

    def result(self) -> str:
        out = self._process.stdout.read()
        self._process.stdout.close()
        self._reader.join(60)
        assert self._process.wait(60) == 0, self.said
        return out.strip()

    def _read(self) -> None:
        with self._process.stderr as lines:
            for line in lines:
                with self._news:
                    self.said += line
                    self._news.notify_all()


@pytest.mark.parametrize(("name", "takes"), [("helm", "3 to 5 minutes"), ("controlplane", "7 to 10 minutes")])
def test_a_first_build_says_how_long_it_takes_and_that_it_still_runs(tmp_path, name, takes):
    build = Build(tmp_path, name)
    build.until(f"is not built on this machine yet: {takes} on two cores, once")
    build.until("still building, for")
    build.open()
    assert Path(build.result()).exists()
    assert "built in" in build.said
    again = Build(tmp_path, name)
    again.result()
    assert again.said == ""


def test_who_waits_for_the_build_of_another_checkout_is_told(tmp_path):
    (tmp_path / "cache" / "vgpuscope").mkdir(parents=True)
    with (tmp_path / "cache" / "vgpuscope" / "helm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build = Build(tmp_path, "helm")
        build.until("another checkout builds it")
        build.until("still waiting for the other checkout, for")
    build.until("still building")
    build.open()
    assert Path(build.result()).name == "helm"
