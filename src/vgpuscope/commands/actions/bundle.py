"""The archive for a bug report: the report, versions, settings and the last answers, all without secrets."""

import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterable

import msgspec

from vgpuscope.config import SETTINGS, Loaded
from vgpuscope.model.doctor import DoctorReport
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.redaction import redacted, secrets_of

_LARGEST = 8 * 2**20  # bytes of one file


def write_bundle(
    path: str,
    report: DoctorReport,
    answers: Iterable[tuple[str, bytes]],
    *,
    loaded: Loaded,
    secrets: Iterable[str],
) -> None:
    """Write the archive; ConfigInvalid if it cannot be written. Only this user can read it."""
    files = {
        "report.json": msgspec.json.format(msgspec.json.encode(report), indent=2).decode(),
        "version.json": json.dumps(msgspec.to_builtins(this_build()), indent=2),
        "settings.txt": _settings(loaded),
        **{name: body[:_LARGEST].decode(errors="replace") for name, body in answers},
    }
    known = secrets_of(os.environ, (*secrets, *_secret_values(loaded)))
    try:
        # A new file in place of the old one, whose mode would stay, and which others may have open.
        directory = os.path.dirname(os.path.abspath(path))
        with tempfile.NamedTemporaryFile("wb", dir=directory, prefix=".vgpuscope-", delete=False) as target:
            try:
                with tarfile.open(fileobj=target, mode="w:gz") as archive:
                    for name, text in files.items():
                        _add(archive, f"vgpuscope-doctor/{name}", redacted(text, known))
                target.flush()
                os.replace(target.name, path)
            except BaseException:
                os.unlink(target.name)
                raise
    except OSError as e:
        raise ConfigInvalid(
            f"--bundle: {path} cannot be written: {e.strerror}",
            hint="Name a file in a directory that you may write to.",
        ) from e


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    body = text.encode()
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(body), int(time.time()), 0o644
    archive.addfile(info, io.BytesIO(body))


def _settings(loaded: Loaded) -> str:
    rows = [(one.path, one.shown(loaded.value(one.path)), loaded.origins[one.path]) for one in SETTINGS]
    return "".join(f"{path} = {value}  # {origin}\n" for path, value, origin in rows)


def _secret_values(loaded: Loaded) -> list[str]:
    """The values of all settings that are secret; of a list each part."""
    found: list[str] = []
    for setting in SETTINGS:
        value = loaded.value(setting.path)
        if setting.secret and value:
            found += [value] if isinstance(value, str) else [str(part) for part in value]
    return found
