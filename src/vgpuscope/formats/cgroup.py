"""The text of /proc/<pid>/cgroup: which pod and container a process belongs to.

One line per hierarchy, `id:controllers:path`; the path may contain colons. Drivers and runtimes name a container so:

    systemd    …/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope       also crio-, docker-, libpod-
    cgroupfs   …/kubepods/burstable/pod<uid>/<id>                                         or crio-<id>
    mismatch   …/kubepods-burstable-pod<uid with _>.slice:cri-containerd:<id>             one component

A path from inside a private cgroup namespace may begin with /../ and lack its first parts. On nodes that are themselves
containers (kind, k3d) the outer container comes first; in a pod that runs containers of its own the inner one last.
"""

import re

from vgpuscope.model.quantity import PodUID

# A static pod's uid is a hash of its configuration: 32 digits without dashes.
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$")
_CONTAINER = re.compile(r"(?:^|[-_])([0-9a-f]{64})(?:\.scope)?$")
_PARTS = re.compile(r"[/:]")
_MONITOR = "conmon"  # crio-conmon-<id> watches over the container <id> and is not part of it
_REMOVED = " (deleted)"  # the kernel's mark of a cgroup that is gone while the process still ends


def owner_of(text: str) -> tuple[PodUID | None, str | None]:
    """The pod UID as the API writes it and the container id, each None where the text names none."""
    owners = [_owner(path.removesuffix(_REMOVED)) for path in _paths(text)]
    # Hybrid hosts have an empty v2 line beside the v1 ones: take the line that says most.
    return max(owners, key=lambda owner: (owner[0] is not None, owner[1] is not None), default=(None, None))


def _paths(text: str) -> list[str]:
    lines = (line.split(":", 2) for line in text.split("\n"))
    return [fields[2] for fields in lines if len(fields) == 3]


def _owner(path: str) -> tuple[PodUID | None, str | None]:
    """The last pod and its own container, which is the first behind it; without a pod the last container."""
    pod: PodUID | None = None
    container: str | None = None
    for part in _PARTS.split(path):
        if found := _POD.search(part):
            pod, container = found[1].replace("_", "-"), None
        elif (found := _CONTAINER.search(part)) and _MONITOR not in part and not (pod and container):
            container = found[1]
    return pod, container
