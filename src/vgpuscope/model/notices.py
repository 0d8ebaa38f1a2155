"""Notices: what people are told about cases, through which channel, and the links by which an owner answers."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Case
from vgpuscope.model.words import Language

NoticeKind: TypeAlias = Literal[
    "soon",  # the owner: the GPUs will be taken back
    "advice",  # the owner: the workload is idle; nothing will be taken back, by policy or by annotation
    "taken",  # the owner: the GPUs were taken back
    "recovered",  # the owner was told before: the workload works again, nothing is taken back
    "restored",  # owner and operators: what was there was put back
    "failed",  # operators: the GPUs could not be taken back
    "breaker_opened",  # operators: many workloads turned idle at once, nothing is taken back
    "breaker_closed",  # operators
    "low",  # GPUs are low or idle; it has nothing to do with reclaim
]
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)
FOR_OPERATORS: frozenset[NoticeKind] = frozenset({"restored", "failed", "breaker_opened", "breaker_closed"})
FOR_OWNERS: frozenset[NoticeKind] = frozenset({"soon", "advice", "taken", "recovered", "restored"})
ANSWERED: frozenset[NoticeKind] = frozenset({"soon", "advice"})  # their owner gets links

LinkAction: TypeAlias = Literal["keep", "snooze", "release"]
LINK_ACTIONS: tuple[LinkAction, ...] = get_args(LinkAction)
OWNER = "owner link"  # who answered by a link: it needs no account, so no name is known


class LowUse(Struct, frozen=True, kw_only=True):
    """A tenant of a low GPU, as a message lists it."""

    namespace: str
    pod: str
    gpu_id: str
    model: str
    score: float | None
    idle_since: str  # ISO 8601; "": its verdict is not idle
    opinion: str = ""  # as in a notice
    opinion_zh: str = ""


class Notice(Struct, frozen=True, kw_only=True):
    """One thing to tell about one case, or about the machine as a whole. It is the body of a call of kind notice."""

    kind: NoticeKind
    channel: str
    at: UnixTime
    case: Case | None = None  # as it was then; None: about the machine
    low: LowUse | None = None  # of the kind low
    turned: int = 0  # workloads that turned idle at once, of so many
    of: int = 0
    opinion: str = ""  # the reason that a language model gave, in English; "": none
    opinion_zh: str = ""


class Route(Struct, frozen=True, kw_only=True):
    """Which notices a channel gets."""

    name: str
    namespaces: frozenset[str] = frozenset()  # with no namespaces and no owners: every owner's notices
    owners: frozenset[str] = frozenset()  # values of the annotation vgpuscope.io/notify
    operators: bool = False
    kinds: frozenset[NoticeKind] = frozenset(NOTICE_KINDS)

    @property
    def anyone(self) -> bool:
        return not (self.namespaces or self.owners)


class SignedLink(Struct, frozen=True, kw_only=True):
    """What a signed link says: one action on one case, once, until it expires."""

    case_id: str
    action: LinkAction
    expires: int  # unix time
    nonce: str
    language: Language = "en"
