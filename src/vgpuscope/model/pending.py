"""Why pods wait: what schedulers say of them, and what is kept of it when the events themselves are gone."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.decision import Code, Reason
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime

Outcome: TypeAlias = Literal["waiting", "scheduled", "failed", "deleted"]


class PodEvent(Struct, frozen=True, kw_only=True, gc=False):
    """An event about a pod that says how its scheduling goes."""

    uid: str  # of the event itself: it is updated when the same happens again
    pod_uid: PodUID
    namespace: str
    pod: str
    component: str  # who says so: default-scheduler, hami-scheduler, kubelet
    reason: str
    said: tuple[Reason, ...] = ()  # why not, in our words; nothing: it says that something went well
    combined: bool = False  # one object for several texts: the text is that of its latest happening only
    count: int = 1  # how often it has happened
    first: UnixTime | None = None
    last: UnixTime | None = None


class Said(Struct, frozen=True, kw_only=True):
    """One reason why a pod waits, with who gave it and how often."""

    reason: Reason
    component: str
    current: bool = True  # said in the latest attempt; else it is history
    count: int = 1
    first: UnixTime | None = None
    last: UnixTime | None = None


class PendingPod(Struct, frozen=True, kw_only=True):
    """One pod that waits for devices, or waited for them within what is remembered."""

    namespace: str
    pod: str
    pod_uid: PodUID
    owner: str = ""
    scheduler: str = ""
    requests: dict[str, int] = {}  # all containers together
    asking: int = 0  # how many containers ask for them: of one container, the amounts are those of each GPU
    claims: tuple[str, ...] = ()  # the ResourceClaims it refers to
    outcome: Outcome = "waiting"
    code: str = "SCHED_NOT_TRIED"  # the one reason that counts most
    created: UnixTime | None = None
    ended: UnixTime | None = None  # when the waiting did
    node: str = ""  # where it went
    attempts: int = 0  # refused ones that we know of
    said: tuple[Said, ...] = ()  # what counts most comes first
    said_cut: int = 0  # how many more there were than are kept
    fact: str = ""  # the first number behind the code that counts most, of a pod that waits


class WaitingCount(Struct, frozen=True, kw_only=True, gc=False):
    """How many pods of a namespace wait for one reason; without a namespace, of all that are not told apart."""

    namespace: str
    code: str
    pods: int
    oldest: Seconds | None = None  # how long the oldest has waited; None: nobody wrote down since when


class PendingList(Struct, frozen=True, kw_only=True):
    """Pods that wait or waited, with what their codes mean."""

    now: UnixTime  # by the clock of who made the list
    pending: tuple[PendingPod, ...] = ()
    codes: dict[str, Code] = {}  # only those that occur
    facts: dict[str, tuple[str, ...]] = {}  # of one pod that waits: by code, the numbers behind it
    advice: tuple[str, ...] = ()  # of one pod that waits: what would have to change for it to fit
