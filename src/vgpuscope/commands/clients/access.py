"""How the clients prove who they are."""

import os


def token() -> str | None:
    """The bearer token that every client sends; None: none is configured."""
    return os.environ.get("VGPUSCOPE_TOKEN") or None
