"""What can be done about an XID, an error that the driver reports of a GPU."""

from typing import Literal

from msgspec import Struct

Action = Literal[
    "restart-app",
    "ignore",
    "reset-gpu",
    "restart-machine",
    "restart-vm",
    "check-hardware",
    "update-software",
    "see-other-xid",
    "check-uvm",
    "follow-workflow",
    "report",
    "unknown",
]


class Advice(Struct, frozen=True, kw_only=True):
    """What to do about an XID."""

    action: Action
    fatal: bool | None  # whether work on the GPU cannot continue; None: the XID is not in the catalogue
    name: str = ""  # what happened; "" if there is no short name
