"""Why pods wait: the reasons that schedulers report, and what is kept when the events have expired."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.scheduling_codes import Code, Reason

Outcome: TypeAlias = Literal["waiting", "scheduled", "failed", "deleted"]


class PodEvent(Struct, frozen=True, kw_only=True, gc=False):
    """An event about a pod that reports the progress of its scheduling."""

    uid: str  # of the event itself: the event is updated when the same happens again
    pod_uid: PodUID
    namespace: str
    pod: str
    component: str  # the reporting component: default-scheduler, hami-scheduler, kubelet
    instance: str = ""  # which process of that name: kube-scheduler and its extender can share one
    reason: str
    said: tuple[Reason, ...] = ()  # the reasons as our codes; empty: the event reports a success
    combined: bool = False  # one object for several messages: only the latest message is kept
    count: int = 1  # how often it has happened
    first: UnixTime | None = None
    last: UnixTime | None = None


class Said(Struct, frozen=True, kw_only=True):
    """One reason why a pod waits, with the component that reported it and how often."""

    reason: Reason
    component: str
    current: bool = True  # reported in the latest attempt; otherwise it is history
    count: int = 1
    first: UnixTime | None = None
    last: UnixTime | None = None


class PendingPod(Struct, frozen=True, kw_only=True):
    """One pod that waits for devices, or waited for them within the remembered period."""

    namespace: str
    pod: str
    pod_uid: PodUID
    owner: str = ""
    scheduler: str = ""
    requests: dict[str, int] = {}  # sum of all containers
    asking: int = 0  # how many containers request them; if it is one, the amounts are per GPU
    claims: tuple[str, ...] = ()  # the ResourceClaims it refers to
    outcome: Outcome = "waiting"
    code: str = "SCHED_NOT_TRIED"  # the most important reason
    created: UnixTime | None = None
    ended: UnixTime | None = None  # when the waiting ended
    node: str = ""  # the node that it was scheduled to
    attempts: int = 0  # the known attempts that failed
    said: tuple[Said, ...] = ()  # the most important one first
    said_cut: int = 0  # how many more reasons there were than are kept
    fact: str = ""  # the first number behind the most important code, for a pod that waits
    fact_zh: str = ""  # the same in Chinese, here and below


class WaitingCount(Struct, frozen=True, kw_only=True, gc=False):
    """How many pods of a namespace wait for one reason; without a namespace, of all that are not listed separately."""

    namespace: str
    code: str
    pods: int
    oldest: Seconds | None = None  # how long the oldest has waited; None: the start was not recorded


class PendingList(Struct, frozen=True, kw_only=True):
    """Pods that wait or waited, with the meaning of their codes."""

    now: UnixTime  # by the clock of the process that made the list
    pending: tuple[PendingPod, ...] = ()
    codes: dict[str, Code] = {}  # only the codes that occur
    facts: dict[str, tuple[str, ...]] = {}  # for one waiting pod: by code, the numbers behind it
    facts_zh: dict[str, tuple[str, ...]] = {}
    advice: tuple[str, ...] = ()  # for one waiting pod: what would have to change for it to fit
    advice_zh: tuple[str, ...] = ()
