"""What the extender tells about its decisions: the log of decisions, events on pods, log lines.

v=4 has a line for each decision, but not for a refusal that is repeated. v=5 has those too, and the GPUs, the score's
terms and the verdict on each node.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from msgspec import structs

from vgpuscope.formats.hami.annotation import ALLOCATED, assigned_devices
from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.extender import BindingArgs, PodHead
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.logged_decision import LoggedDecision
from vgpuscope.model.placement import ChosenGpu, Decision, DecisionOutcome, NodeVerdict, Placement
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime
from vgpuscope.runtime.log import DETAIL, SUMMARY, OnChange, fields
from vgpuscope.services.extender.binding import BindFailed
from vgpuscope.services.extender.deciding import FilterDecision, decision_of
from vgpuscope.services.extender.events import EventPoster
from vgpuscope.services.extender.pods import reference
from vgpuscope.views.scheduler.log import assigned_fields, gpu_fields, refused_fields, verdict_fields
from vgpuscope.views.scheduler.notes import main_verdict, refused_note, scheduled_note, shortened

log = logging.getLogger(__name__)

_MOST_NODES = 200  # of one decision in the log
_REMEMBERED = 5000  # pods whose last refusal was logged


class DecisionRecorder(Protocol):
    """The log of decisions."""

    def add(self, decision: Decision) -> object: ...

    def assigned(self, namespace: str, pod: str, uid: str) -> LoggedDecision | None: ...


class Reports:
    """Tells what was decided; it waits for nothing."""

    def __init__(
        self,
        keeper: DecisionRecorder,
        poster: EventPoster,
        *,
        gpus: Callable[[str], int],
        memory: Callable[[PodUID, str], int | None],
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`gpus`: the number of GPUs of a node. `memory`: the MiB that a pod holds on a node, if it is known."""
        self._keeper, self._poster, self._wall = keeper, poster, wall
        self._gpus, self._memory = gpus, memory
        self._placements: dict[str, Placement] = {}  # by uid: assigned, not bound yet
        self._told = OnChange(log)
        self._refused: dict[str, None] = {}

    def filtered(self, found: FilterDecision) -> None:
        """A pod was assigned or refused, or no decision could be made, which kube-scheduler's own event tells."""
        self._keeper.add(found.decision)
        if found.decision.outcome == "failed":
            self._undecided(found)
        elif found.placement.node:
            self._assigned(found)
        else:
            self._refusal(found)
        if log.isEnabledFor(DETAIL):
            for values in (*gpu_fields(found.pod.key, found.placement), *_some(found)):
                log.log(DETAIL, "decision", extra=fields(**values))

    def bound(self, args: BindingArgs, pod: PodHead, seconds: Seconds) -> None:
        """A pod was bound."""
        placement = self._bound_to(args, pod)
        self._told.forget(args.uid)
        self._refused.pop(args.uid, None)
        if pod.assigned:
            self._keeper.add(self._decision(args, "bound", seconds, placement))
            memory = self._memory(args.uid, args.node)
            note = scheduled_note(
                args.namespace, args.name, placement, gpus_of_node=self._gpus(args.node), memory=memory
            )
            self._poster.post(reference(pod), EventText("Scheduled", note, action="Binding"), now=self._wall())
        log.log(SUMMARY, "pod bound", extra=fields(pod=pod.key, node=args.node, seconds=round(seconds, 4)))

    def bind_failed(self, args: BindingArgs, error: BindFailed, seconds: Seconds) -> None:
        """A pod was not bound."""
        placement = self._placements.pop(args.uid, None) or self._logged(args)
        known = placement if placement is not None and placement.node == args.node else Placement(node=args.node)
        self._keeper.add(self._decision(args, "failed", seconds, known, error))
        about = ObjectRef("Pod", args.name, args.namespace, args.uid)
        note = shortened(f"{args.node}: {error} ({error.code})")
        text = EventText("FailedScheduling", note, "Warning", "Binding")
        self._poster.post(about, text, now=self._wall(), codes=frozenset({error.code}))
        values = {"error_code": error.code, "pod": f"{args.namespace}/{args.name}", "node": args.node}
        log.error("Failed to bind pod", extra=fields(**values, err=str(error)))

    def _bound_to(self, args: BindingArgs, pod: PodHead) -> Placement:
        """What the pod got: its GPUs as its annotation says, with the score of the decision that gave it just these.

        After a take-over that decision is another replica's. If it is not in the log either, the score is absent.
        """
        gpus = _annotated(pod)
        for known in (self._placements.pop(args.uid, None), self._logged(args)):
            if known is not None and known.node == args.node and _shares(known.gpus) == _shares(gpus):
                return known
        return Placement(node=args.node, gpus=gpus)

    def _logged(self, args: BindingArgs) -> Placement | None:
        """The last assignment of the pod in the log; it has no MIG instances."""
        found = self._keeper.assigned(args.namespace, args.name, args.uid)
        if found is None:
            return None
        gpus = tuple(_gpu(at, one.uuid, one.memory, one.cores) for at, one in enumerate(found.devices))
        return Placement(node=found.node, gpus=gpus, score=found.score, policy=found.policy, terms=found.terms)

    def _assigned(self, found: FilterDecision) -> None:
        uid = found.pod.uid
        self._placements[uid] = found.placement
        if len(self._placements) > _REMEMBERED:
            del self._placements[next(iter(self._placements))]
        self._told.forget(uid)
        self._refused.pop(uid, None)
        log.log(SUMMARY, "pod assigned", extra=fields(**assigned_fields(found.pod.key, found.placement)))

    def _undecided(self, found: FilterDecision) -> None:
        said = next((one.message for one in found.placement.nodes), "")
        log.log(SUMMARY, "no decision", extra=fields(pod=found.pod.key, err=said))

    def _refusal(self, found: FilterDecision) -> None:
        verdicts, pod = found.placement.nodes, found.pod
        main = main_verdict(verdicts)
        text = EventText("FailedScheduling", refused_note(verdicts), "Warning")
        codes = frozenset(one.code for one in verdicts if one.code) or frozenset({"SCHED_NO_NODES"})
        self._poster.post(reference(pod), text, now=self._wall(), codes=codes)
        values = refused_fields(pod.key, main, len(verdicts))
        if not self._told.tell(pod.uid, codes, level=logging.ERROR, message="Failed to schedule pod", **values):
            log.log(DETAIL, "pod refused again", extra=fields(**values))
        self._refused[pod.uid] = None
        if len(self._refused) > _REMEMBERED:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            self._told.forget(oldest)

    def _decision(
        self,
        args: BindingArgs,
        outcome: DecisionOutcome,
        seconds: Seconds,
        placement: Placement,
        error: BindFailed | None = None,
    ) -> Decision:
        verdict = error and NodeVerdict(node=args.node, code=error.code, message=str(error), message_zh=error.chinese)
        placement = structs.replace(placement, node=args.node, nodes=(verdict,) if verdict else ())
        return decision_of(args, placement, verb="bind", outcome=outcome, at=self._wall(), seconds=seconds)


def _annotated(pod: PodHead) -> tuple[ChosenGpu, ...]:
    """The GPUs in the pod's assignment; none if it cannot be read."""
    try:
        segments = assigned_devices(ALLOCATED, pod.assigned)
    except AnnotationMalformed:
        return ()
    devices = [one for devices in segments for one in devices]
    return tuple(_gpu(at, one.uuid, one.mib, one.cores) for at, one in enumerate(devices))


def _gpu(position: int, uuid: DeviceUUID, memory: int, cores: int) -> ChosenGpu:
    return ChosenGpu(container=0, position=position, uuid=uuid, memory=memory, cores=cores)


def _shares(gpus: Iterable[ChosenGpu]) -> Counter[tuple[DeviceUUID, int, int]]:
    return Counter((one.uuid, one.memory, one.cores) for one in gpus)


def _some(found: FilterDecision) -> list[dict[str, object]]:
    return list(islice(verdict_fields(found.pod.key, found.placement), _MOST_NODES))
