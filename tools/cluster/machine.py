"""What this machine must have, and what a cluster must not leave on it."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path

from tools.cluster import layout
from tools.cluster.errors import Lacking

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
)  # kubelet and runc need these


def cgroups() -> list[Path]:
    """The cluster's cgroup in each hierarchy, also that of version 2 if it is mounted beside the others."""
    return [path / layout.NAME for path in sorted(CGROUPS.iterdir()) if (path / "cgroup.procs").exists()]


def node_settings() -> list[Path]:
    """Settings of the kernel that the kubelet changes for the whole machine."""
    names = (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
    )
    paths = [Path("/proc/sys", name) for name in (*names, "kernel/keys/root_maxbytes")]
    return [path for path in paths if path.exists()]


def check_rights() -> None:
    """Raises Lacking with one sentence if no package and no program could make a cluster run here."""
    if os.geteuid() != 0:
        raise Lacking("a real node needs root: namespaces, mounts, cgroups and iptables")
    missing = [name for name in CONTROLLERS if not (CGROUPS / name / "tasks").exists()]
    if missing:
        raise Lacking(f"the cgroup hierarchies of version 1 are not mounted here: {', '.join(missing)}")
    if all((group.parent / "tasks").exists() for group in cgroups()):
        raise Lacking(f"no cgroup hierarchy of version 2 is mounted below {CGROUPS} beside those of version 1")
    probe = cgroups()[0].with_name(f"{layout.NAME}-probe")
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as e:
        raise Lacking(f"cgroups cannot be made here: {e}") from e


def check() -> None:
    """Raises Lacking with one sentence if a cluster cannot run here."""
    check_rights()
    with tempfile.TemporaryDirectory(dir=layout.ROOT.parent) as path:
        script = """
            mount -t tmpfs probe "$1" && mkdir "$1/upper" "$1/work" "$1/root"
            mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" probe "$1/root"
            ip link add probe0 type veth peer name probe1
            ip link add probe2 type bridge
            iptables -t nat -A POSTROUTING -m comment --comment probe -m conntrack --ctstate NEW -j MASQUERADE
        """
        words = [
            "unshare",
            "-m",
            "-n",
            "-p",
            "-C",
            "-i",
            "-u",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-ec",
            script,
        ]
        done = subprocess.run([*words, "sh", path], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason is given"])[-1]
        raise Lacking(f"namespaces, overlay mounts, bridges or iptables cannot be had here: {reason}")
    routes = subprocess.run(["ip", "-4", "route", "show"], capture_output=True, text=True, check=True).stdout.split()
    for word in routes:
        if "/" in word and IPv4Network(word, strict=False).overlaps(layout.NETWORK):
            raise Lacking(f"the network {layout.NETWORK} of the cluster is in use on this machine ({word})")


@contextmanager
def alone() -> Iterator[None]:
    """One cluster at a time on this machine."""
    with layout.LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise Lacking("another `make e2e` runs on this machine: wait for it, or end it") from e
        yield


def traces() -> dict[str, frozenset[str]]:
    """What a cluster could leave on this machine, by kind."""
    return {
        "mounts": frozenset(_field(line, 4) for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "links": frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": frozenset(_lines("ip", "route")),
        "network namespaces": frozenset(_lines("ip", "netns", "list")),
        "iptables rules": frozenset(_lines("iptables-save", "-t", "nat") + _lines("iptables-save", "-t", "filter")),
        "cgroups": frozenset(str(p) for top in CGROUPS.iterdir() if top.is_dir() for p in _groups(top)),
        "processes": frozenset(_processes()),
        "settings": frozenset(f"{path} = {path.read_text().strip()}" for path in node_settings()),
        "directories": frozenset(str(path) for path in _directories() if path.exists()),
    }


def left(before: dict[str, frozenset[str]], after: dict[str, frozenset[str]]) -> list[str]:
    """What is there now and was not there before."""
    return [f"{kind}: {item}" for kind in before for item in sorted(after[kind] - before[kind])]


def _directories() -> list[Path]:
    """Where programs of a node usually write."""
    var = [Path("/var", name) for name in ("lib/kubelet", "lib/cni", "lib/containerd", "log/pods", "log/containers")]
    run = [Path("/run", name) for name in ("containerd", "netns", "kubernetes", "flannel")]
    more = (
        "/usr/local/vgpu",
        "/tmp/vgpulock",
        "/opt/cni",
        "/opt/containerd",
        "/etc/kubernetes",
        "/usr/libexec/kubernetes",
    )
    return [*var, *run, *map(Path, more)]


def _groups(top: Path) -> list[Path]:
    """The first two levels: other programs of this machine make and remove cgroups further down."""
    return [path for path in (*top.glob("*"), *top.glob("*/*")) if path.is_dir() and layout.NAME in str(path)]


def _processes() -> Iterator[str]:
    """Processes of programs that only a cluster starts."""
    names = {"containerd", "kubelet", "kube-proxy", "kube-apiserver", "etcd", "coredns", "containerd-shim", "runc"}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            program = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(layout.ROOT).encode() in b" ".join(program) and Path(program[0].decode()).name[:15] in {
            n[:15] for n in names
        }:
            yield f"{path.name} {Path(program[0].decode()).name}"


def _field(line: str, number: int) -> str:
    return line.split()[number]


def _lines(*words: str) -> list[str]:
    output = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return [line for line in output.splitlines() if not line.startswith("#") and not line.startswith(":")]
