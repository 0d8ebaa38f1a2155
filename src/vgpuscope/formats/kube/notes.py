"""Reads the annotations that people and controllers write on pods, owners and namespaces.

A value that is not understood is safe for the owner: a wrong consent or grace period counts as `never`, and a wrong
sign of use is unknown, which holds back as well. A typing error must not cost anybody a GPU.
"""

import re
from collections.abc import Iterator, Mapping

from vgpuscope.formats.hours import schedule
from vgpuscope.formats.kube.changes import RESTORED, mark_of
from vgpuscope.formats.times import from_rfc3339
from vgpuscope.model.kube_object import ReclaimAnnotations
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.reclaim import Consent, OpenHours, Signal

RECLAIM, IDLE_GRACE = "vgpuscope.io/reclaim", "vgpuscope.io/idle-grace"
SCHEDULE, QUEUE = "vgpuscope.io/schedule", "vgpuscope.io/queue"
NOTIFY = "vgpuscope.io/notify"
LAST_ACTIVITY = "notebooks.kubeflow.org/last-activity"

_CONSENTS: tuple[Consent, ...] = ("never", "notify", "auto")
_PART = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST: Seconds = 30 * 86400.0
_LONGEST_NAME = 1000  # characters of who is told
_SHOWN = 80  # characters of a value in the evidence


def notes_of(annotations: Mapping[str, str]) -> ReclaimAnnotations:
    """What these annotations say."""
    wrong = tuple(_wrong(annotations))
    forbids = any(one.name == "annotation" for one in wrong)
    restored = mark_of({"metadata": {"annotations": annotations}}, RESTORED)
    return ReclaimAnnotations(
        consent="never" if forbids else _consent(annotations.get(RECLAIM)),
        grace=_grace(annotations.get(IDLE_GRACE)),
        notify=annotations.get(NOTIFY, "").strip()[:_LONGEST_NAME],
        last_activity=from_rfc3339(annotations.get(LAST_ACTIVITY)),
        schedule=_schedule(annotations.get(SCHEDULE)) or (),
        queues=tuple(filter(None, (name.strip() for name in annotations.get(QUEUE, "").split(",")))),
        restored=from_rfc3339(restored.at) if restored else None,
        wrong=wrong,
    )


def _wrong(annotations: Mapping[str, str]) -> Iterator[Signal]:
    said = {name: value[:_SHOWN] for name, value in annotations.items()}
    if RECLAIM in said and _consent(annotations[RECLAIM]) is None:
        yield _held("annotation", f"{RECLAIM}: {said[RECLAIM]!r} counts as never", active=False)
    if IDLE_GRACE in said and _grace(annotations[IDLE_GRACE]) is None:
        text = f"{IDLE_GRACE}: {said[IDLE_GRACE]!r} is not a duration such as 2h; it counts as {RECLAIM}: never"
        yield _held("annotation", text, active=False)
    if LAST_ACTIVITY in said and from_rfc3339(annotations[LAST_ACTIVITY]) is None:
        yield _held("notebook", f"{LAST_ACTIVITY}: {said[LAST_ACTIVITY]!r} is not a time", active=None)
    if SCHEDULE in said and _schedule(annotations[SCHEDULE]) is None:
        text = f"{SCHEDULE}: {said[SCHEDULE]!r} is not of the form mon-fri 09:00-18:00 Asia/Shanghai"
        yield _held("schedule", text, active=None)


def _held(name: str, text: str, *, active: bool | None) -> Signal:
    return Signal(name=name, active=active, detail=text)


def _consent(text: str | None) -> Consent | None:
    word = (text or "").strip().lower()
    return next((one for one in _CONSENTS if one == word), None)


def _grace(text: str | None) -> Seconds | None:
    """The seconds in 2h, 90m, 1h30m or 0s, at most 30 days; None for anything else."""
    text = (text or "").strip()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return min(_LONGEST, sum(int(number) * _UNITS[unit] for number, unit in parts))


def _schedule(text: str | None) -> tuple[OpenHours, ...] | None:
    try:
        return schedule(text or "")
    except ValueError:
        return None
