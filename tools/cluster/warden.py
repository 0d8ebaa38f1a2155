"""Holds the node: makes its cgroups and its cable, starts its first process, and removes what is left when that ends.

It ends the node when its input ends, so a cluster never outlives the program that wanted it, however that died. The
line `keep` makes it hold the node until it is told to end by SIGTERM.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tools.cluster import layout
from tools.cluster.machine import cgroups, node_settings
from tools.cluster.progress import say

INSIDE = Path(__file__).with_name("inside.py")
PID_FILE = layout.ROOT / "warden.pid"
CPU_SHARES = 4096  # of the whole cluster, against 1024 of each process outside


class _Ended(Exception):
    """SIGTERM or SIGINT."""


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    PID_FILE.write_text(str(os.getpid()))
    settings = {path: path.read_text() for path in node_settings()}
    (layout.ROOT / "settings.json").write_text(json.dumps({str(path): value for path, value in settings.items()}))
    first = None
    try:
        join_cgroups()
        plan = {
            "root": str(layout.ROOT),
            "new_root": str(layout.NEW_ROOT),
            "binds": {"/var/lib/kubelet": str(layout.KUBELET), "/usr/local/vgpu": str(layout.HOOK)},
            "volatile": [str(layout.DATA)],
            "host_ip": str(layout.HOST_IP),
            "node_ip": str(layout.NODE_IP),
            "hostname": layout.NODE,
            "control": str(layout.CONTROL),
        }
        apart = ["unshare", "-m", "-n", "-p", "-C", "-i", "-u", "--fork", "--kill-child", "--propagation", "private"]
        first = subprocess.Popen(
            [*apart, sys.executable, str(INSIDE), json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        leave_cgroups()
        connect(_child_of(first.pid))
        hold(first)
    except _Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("ending the node")
        if first is not None:
            first.kill()
            first.wait()
        say("all its processes have ended")
        leave_cgroups()
        clean()
        say("nothing is left but the logs")


def hold(first: "subprocess.Popen[bytes]") -> None:
    """Returns when the node ended, or when nobody wants it any more."""
    kept = False
    while first.poll() is None:
        readable, _, _ = select.select([] if kept else [sys.stdin], [], [], 0.2)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            kept = line.strip() == "keep"


def join_cgroups() -> None:
    """From here on, what is started belongs to the cluster's cgroups."""
    for group in cgroups():
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group / name).exists():
                (group / name).write_text((group.parent / name).read_text())
        if (group / "cpu.shares").exists():
            (group / "cpu.shares").write_text(str(CPU_SHARES))
        (group / "cgroup.procs").write_text(str(os.getpid()))


def leave_cgroups() -> None:
    for group in cgroups():
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))


def connect(pid: int) -> None:
    """A cable between this machine and the node, and the ways to pods and services of the cluster."""
    cable = ["ip", "link", "add", layout.LINK, "type", "veth", "peer", "name", "eth0", "netns", str(pid)]
    for words in (
        cable,
        ["ip", "address", "add", f"{layout.HOST_IP}/30", "dev", layout.LINK],
        ["ip", "link", "set", layout.LINK, "up"],
        ["ip", "route", "add", str(layout.PODS), "via", str(layout.NODE_IP)],
        ["ip", "route", "add", str(layout.SERVICES), "via", str(layout.NODE_IP)],
    ):
        subprocess.run(words, check=True)


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.02)
    return int(found[0])


def clean() -> None:
    """Removes what a node that ended leaves: empty cgroups, settings of the kernel, the directory but for the logs."""
    subprocess.run(
        ["ip", "link", "delete", layout.LINK], check=False, capture_output=True
    )  # or it goes some time later
    with contextlib.suppress(FileNotFoundError, ValueError):
        for path, value in json.loads((layout.ROOT / "settings.json").read_text()).items():
            if Path(path).read_text() != value:
                Path(path).write_text(value)
    for group in cgroups():
        for folder in _deepest_first(group):
            _remove_cgroup(folder)
    for entry in layout.ROOT.iterdir() if layout.ROOT.exists() else ():
        if entry in {layout.LOGS, layout.EARLIER_LOGS}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _deepest_first(group: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(group, topdown=False):
        yield Path(folder)


def _remove_cgroup(folder: Path) -> None:
    """The kernel lets a cgroup go a moment after its last process has died."""
    end = time.monotonic() + 10
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


if __name__ == "__main__":
    main()
