"""The audit log: who or what did something, why, and what was there before and after. Entries are never changed."""

from msgspec import Struct

from vgpuscope.model.quantity import UnixTime


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One step of one case, or of the machine as a whole."""

    at: UnixTime
    actor: str  # a user, an owner's link, or `vgpuscope`
    what: str  # moved, held, lifted, call_delivered, call_failed, call_cancelled, stop, start, breaker_opened,
    # breaker_reset, restore_asked
    case_id: str = ""
    namespace: str = ""
    pod: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    detail: str = ""  # JSON: the evidence, or what the call changed
    number: int = 0  # given by the store: entries are in the order of their numbers


class AuditPage(Struct, frozen=True, kw_only=True):
    """Entries, newest first, and where the next page begins."""

    entries: tuple[AuditEntry, ...]
    next_before: int | None = None
