"""Container images as files: layers are directories, the archive is what `ctr images import` reads."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Layer:
    """An uncompressed tar file, and its digest."""

    file: Path
    digest: str


@dataclass(frozen=True)
class Image:
    """A container image: its name, its layers, the lowest first, and its configuration."""

    name: str
    layers: Sequence[Layer]
    config: Mapping[str, object]


def layer(directory: Path, file: Path) -> Layer:
    """The files of a directory in a fixed order, owned as they are there. A file that exists is believed."""
    digest_file = file.with_suffix(".sha256")
    if not digest_file.exists():
        part = file.with_suffix(".part")
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
            for path in _sorted(directory):
                info = tar.gettarinfo(path, arcname=str(path.relative_to(directory)))
                info.uname = info.gname = ""
                if info.isreg():
                    with path.open("rb") as data:
                        tar.addfile(info, data)
                else:
                    tar.addfile(info)
        with part.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        part.rename(file)
        digest_file.write_text(digest)
    return Layer(file, digest_file.read_text())


def write(target: IO[bytes], image: Image) -> None:
    """Writes an archive of one image, in the form of `docker save`."""
    body = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{item.digest}" for item in image.layers]},
            "history": [{"created": CREATED} for _ in image.layers],
        }
    )
    digest = hashlib.sha256(body).hexdigest()
    manifest = [
        {
            "Config": f"{digest}.json",
            "RepoTags": [image.name],
            "Layers": [f"{item.digest}.tar" for item in image.layers],
        }
    ]
    with tarfile.open(fileobj=target, mode="w|") as tar:
        for file, data in ((f"{digest}.json", body), ("manifest.json", _json(manifest))):
            info = tarfile.TarInfo(file)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for item in image.layers:
            tar.add(item.file, f"{item.digest}.tar")


def _sorted(directory: Path) -> Iterable[Path]:
    for folder, folders, files in os.walk(directory):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*files, *links, *(n for n in folders if n not in links)]):
            yield Path(folder, name)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
