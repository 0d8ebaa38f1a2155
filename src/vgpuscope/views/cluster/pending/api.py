"""Waiting pods → the response of /api/v1/pending."""

from collections.abc import Iterable

from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.scheduling_codes import BY_CODE


def pending_list(found: Iterable[PendingPod], now: UnixTime) -> PendingList:
    """The pods, with an explanation of each code that occurs."""
    pods = tuple(found)
    used = {code for pod in pods for code in (pod.code, *(one.reason.code for one in pod.said))}
    codes = {code: BY_CODE[code] for code in sorted(used) if code in BY_CODE}
    return PendingList(now=now, pending=pods, codes=codes)
