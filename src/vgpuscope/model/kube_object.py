"""Objects of the Kubernetes API, as far as taking GPUs back needs them."""

from collections.abc import Mapping

from msgspec import Struct

from vgpuscope.model.allocation import Controller
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Consent, OpenHours, Signal


class ReclaimAnnotations(Struct, frozen=True, kw_only=True):
    """What annotations of one object say about taking its GPUs; None: nothing."""

    consent: Consent | None = None
    grace: Seconds | None = None
    notify: str = ""  # who is told
    last_activity: UnixTime | None = None  # of a notebook
    schedule: tuple[OpenHours, ...] = ()  # when it is needed
    queues: tuple[str, ...] = ()  # that it serves
    restored: UnixTime | None = None  # when we put back what was there
    wrong: tuple[Signal, ...] = ()  # what is not understood


class KubeObject(Struct, frozen=True, kw_only=True):
    """An object of any kind: who it is, what is written on it, and who controls it."""

    api_version: str
    kind: str
    name: str
    uid: str
    version: str = ""
    notes: ReclaimAnnotations = ReclaimAnnotations()
    labels: Mapping[str, str] = {}
    controller: Controller | None = None
    selector: str = ""  # label selector of its pods; "": it names none
    wants_devices: bool = False  # its template asks for an extended resource or a claim

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0] if "/" in self.api_version else ""


class KubePod(Struct, frozen=True, kw_only=True):
    """A pod."""

    name: str
    uid: str
    created: UnixTime | None = None
    ends: bool = False  # it is being deleted, or all its containers have ended
    notes: ReclaimAnnotations = ReclaimAnnotations()
    controller: Controller | None = None
    priority_class: str = ""
    wants_devices: bool = False  # it asks for an extended resource or a claim; a GPU is one
    node: str = ""  # "": not bound
    devices: frozenset[DeviceUUID] | None = None  # that a scheduler assigned; None: no scheduler names devices for it


class Autoscaler(Struct, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler, and what it scales."""

    name: str
    kind: str
    of: str
    keda: bool = False  # made by KEDA, which scales back from zero
