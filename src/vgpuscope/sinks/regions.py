"""Writes two fields of HAMi's regions: the only code that changes a region. The agent must not import it.

HAMi's library reads the fields from its own mapping at any moment, so each is one aligned store of 32 bits into a
mapping of the file. A tenant can truncate its file at any moment, too, and a store behind the end raises SIGBUS. So the
stores happen in a child process, which has nothing else to lose: the others are done by the next child.
"""

import ctypes
import mmap
import os
import stat
import warnings
from collections.abc import Iterator, Sequence

from vgpuscope.formats.hami.region import identify
from vgpuscope.model.errors import RegionRefused
from vgpuscope.model.plugin import FeedbackDecision

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_IDENTITY = 12  # bytes: magic and version
_SWITCH, _RECENT = 4, 8  # bytes behind the begin of the tail
_FIELD = 4  # bytes
_LONGEST = 200  # bytes of a reason
_CHUNK = 65536


def store(decisions: Sequence[FeedbackDecision]) -> tuple[str, ...]:
    """Write the fields that differ from what was read; for each decision "", or why it was not written."""
    results = [""] * len(decisions)
    waiting = [number for number, decision in enumerate(decisions) if any(_changes(decision))]
    while waiting:
        said = _in_a_child([decisions[number] for number in waiting])
        for number, result in zip(waiting, said, strict=False):
            results[number] = result
        waiting = waiting[len(said) :]
    return tuple(results)


def _in_a_child(decisions: Sequence[FeedbackDecision]) -> list[str]:
    """The results of those that a child process could do: at least one, and the last one may have ended it."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork with threads: the child takes no lock
        child = os.fork()
    if child == 0:
        try:
            for decision in decisions:
                os.write(theirs, _result(decision).encode(errors="replace")[:_LONGEST].replace(b"\n", b" ") + b"\n")
        finally:
            os._exit(0)  # without the parent's handlers and buffers
    os.close(theirs)
    said = b""
    while chunk := os.read(ours, _CHUNK):
        said += chunk
    os.close(ours)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    results = said.decode().splitlines()
    return results if len(results) == len(decisions) else [*results, f"the writer ended with {status}"]


def _result(decision: FeedbackDecision) -> str:
    try:
        _write(decision)
    except RegionRefused as e:
        return e.reason
    except OSError as e:
        return e.strerror or str(e)
    except ValueError as e:  # an empty file cannot be mapped
        return str(e)
    return ""


def _write(decision: FeedbackDecision) -> None:
    file = os.open(decision.region.path, _FLAGS)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RegionRefused("not_a_file")
        layout = identify(status.st_size, os.pread(file, _IDENTITY, 0))
        for offset, value in _changes(decision):
            _store(file, layout.tail[0] + offset, value)
    finally:
        os.close(file)


def _changes(decision: FeedbackDecision) -> Iterator[tuple[int, int]]:
    before = decision.region
    if decision.recent_kernel != before.recent_kernel:
        yield _RECENT, decision.recent_kernel
    if decision.utilization_switch != before.utilization_switch:
        yield _SWITCH, decision.utilization_switch


def _store(file: int, offset: int, value: int) -> None:
    page = offset - offset % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(file, offset + _FIELD - page, offset=page) as mapped:
        field = ctypes.c_int32.from_buffer(mapped, offset - page)
        field.value = value
        del field  # or the mapping could not be closed
