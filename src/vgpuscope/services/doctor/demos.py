"""Demos of this user: a running demo writes its addresses into a file, which `vgpuscope doctor` finds."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from vgpuscope.model.doctor import ServiceCode
from vgpuscope.model.quantity import UnixTime

_ENDING = ".json"
_OTHERS = 0o077  # bits of a mode that give something to other users


class DemoService(Struct, frozen=True, kw_only=True):
    """One service of a demo."""

    service: ServiceCode
    url: str
    name: str = ""


class DemoRecord(Struct, frozen=True, kw_only=True):
    """A running demo."""

    pid: int
    born: str  # of its process, as the kernel counts it: another process may get the pid later; "": not known
    started: UnixTime
    services: tuple[DemoService, ...]


def directories(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where demos of this user write, the first that can be used."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    bases = [*filter(None, [environ.get("XDG_RUNTIME_DIR")]), cache]
    return tuple(Path(base) / "vgpuscope" / "demos" for base in bases if os.path.isabs(base))


@contextlib.contextmanager
def announced(services: tuple[DemoService, ...], environ: Mapping[str, str], *, now: UnixTime) -> Iterator[None]:
    """Keeps the file of this process while the block runs. Without a place to write, there is none."""
    pid = os.getpid()
    record = DemoRecord(pid=pid, born=_born(pid), started=now, services=services)
    file = next(filter(None, (_written(record, place) for place in directories(environ))), None)
    try:
        yield
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def _written(record: DemoRecord, place: Path) -> Path | None:
    """The file, which only this user can read; None if it cannot be written there."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place, prefix=".")  # mode 0600
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.json.encode(record))
        file = place / f"{record.pid}{_ENDING}"
        os.replace(name, file)
    except OSError:
        return None
    return file


def running_demos(environ: Mapping[str, str]) -> tuple[DemoRecord, ...]:
    """The demos of this user that run now, the newest first. Files of demos that were killed are removed."""
    found = []
    for place in directories(environ):
        with contextlib.suppress(OSError):
            for file in sorted(place.glob(f"*{_ENDING}")):
                record = _read(file)
                if record is None:
                    continue
                if _runs(record):
                    found.append(record)
                else:
                    file.unlink(missing_ok=True)
    return tuple(sorted(found, key=lambda record: record.started, reverse=True))


def _read(file: Path) -> DemoRecord | None:
    """A record; None if others could have written or read it, or it has another form."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as source:
            state = os.fstat(source.fileno())
            if state.st_uid != os.getuid() or state.st_mode & _OTHERS:
                return None
            return msgspec.json.decode(source.read(), type=DemoRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _runs(record: DemoRecord) -> bool:
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return False
    return _born(record.pid) == record.born


def _born(pid: int) -> str:
    """When a process was started, in the kernel's ticks; "" where there is no /proc."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return line.rpartition(b")")[2].split()[19].decode()
