"""Logging: events with constant messages and values as fields, as klog-like text or JSON lines.

The verbosity follows klog's --v: 4 (a summary), 5 (device detail) and 6 (debugging) are levels below INFO. INFO,
warnings and errors are always logged.
"""

import json
import logging
import math
import re
import sys
import time
from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any, TextIO

from vgpuscope.model.errors import ScopeError
from vgpuscope.model.pod import SourceState

SUMMARY = logging.INFO - 4
DETAIL = logging.INFO - 5
DEBUG = logging.DEBUG

_HIDDEN = "[redacted]"
_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:token|passw(?:or)?d|secret|authorization|cookie|credentials?|api[_-]?key|private[_-]?key)$", re.I
)
_SECRET_TEXT = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}")
_USERINFO = re.compile(r"(\w://)[^/\s@]+@")
_PLAIN = re.compile(r"[\w.:/@%+,*\[\]()<>-]+")
_OWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "fields",
}


def setup(
    *,
    v: int,
    format: str,  # noqa: A002 - named as its setting
    level: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send everything this process logs to one stream (stderr) in one format."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else KlogText())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)  # libraries: only their warnings
    set_level(v=v, level=level)
    server = logging.getLogger("uvicorn.error")
    if server.level == logging.NOTSET:  # otherwise uvicorn itself runs us, and its user has decided
        server.setLevel(logging.ERROR)  # it logs every malformed request: log flooding


def set_level(*, v: int, level: str | None) -> None:
    """Set the level by --v; gpu-oour's LOG_LEVEL takes precedence."""
    logging.getLogger("vgpuscope").setLevel(threshold(v, level))


def threshold(v: int, level: str | None = None) -> int:
    """The lowest level that is logged. With level INFO, --v decides, because all its steps are INFO in klog."""
    if level is not None and level != "INFO":
        return logging.getLevelNamesMapping()[level]
    return DEBUG if v >= 6 else logging.INFO - v


def fields(**values: object) -> dict[str, Any]:
    """Values of an event, for `extra`: any name is allowed, even those that logging reserves."""
    return {"fields": values}


def error_fields(error: ScopeError) -> dict[str, object]:
    """The fields of an error in a log line."""
    return {"error_code": error.code, "err": str(error), "hint": error.advice}


class KlogText(logging.Formatter):
    """I1115 19:33:01.123456   4242 agent.py:72] message key=value"""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.localtime(record.created)
        micros = int(record.created % 1 * 1_000_000)
        head = (
            f"{_severity(record.levelno)[0]}{time.strftime('%m%d %H:%M:%S', moment)}.{micros:06d} "
            f"{record.process or 0:7d} {record.filename}:{record.lineno}] {_one_line(clean(record.getMessage()))}"
        )
        tail = "".join(f" {key}={_quoted(value)}" for key, value in _values(record).items())
        return head + tail + "".join(f"\n  {_one_line(line)}" for line in _stack(record).splitlines() if line)


class JsonLines(logging.Formatter):
    """One JSON object per line: ts, level, v, caller, msg, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        micros = int(record.created % 1 * 1_000_000)
        line: dict[str, object] = {
            "ts": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{micros:06d}Z",
            "level": _severity(record.levelno).lower(),
            "v": max(0, logging.INFO - record.levelno),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": clean(record.getMessage()),
        }
        for key, value in _values(record).items():
            line[key if key not in line else f"field_{key}"] = value
        if stack := _stack(record):
            line["stack"] = stack.strip()
        return _json(line)


class OnChange:
    """Logs the state of a thing only when it differs from the last logged state."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[Hashable, Hashable] = {}

    def tell(self, key: Hashable, state: Hashable, *, level: int, message: str, **values: object) -> bool:
        """Log the event if the state of the key has changed; whether it has."""
        return self._tell(key, state, level, message, values)

    def _tell(self, key: Hashable, state: Hashable, level: int, message: str, values: dict[str, object]) -> bool:
        if key in self._told and self._told[key] == state:
            return False
        self._told[key] = state
        self._log.log(level, message, extra=fields(**values), stacklevel=3)  # the line that calls tell() or sources()
        return True

    def sources(self, states: Iterable[SourceState]) -> None:
        """Log each source that went down, came back, or is down for another reason than before."""
        for s in states:
            key, state = ("source", s.source), (s.up, s.code)
            if s.up:
                self._tell(key, state, SUMMARY, "source up", {"source": s.source})
            else:
                # an agent without a driver measures little: most often its container did not get the library
                level = logging.INFO if s.absent and s.source != "nvml" else logging.WARNING
                word = "source absent" if s.absent else "source down"
                why: dict[str, object] = {"source": s.source, "error_code": s.code, "err": s.message}
                self._tell(key, state, level, word, why)

    def forget(self, key: Hashable) -> None:
        """Forget a thing that is gone; if it returns, its state is logged again."""
        self._told.pop(key, None)

    def keep(self, alive: Container[Hashable]) -> None:
        """Forget every key that no longer exists, so that memory use stays bounded."""
        self._told = {key: state for key, state in self._told.items() if key in alive}


def clean(text: str) -> str:
    """The text without credentials: bearer and basic values, and user:password@ in addresses."""
    if "://" in text:
        text = _USERINFO.sub(rf"\1{_HIDDEN}@", text)
    return _SECRET_TEXT.sub(rf"\1 {_HIDDEN}", text)


def hidden(key: str) -> bool:
    """Whether a value under this name is secret."""
    return _SECRET_KEY.search(key) is not None


def _severity(level: int) -> str:
    if level >= logging.CRITICAL:
        return "Fatal"
    if level >= logging.ERROR:
        return "Error"
    return "Warning" if level >= logging.WARNING else "Info"


def _values(record: logging.LogRecord) -> dict[str, object]:
    found = dict(getattr(record, "fields", None) or {})
    found.update((k, v) for k, v in record.__dict__.items() if k not in _OWN)
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ScopeError):
        found = {**error_fields(error), **found}
    return {k: _safe(k, v) for k, v in found.items() if v is not None}


def _safe(key: str, value: object) -> object:
    if hidden(key):
        return _HIDDEN
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {str(k): _safe(str(k), v) for k, v in value.items()}
    if isinstance(value, ScopeError):
        return {k: _safe(k, v) for k, v in error_fields(value).items()}
    if isinstance(value, bool | int | float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe("", v) for v in value]
    return clean(str(value))


def _stack(record: logging.LogRecord) -> str:
    """The traceback of an error that is not a ScopeError; a ScopeError has everything in its fields."""
    if not record.exc_info or record.exc_info[1] is None or isinstance(record.exc_info[1], ScopeError):
        return ""
    return "\n" + clean(logging.Formatter().formatException(record.exc_info))


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    text = value if isinstance(value, str) else _json(value)
    return text if _PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    """JSON on one line, without escapes if all characters are printable."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _one_line(message: str) -> str:
    """The message on one line, so that an external value cannot forge a second log line."""
    return message if message.isprintable() else json.dumps(message)[1:-1]
