"""A /proc with the files that a node agent reads; the directory of a process appears and disappears as a whole."""

import shutil
from pathlib import Path

from vgpuscope.sim.jobs import Job, Life, Process

_TICKS = 100  # clock ticks per second
_UPTIME = 11 * 86400.0  # seconds for which the node had been up when the demo began


class ProcTree:
    """The process directories of a node, kept equal to a list."""

    def __init__(self, root: Path, *, runtime: str, began: float) -> None:
        self._root, self._runtime = root, runtime
        self._known: set[int] = set()
        root.mkdir(parents=True)
        (root / "stat").write_text(f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {int(began - _UPTIME)}\n")
        self._add(1, command="systemd", ticks=1, cgroup="0::/init.scope\n")
        self._add(871, command="kubelet", ticks=902, cgroup="0::/system.slice/kubelet.service\n")

    def update(self, running: list[tuple[Life, Process]]) -> None:
        """Adds new processes and removes ended ones."""
        now = {process.pid: (life, process) for life, process in running}
        for pid in self._known - now.keys():
            self._remove(pid)
        for pid in now.keys() - self._known:
            life, process = now[pid]
            ticks = int((process.began + _UPTIME) * _TICKS)
            cgroup = cgroup_text(self._runtime, job=life.job, uid=_cgroup_uid(life), container=life.container_id)
            self._add(pid, command=process.command, ticks=ticks, cgroup=cgroup)
        self._known = set(now)

    def _add(self, pid: int, *, command: str, ticks: int, cgroup: str) -> None:
        fresh = self._root / f".{pid}"
        fresh.mkdir()
        after = [0] * 17 + [ticks] + [0] * 30  # ppid up to the field before start time, start time, the rest
        (fresh / "stat").write_text(f"{pid} ({command[:15]}) S 1 {' '.join(map(str, after))}\n")
        (fresh / "comm").write_text(f"{command[:15]}\n")
        (fresh / "status").write_text(f"Name:\t{command[:15]}\nState:\tS (sleeping)\nPid:\t{pid}\nNSpid:\t{pid}\n")
        (fresh / "cgroup").write_text(cgroup)
        fresh.rename(self._root / str(pid))

    def _remove(self, pid: int) -> None:
        grave = self._root / f".{pid}"
        (self._root / str(pid)).rename(grave)
        shutil.rmtree(grave)


def cgroup_text(runtime: str, *, job: Job, uid: str, container: str) -> str:
    """The content of /proc/<pid>/cgroup under one of the container runtimes."""
    if job.host:
        return f"0::/system.slice/{job.name}.service\n"
    qos = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}[job.qos]
    if runtime == "docker-cgroupfs":
        path = "/".join(filter(None, ["/kubepods", qos, f"pod{uid}", container]))
        return f"12:devices:{path}\n4:memory:{path}\n1:name=systemd:{path}\n0::/\n"
    prefix = {"crio": "crio", "containerd": "cri-containerd"}[runtime]
    outer = "kubepods.slice/" + (f"kubepods-{qos}.slice/" if qos else "")
    pod = "-".join(filter(None, ["kubepods", qos, f"pod{uid.replace('-', '_')}"]))
    inner = "/container" if runtime == "crio" else ""
    return f"0::/{outer}{pod}.slice/{prefix}-{container}.scope{inner}\n"


def _cgroup_uid(life: Life) -> str:
    return life.config_hash if life.job.static else life.uid
