"""The first process of the node: makes its root file system and network, then starts and ends programs on request.

It runs in new namespaces for everything and needs the standard library only. Whatever programs write outside the
cluster's directory stays in a layer in memory above this machine's files. When it ends, the kernel ends all others.
"""

import contextlib
import json
import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def make_root(root: Path, new: Path, *, binds: dict[str, str], volatile: list[str]) -> None:
    """This machine's files, with a layer above that takes what is written, become the root file system.

    binds: further directories, by what of this machine they are. volatile: directories that are in memory.
    """
    scratch = new.parent / "scratch"
    for path in (new, scratch):
        path.mkdir(exist_ok=True)
    others = [m for m in _mounts() if re.match(r"/(?!proc|sys|dev|run)\w", m) and not m.startswith(str(root))]
    run("mount", "-t", "tmpfs", "-o", "mode=755", "scratch", scratch)
    for name in ("upper", "work"):
        (scratch / name).mkdir()
    run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work", "node", new)
    for place in [str(root), *others]:
        run("mount", "--bind", place, f"{new}{place}")
    for place in volatile:
        run("mount", "-t", "tmpfs", "-o", "mode=755", "data", f"{new}{place}")
    for target, source in binds.items():
        Path(f"{new}{target}").mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", source, f"{new}{target}")
    run("mount", "--rbind", "/dev", new / "dev")
    run("mount", "-t", "proc", "proc", new / "proc")
    run("mount", "-t", "sysfs", "sysfs", new / "sys")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "run", new / "run")
    controllers = sorted(path.name for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists())
    old = new / ".before"
    old.mkdir()
    os.chdir(new)
    run("pivot_root", ".", ".before")
    os.chdir("/")
    run("umount", "-l", "/.before")
    os.rmdir("/.before")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", CGROUPS)
    for name in controllers:
        if name == "unified":
            continue
        (CGROUPS / name).mkdir()
        run("mount", "-t", "cgroup", "-o", "none,name=systemd" if name == "systemd" else name, "cgroup", CGROUPS / name)
    run("mount", "--make-rshared", "/")


def make_network(host: str, node: str, hostname: str) -> None:
    """One cable to this machine, which is also the way to everywhere else."""
    run("hostname", hostname)
    run("ip", "link", "set", "lo", "up")
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode:
        time.sleep(0.05)
    run("ip", "address", "add", f"{node}/30", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", host)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    with contextlib.suppress(FileNotFoundError):  # a kernel without it filters bridged packets anyway
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")


class Programs:
    """The programs that were started here, by name; all other processes that end are reaped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: list[str], log: str, env: dict[str, str]) -> int:
        with self._lock, open(log, "ab") as out:
            program = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **env},
                start_new_session=True,
            )
            self._running[name] = program
        return program.pid

    def stop(self, name: str, number: int, within: float) -> int | None:
        """Sends the signal and waits; killed if it does not end in time. The exit status, None if it did not run."""
        program = self._running.get(name)
        if program is None:
            return None
        end = time.monotonic() + within
        with self._lock:
            if program.returncode is None:
                os.kill(program.pid, number)
        while program.returncode is None and time.monotonic() < end:
            time.sleep(0.02)
        with self._lock:
            if program.returncode is None:
                os.kill(program.pid, signal.SIGKILL)
        while program.returncode is None:
            time.sleep(0.02)
        del self._running[name]
        return program.returncode

    def status(self, name: str) -> dict[str, int | None]:
        program = self._running.get(name)
        return {"pid": program.pid, "status": program.returncode} if program else {"pid": None, "status": None}

    def reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                time.sleep(0.05)
                continue
            if ended is None:
                continue
            with self._lock:
                own = next((p for p in self._running.values() if p.pid == ended.si_pid), None)
                if own is not None:
                    own.poll()
                else:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(ended.si_pid, os.WNOHANG)


class Requests(socketserver.StreamRequestHandler):
    """One request a connection: a line of JSON, answered by a line of JSON."""

    programs: Programs

    def handle(self) -> None:
        request: dict[str, Any] = json.loads(self.rfile.readline())
        what = request.pop("do")
        try:
            answer = {"ok": getattr(self.programs, what)(**request)}
        except OSError as e:
            answer = {"error": str(e)}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def _mounts() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def main() -> None:
    plan = json.loads(sys.argv[1])
    make_root(Path(plan["root"]), Path(plan["new_root"]), binds=plan["binds"], volatile=plan["volatile"])
    make_network(plan["host_ip"], plan["node_ip"], plan["hostname"])
    Requests.programs = Programs()
    threading.Thread(target=Requests.programs.reap, daemon=True).start()
    part = plan["control"] + ".part"
    with Server(part, Requests) as server:
        os.rename(part, plan["control"])  # whoever sees it can connect
        server.serve_forever()


if __name__ == "__main__":
    main()
