"""Calls of reclaim: what is sent for a case, with a key that is the same each time it is sent."""

import secrets
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from vgpuscope.model.opinion import Opinion
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case, EarlierChange, Policy, ReclaimTarget
from vgpuscope.model.words import Language
from vgpuscope.views.fleet.low_parts import control_body

CHANGE_WITHIN: Seconds = 8.0  # a change of the cluster; what is not done by then is tried again


class ClusterChange(Struct, frozen=True, kw_only=True):
    """The body of a call that changes the cluster: what is changed, and because of which pod."""

    namespace: str
    pod: str
    pod_uid: PodUID
    target: ReclaimTarget
    secret: str = ""  # signs the mark of this call on the object; only the store has it
    earlier: tuple[EarlierChange, ...] = ()  # of a restore: the calls that may have changed the target


def control_call(
    case: Case, gpu_id: str, *, now: UnixTime, policy: Policy, opinion: Opinion | None, language: Language
) -> Call:
    """The call for one GPU of a case. Its key is the pod's UID and the GPU: a second call for both is the same call.

    `language`: of the opinion's texts, of which gpu-oour's keys have one each.
    """
    share = next(one for one in case.shares if one.gpu_id == gpu_id)
    key = f"{case.uid}/{gpu_id}"
    body: dict[str, object] = {
        **control_body(
            gpu_id=gpu_id,
            pod=case.pod,
            namespace=case.namespace,
            hostname=share.hostname,
            score=share.score,
            status=share.status,
            at=now,
        ),
        "idempotency_key": key,
        "evidence": {
            "pod_uid": case.uid,
            "owner": case.owner or None,
            "verdict": share.verdict,
            "class": share.use_class,
            "coverage": share.coverage,
            "idle_since": share.idle_since,
            "confirmations": case.confirmations,
        },
        "policy": {
            "grace": policy.grace,
            "confirmations": policy.confirmations,
            "approved_by": case.approved_by or None,
        },
    }
    if opinion is not None:
        body["ai_analysis"] = {  # gpu-oour's keys
            "status": opinion.status,
            "confidence": opinion.confidence,
            "reason": opinion.reason_in(language),
            "recommendation": opinion.recommendation_in(language),
        }
    text = msgspec.json.encode(body).decode()
    return Call(key=key, case_id=case.id, kind="control", gpu_id=gpu_id, body=text, first_at=now, next_at=now)


def scale_call(case: Case, target: ReclaimTarget, *, now: UnixTime) -> Call:
    """The one call of a case that changes an object of the cluster."""
    order = ClusterChange(
        namespace=case.namespace, pod=case.pod, pod_uid=case.uid, target=target, secret=secrets.token_hex(32)
    )
    return Call(key=scale_key(case), case_id=case.id, kind="scale", body=_json(order), first_at=now, next_at=now)


def scale_key(case: Case) -> str:
    return f"{case.uid}/scale"


def restore_call(case: Case, target: ReclaimTarget, earlier: Iterable[Call], *, number: int, now: UnixTime) -> Call:
    """A call that undoes what one of the earlier calls, for the case or another one of the object, has changed."""
    order = ClusterChange(
        namespace=case.namespace,
        pod=case.pod,
        pod_uid=case.uid,
        target=target,
        secret=secrets.token_hex(32),
        earlier=tuple(
            EarlierChange(
                key=call.key, secret=msgspec.json.decode(call.body, type=ClusterChange).secret, result=call.result
            )
            for call in earlier
            if call.kind == "scale"
        ),
    )
    key = f"{case.uid}/restore/{number}"
    return Call(key=key, case_id=case.id, kind="restore", body=_json(order), first_at=now, next_at=now)


def _json(value: Struct) -> str:
    return msgspec.json.encode(value).decode()
