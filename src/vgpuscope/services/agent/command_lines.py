"""Command lines of processes as they may be shown: without secrets, on one line, not too long."""

import re
from collections.abc import Callable
from typing import Final

from vgpuscope.config import AgentConfig
from vgpuscope.http.address import is_loopback, split
from vgpuscope.runtime.redaction import MASK, redacted

_LONGEST: Final = 512  # characters
# `--api-key VALUE`: the name is one argument, the secret the next. `--token=VALUE` is redacted with its name.
_SECRET_FOLLOWS: Final = re.compile(
    r"--?[a-z0-9_.-]*(?:password|passwd|secret|api[-_]?key|access[-_]?key|private[-_]?key|token|credentials?)",
    re.IGNORECASE,
)
_DASHED: Final = re.compile(  # redacted() knows api_key, not api-key
    r"(?<![a-z0-9_.-])(--?[a-z0-9_.-]*(?:api-key|access-key|private-key|credentials?)=).+", re.IGNORECASE
)


def reader(config: AgentConfig) -> Callable[[bytes], str] | None:
    """What makes the text of a command line; None if command lines are hidden."""
    if config.command_lines == "auto":
        return shown if is_loopback(split(config.listen)[0]) else None
    return shown if config.command_lines == "show" else None


def shown(arguments: bytes) -> str:
    """The text of /proc/<pid>/cmdline: arguments that end with a zero byte each."""
    words = arguments.rstrip(b"\0").decode(errors="replace").split("\0")
    kept, masked = [], False
    for word in words:
        kept.append(MASK if masked else redacted(_DASHED.sub(rf"\1{MASK}", word)))
        masked = not masked and _SECRET_FOLLOWS.fullmatch(word) is not None
    line = redacted(" ".join(kept))
    return "".join(c if c.isprintable() else "\ufffd" for c in line)[:_LONGEST]
