"""A control service, as an operator would run one: it checks the signature of a call, and deletes the pod.

POST /   a call of the analyzer; GET /   the calls that were accepted

The scheme is that of Standard Webhooks: the signature covers the id, the time and the body, and an old call is refused.
A key that was seen before is accepted again and changes nothing. A pod that was replaced under the same name is left
alone: the call names the UID.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from vgpuscope.sim.jobs import Life
from vgpuscope.sim.posts import Answer, Asked
from vgpuscope.sim.world import World

_TOLERANCE = 300.0  # seconds between the time of a call and now
_PREFIX = "whsec_"


class Evidence(Struct, frozen=True, kw_only=True):
    """The part of a call's evidence that is used."""

    pod_uid: str


class Taken(Struct, frozen=True, kw_only=True):
    """The fields of a call that are used."""

    gpu_id: str
    namespace: str
    pod: str
    idempotency_key: str
    evidence: Evidence


class Refusal(Exception):
    """Why a call is not accepted, with its HTTP status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def new_secret() -> str:
    return f"{_PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}"


class ControlService:
    """Deletes pods of the simulated nodes by writing their names into the file that the demo watches."""

    def __init__(
        self, worlds: Sequence[World], stopped: Path, *, secret: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._worlds, self._stopped, self._secret, self._clock = worlds, stopped, secret, clock
        self.calls: dict[str, Taken] = {}  # by idempotency key, in the order in which they came

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(200, {"calls": list(self.calls.values())})
        if asked.method != "POST":
            return Answer(405, {"error": "POST a call, or GET the list of calls"})
        try:
            return Answer(200, self._take(asked))
        except Refusal as e:
            return Answer(e.status, {"error": str(e)})

    def _take(self, asked: Asked) -> dict[str, object]:
        verify(asked.headers, asked.body, secret=self._secret, now=self._clock())
        try:
            call = msgspec.json.decode(asked.body, type=Taken)
        except msgspec.DecodeError as e:
            raise Refusal(400, f"the body is not a call: {e}") from e
        if call.idempotency_key != asked.headers["webhook-id"]:
            raise Refusal(400, "the key of the body is not the id of the call")
        again = call.idempotency_key in self.calls
        if not again:
            self._delete(call)
            self.calls[call.idempotency_key] = call
        return {"accepted": True, "again": again}

    def _delete(self, call: Taken) -> None:
        """Delete the pod; one that is gone already needs nothing."""
        life = self._find(call)
        if life is None:
            return
        if life.uid != call.evidence.pod_uid:
            raise Refusal(409, f"{call.namespace}/{call.pod} is another pod now: its UID is {life.uid}")
        name = f"{life.job.namespace}/{life.job.name}"
        known = self._stopped.read_text().split() if self._stopped.exists() else []
        if name not in known:
            self._stopped.write_text("\n".join([*known, name]) + "\n")

    def _find(self, call: Taken) -> Life | None:
        lives = (life for world in self._worlds for life in world.lives.values())
        return next((life for life in lives if (life.job.namespace, life.name) == (call.namespace, call.pod)), None)


def verify(headers: Mapping[str, str], body: bytes, *, secret: str, now: float) -> None:
    """Refuse a call without a valid signature, or one that is too old or from the future."""
    key, at, signed = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (key and signed and at.isascii() and at.isdigit()):
        raise Refusal(401, "webhook-id, webhook-timestamp or webhook-signature is missing")
    if abs(now - int(at)) > _TOLERANCE:
        raise Refusal(401, "the call is too old, or from the future")
    content = f"{key}.{at}.".encode() + body
    mac = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), content, hashlib.sha256).digest()
    wanted = f"v1,{base64.b64encode(mac).decode()}"
    if not any(hmac.compare_digest(wanted.encode(), one.encode()) for one in signed.split(" ")):
        raise Refusal(401, "the signature is wrong")
