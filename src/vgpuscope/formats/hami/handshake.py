"""The handshake that HAMi's schedulers of v2.8 and v2.9 expect from a node's device plugin."""

from datetime import UTC, datetime

from vgpuscope.model.quantity import UnixTime


def reported(now: UnixTime) -> str:
    """`Reported` and the time as Go prints it: Reported 2024-01-23 04:30:04.434037 +0000 UTC."""
    return f"Reported {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S.%f} +0000 UTC"
