"""Pods that wait → the answer of /api/v1/pending."""

from collections.abc import Sequence

import msgspec

from vgpuscope.model.decision import BY_CODE
from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.quantity import UnixTime


def pending_list(pods: Sequence[PendingPod], now: UnixTime, advice: tuple[str, ...] = ()) -> PendingList:
    """The pods, with what each code that occurs means."""
    used = {code for pod in pods for code in (pod.code, *(one.reason.code for one in pod.said))}
    codes = {code: BY_CODE[code] for code in sorted(used) if code in BY_CODE}
    return PendingList(now=now, pending=tuple(pods), codes=codes, advice=advice)


def pending_json(pods: Sequence[PendingPod], now: UnixTime, advice: tuple[str, ...] = ()) -> bytes:
    """The body of the answer."""
    return msgspec.json.encode(pending_list(pods, now, advice))
