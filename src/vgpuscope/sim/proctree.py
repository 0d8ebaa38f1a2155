"""A /proc with the files that a node agent reads; the directory of a process appears and disappears as a whole."""

import shutil
from pathlib import Path

from vgpuscope.sim.jobs import Job, Life, Process

_TICKS = 100  # clock ticks per second
_UPTIME = 11 * 86400.0  # seconds for which the node had been up when the demo began
_CPUS = 64
_MEMORY_KIB = 512 << 20
_NETWORK = (
    "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
    "    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n  eth0: 88000000 61000 0 0 0 0 0 0 9000000 7000 0 0 0 0 0 0\n"
)


class ProcTree:
    """The process directories of a node, kept equal to a list."""

    def __init__(self, root: Path, *, runtime: str, began: float) -> None:
        self._root, self._runtime = root, runtime
        self._known: set[int] = set()
        root.mkdir(parents=True)
        self._began = began
        self._host(0.0)
        self._add(1, command="systemd", ticks=1, cgroup="0::/init.scope\n")
        self._add(871, command="kubelet", ticks=902, cgroup="0::/system.slice/kubelet.service\n")

    def update(self, running: list[tuple[Life, Process]], *, elapsed: float = 0.0) -> None:
        """Adds new processes and removes ended ones."""
        self._host(elapsed)
        now = {process.pid: (life, process) for life, process in running}
        for pid in self._known - now.keys():
            self._remove(pid)
        for pid in now.keys() - self._known:
            life, process = now[pid]
            ticks = int((process.began + _UPTIME) * _TICKS)
            cgroup = cgroup_text(self._runtime, job=life.job, uid=_cgroup_uid(life), container=life.container_id)
            self._add(pid, command=process.command, ticks=ticks, cgroup=cgroup, own_network=not life.job.host)
        self._known = set(now)

    def _host(self, elapsed: float) -> None:
        """CPU, memory and load of the node, since boot."""
        ticks = int((_UPTIME + elapsed) * _TICKS * _CPUS)
        share = (ticks // 5, 0, ticks // 40, ticks - ticks // 5 - ticks // 40, 0, 0, 0, 0, 0, 0)
        lines = [f"cpu  {' '.join(map(str, share))}", *(f"cpu{n} 0 0 0 0" for n in range(_CPUS))]
        _replace(self._root / "stat", "\n".join([*lines, f"btime {int(self._began - _UPTIME)}", ""]))
        _replace(self._root / "meminfo", f"MemTotal: {_MEMORY_KIB} kB\nMemAvailable: {_MEMORY_KIB * 2 // 3} kB\n")
        _replace(self._root / "loadavg", "11.20 10.80 10.10 12/2041 40231\n")

    def _add(self, pid: int, *, command: str, ticks: int, cgroup: str, own_network: bool = False) -> None:
        fresh = self._root / f".{pid}"
        fresh.mkdir()
        after = [0] * 17 + [ticks] + [0] * 30  # ppid up to the field before start time, start time, the rest
        (fresh / "stat").write_text(f"{pid} ({command[:15]}) S 1 {' '.join(map(str, after))}\n")
        (fresh / "comm").write_text(f"{command[:15]}\n")
        (fresh / "status").write_text(
            f"Name:\t{command[:15]}\nState:\tS (sleeping)\nPid:\t{pid}\nNSpid:\t{pid}\n{_user(own_network)}"
        )
        (fresh / "cgroup").write_text(cgroup)
        (fresh / "cmdline").write_bytes(f"{command}\0main.py\0".encode())
        if pid == 1 or own_network:
            (fresh / "net").mkdir()
            (fresh / "net" / "dev").write_text(_NETWORK)
        fresh.rename(self._root / str(pid))

    def _remove(self, pid: int) -> None:
        grave = self._root / f".{pid}"
        (self._root / str(pid)).rename(grave)
        shutil.rmtree(grave)


def cgroup_text(runtime: str, *, job: Job, uid: str, container: str) -> str:
    """The content of /proc/<pid>/cgroup under one of the container runtimes."""
    if job.host:
        return f"0::/system.slice/{job.name}.service\n"
    path = cgroup_path(runtime, job=job, uid=uid, container=container)
    if runtime == "docker-cgroupfs":
        lines = ("12:devices", "9:blkio", "6:cpu,cpuacct", "4:memory", "1:name=systemd")
        return "".join(f"{line}:{path}\n" for line in lines) + "0::/\n"
    return f"0::{path}{'/container' if runtime == 'crio' else ''}\n"


def cgroup_path(runtime: str, *, job: Job, uid: str, container: str) -> str:
    """The cgroup of a container under one of the container runtimes."""
    qos = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}[job.qos]
    if runtime == "docker-cgroupfs":
        return "/".join(filter(None, ["/kubepods", qos, f"pod{uid}", container]))
    prefix = {"crio": "crio", "containerd": "cri-containerd"}[runtime]
    outer = "kubepods.slice/" + (f"kubepods-{qos}.slice/" if qos else "")
    pod = "-".join(filter(None, ["kubepods", qos, f"pod{uid.replace('-', '_')}"]))
    return f"/{outer}{pod}.slice/{prefix}-{container}.scope"


