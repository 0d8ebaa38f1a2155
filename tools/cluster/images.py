"""The small images of the cluster: what pods run, the pause container, CoreDNS and kube-scheduler."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.cluster import archive, layout

APPLETS = (
    "sh",
    "sleep",
    "cat",
    "ls",
    "env",
    "mount",
    "wget",
    "nc",
    "ps",
    "mkdir",
    "touch",
    "true",
    "false",
    "nslookup",
)


def small(directory: Path, *, control_plane: Path, node_programs: Path, version: str) -> list[archive.Image]:
    """All images that are not the product's."""
    busybox = {f"bin/{name}": "busybox" for name in APPLETS}
    work: dict[str, Path | str] = {"bin/busybox": Path(str(shutil.which("busybox"))), **busybox}
    scheduler = control_plane / "kube-scheduler"
    libraries = {path.lstrip("/"): Path(path) for path in _libraries(scheduler)}
    return [
        _image(directory, layout.WORK_IMAGE, work, {"Cmd": ["sleep", "86400"]}),
        _image(directory, layout.PAUSE_IMAGE, work, {"Entrypoint": ["/bin/sleep", "2147483647"]}),
        _image(directory, layout.DNS_IMAGE, {"coredns": node_programs / "coredns"}, {"Entrypoint": ["/coredns"]}),
        _image(
            directory,
            f"{scheduler_repository()}:v{version}",
            {"usr/local/bin/kube-scheduler": scheduler, **libraries},
            {"Entrypoint": ["/usr/local/bin/kube-scheduler"], "User": "65532:65532"},
        ),
    ]


def scheduler_repository() -> str:
    """Where the chart gets kube-scheduler by default."""
    values = (layout.REPOSITORY / "charts" / "vgpuscope" / "values.yaml").read_text()
    found = re.search(r"kubeScheduler:\n\s+image:\n\s+repository: (\S+)", values)
    assert found is not None
    return found[1]


def _image(directory: Path, name: str, files: dict[str, Path | str], config: dict[str, object]) -> archive.Image:
    """An image of single files; a text is a symbolic link."""
    place = directory / re.sub(r"\W+", "-", name)
    top = place / "files"
    for target, source in files.items():
        path = top / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, str):
            path.symlink_to(source)
        else:
            shutil.copy2(source, path)
    (top / "etc").mkdir()
    (top / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (top / "tmp").mkdir()
    os.chmod(top / "tmp", 0o1777)
    environ = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
    return archive.Image(name, [archive.layer(top, place / "layer.tar")], {**environ, **config})


def _libraries(program: Path) -> list[str]:
    """What a dynamically linked program loads."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for word in listed.split() if word.startswith("/")]
