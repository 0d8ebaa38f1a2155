"""What NVIDIA advises for each XID, and whether the GPU can continue to work: facts of its published catalogue."""

from vgpuscope.model.xid import Action, Advice

# What to do, in a few words that fit in one line of a terminal.
ADVICE: dict[Action, str] = {
    "restart-app": "restart the application",
    "ignore": "nothing to do",
    "reset-gpu": "reset the GPU",
    "restart-machine": "restart the machine",
    "restart-vm": "restart the virtual machine",
    "check-hardware": "check power and cabling",
    "update-software": "update driver and firmware",
    "see-other-xid": "act on the XID reported beside it",
    "check-uvm": "check unified memory (UVM)",
    "follow-workflow": "follow NVIDIA's workflow for it",
    "report": "report it to NVIDIA",
    "unknown": "not in the catalogue",
}

_FATAL: frozenset[Action] = frozenset(
    {"reset-gpu", "restart-machine", "restart-vm", "check-hardware", "update-software", "follow-workflow", "report"}
)

_NUMBERS: dict[Action, tuple[int | range, ...]] = {
    "restart-app": (
        *(8, 11, 13, 25, 31, 32, range(39, 42), 60, range(68, 73), range(75, 78), 80, range(82, 87), 88, 89, 94),
        *(range(96, 106), range(126, 136), 139),
    ),
    "ignore": (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 161),
    "reset-gpu": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 162),
    "restart-machine": (79, 160),
    "restart-vm": (151,),
    "check-hardware": (54,),
    "update-software": (78,),
    "see-other-xid": (45, 154),
    "check-uvm": (159,),
    "follow-workflow": (48, 74, range(144, 151)),
}

_NAMES = {
    13: "graphics engine exception",
    31: "MMU fault",
    43: "channel reset",
    45: "channel removed early",
    48: "double-bit ECC error",
    63: "row remapping recorded",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fell off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP timeout",
    120: "GSP error",
    154: "recovery action changed",
    **dict.fromkeys(range(144, 151), "NVLink 5 error"),
}

LAST_REPORTED = 142  # up to this number, an XID without an action of its own should be reported

_ACTIONS: dict[int, Action] = {
    xid: action
    for action, numbers in _NUMBERS.items()
    for number in numbers
    for xid in ((number,) if isinstance(number, int) else number)
}


def advice(xid: int) -> Advice:
    """What the catalogue says of an XID."""
    action = _ACTIONS.get(xid) or ("report" if 0 < xid <= LAST_REPORTED else "unknown")
    fatal = None if action == "unknown" else action in _FATAL
    return Advice(action=action, fatal=fatal, name=_NAMES.get(xid, ""))


def catalogue() -> dict[Action, tuple[int, ...]]:
    """The XIDs of each action that has numbers of its own."""
    return {action: tuple(xid for xid, of in _ACTIONS.items() if of == action) for action in _NUMBERS}
