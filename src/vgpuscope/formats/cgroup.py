"""The text of /proc/<pid>/cgroup: which pod and container a process belongs to.

One line per hierarchy, `id:controllers:path`; the path may contain colons. Drivers and runtimes name a container so:

    systemd    …/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope       also crio-, docker-, libpod-
    cgroupfs   …/kubepods/burstable/pod<uid>/<id>                                         or crio-<id>
    mismatch   …/kubepods-burstable-pod<uid with _>.slice:cri-containerd:<id>             one component

A path from inside a private cgroup namespace may begin with /../ and lack its first parts. On nodes that are themselves
containers (kind, k3d) the outer container comes first; in a pod that runs containers of its own the inner one last.
"""

import re
from typing import NamedTuple

from vgpuscope.model.quantity import PodUID

# A static pod's uid is a hash of its configuration: 32 digits without dashes.
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:^|[-_])([0-9a-f]{64})(?:\.scope)?$")
_PARTS = re.compile(r"[/:]")
_MONITOR = "conmon"  # crio-conmon-<id> watches over the container <id> and is not part of it
_REMOVED = " (deleted)"  # the kernel's mark of a cgroup that is gone while the process still ends


class PodContainer(NamedTuple):
    """A pod with its own container; without a pod, a container alone."""

    pod: PodUID | None
    container: str | None


_HOST = PodContainer(None, None)


def owners_of(text: str) -> tuple[PodContainer, ...]:
    """The pods that the process is in, the outermost first, each with its container; one entry without a pod if none.

    A pod may run containers of its own, and name their cgroups as it likes: the reader of pods knows which are real.
    """
    owners = [_owners(path.removesuffix(_REMOVED)) for path in _paths(text)]
    # Hybrid hosts have an empty v2 line beside the v1 ones: take the line that says most.
    return max(owners, key=lambda found: (found[-1].pod is not None, found[-1].container is not None), default=(_HOST,))


def _paths(text: str) -> list[str]:
    lines = (line.split(":", 2) for line in text.split("\n"))
    return [fields[2] for fields in lines if len(fields) == 3]


def _owners(path: str) -> tuple[PodContainer, ...]:
    """Each pod and its own container, which is the first behind it; without a pod the last container."""
    found = [_HOST]
    for part in _PARTS.split(path):
        last = found[-1]
        if pod := _POD.search(part):
            found.append(PodContainer(pod[1].replace("_", "-"), None))
        elif (container := _CONTAINER.search(part)) and _MONITOR not in part and not (last.pod and last.container):
            found[-1] = last._replace(container=container[1])
    return tuple(found[1:]) or (found[0],)


def container_paths(text: str, container_id: str) -> dict[str, str]:
    """The cgroup of a container by the text of one of its processes, by controller ("": cgroup v2).

    What is below the container's own component is cut off: runtimes and workloads make cgroups of their own there. A
    path that begins in a private cgroup namespace is left out, because where it begins is not known.
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        fields = line.split(":", 2)
        if len(fields) != 3 or not container_id:
            continue
        parts = fields[2].removesuffix(_REMOVED).split("/")
        depth = next((n for n, part in enumerate(parts, 1) if container_id in part and _MONITOR not in part), None)
        if depth is not None and ".." not in parts:
            found |= dict.fromkeys(fields[1].split(","), "/".join(parts[:depth]))
    return found


def pod_paths(pod_uid: PodUID) -> tuple[str, ...]:
    """Where the kubelet puts the cgroup of a pod, by either driver and for each QoS class; kind adds a prefix."""
    name = pod_uid.replace("-", "_")
    found: list[str] = []
    for qos in ("", "burstable", "besteffort"):
        for root, prefix in (("", ""), ("/kubelet.slice", "kubelet-")):
            names = (f"{prefix}kubepods", *([f"{prefix}kubepods-{qos}"] if qos else []))
            found.append(root + "".join(f"/{one}.slice" for one in (*names, f"{names[-1]}-pod{name}")))
        below = f"/{qos}/pod{pod_uid}" if qos else f"/pod{pod_uid}"
        found += [f"/kubepods{below}", f"/kubelet/kubepods{below}"]
    return tuple(found)


def is_container(name: str, container_id: str) -> bool:
    """Whether a cgroup of this name, below that of a pod, is the container's."""
    return container_id in name and _MONITOR not in name
