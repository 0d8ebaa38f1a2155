"""How commands prove who they are to a service."""

import os
import sys
from functools import cache
from pathlib import Path

from vgpuscope.sources.clients.served_api import TokenSource
from vgpuscope.terminal.printing import print_line

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def token() -> str | None:
    """The bearer token that every client sends; None: none is configured."""
    return os.environ.get("VGPUSCOPE_TOKEN") or None


@cache
def say_unchecked(what: str) -> None:
    """Say on standard error, once, that credentials were sent to a service that has none to compare them with."""
    print_line(f"vgpuscope: {what}", sys.stderr)


TOKEN_SOURCE = TokenSource("VGPUSCOPE_TOKEN", unchecked=say_unchecked)


def in_pod() -> bool:
    """Whether this runs in a pod that has a service account."""
    return Path(_SERVICE_ACCOUNT).is_file()
