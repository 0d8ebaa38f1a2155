"""How commands prove who they are to a service."""

import os


def token() -> str | None:
    """The bearer token that every client sends; None: none is configured."""
    return os.environ.get("VGPUSCOPE_TOKEN") or None