def _cgroup_uid(life: Life) -> str:
    return life.config_hash if life.job.static else life.uid


def _user(of_a_pod: bool) -> str:
    user = 1000 if of_a_pod else 0
    return f"Uid:\t{user}\t{user}\t{user}\t{user}\n"


def _replace(path: Path, content: str) -> None:
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(content)
    fresh.rename(path)


class CgroupTree:
    """The cgroups of the running containers, of version 1 or 2 as their runtime has them."""

    def __init__(self, root: Path, *, runtime: str) -> None:
        self._root, self._runtime = root, runtime
        self._known: dict[str, list[Path]] = {}  # directories by pod UID
        self._v2 = runtime != "docker-cgroupfs"
        root.mkdir(parents=True)
        if self._v2:
            (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")

    def update(self, running: list[Life], *, elapsed: float) -> None:
        """Adds new containers, removes ended ones, and lets their CPU time go on."""
        now = {life.uid: life for life in running if not life.job.host}
        for uid in self._known.keys() - now.keys():
            for directory in self._known.pop(uid):
                shutil.rmtree(directory)
        for uid, life in now.items():
            if uid not in self._known:
                self._known[uid] = self._make(life)
            used = max(0.0, elapsed - life.born) * life.job.cpu
            if self._v2:
                _replace(
                    self._known[uid][0] / "cpu.stat", f"usage_usec {int(used * 1e6)}\nuser_usec 0\nsystem_usec 0\n"
                )
            else:
                _replace(self._known[uid][0] / "cpuacct.usage", f"{int(used * 1e9)}\n")

    def _make(self, life: Life) -> list[Path]:
        path = cgroup_path(self._runtime, job=life.job, uid=_cgroup_uid(life), container=life.container_id)
        tops = ("",) if self._v2 else ("cpu,cpuacct", "memory", "blkio")
        directories = [self._root / f"{top}{path}".lstrip("/") for top in tops]
        for directory, files in zip(directories, _files(v2=self._v2), strict=True):
            directory.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (directory / name).write_text(content)
        return directories


def _files(*, v2: bool) -> list[dict[str, str]]:
    memory, inactive = 3 << 30, 1 << 30
    if v2:
        return [
            {
                "cpu.max": "max 100000\n",
                "memory.current": f"{memory}\n",
                "memory.max": f"{8 << 30}\n",
                "memory.stat": f"anon 0\ninactive_file {inactive}\n",
                "io.stat": "259:0 rbytes=812345344 wbytes=1048576 rios=9000 wios=12\n",
            }
        ]
    cpu = {"cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"}
    cpu |= {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}
    used = {"memory.usage_in_bytes": f"{memory}\n", "memory.limit_in_bytes": f"{8 << 30}\n"}
    used |= {"memory.stat": f"cache 0\ntotal_inactive_file {inactive}\n"}
    moved = "8:0 Read 812345344\n8:0 Write 1048576\n8:0 Total 813393920\nTotal 813393920\n"
    return [cpu, used, {"blkio.throttle.io_service_bytes_recursive": moved}]
