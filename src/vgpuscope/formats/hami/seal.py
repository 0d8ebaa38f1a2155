"""The seal of an assignment: proof that the extender made it, for this pod, and that nobody has changed it since.

    vgpuscope.io/assignment-seal    KEY.MAC: which key, and HMAC-SHA256 over what follows, in base64url

        pod UID, whether the extender has bound the pod, hami.io/vgpu-node, hami.io/vgpu-time,
        hami.io/vgpu-devices-allocated, and of each MIG instance the container, the device, the GPU, the profile and
        the place; its ids are the device plugin's

The binding writes another seal than the assignment. So who keeps the seal of an assignment that was given up, and binds
the pod with it, has nothing by that.

A file of keys has one key in each line, `<Unix seconds> <secret>`, and lines that begin with #. The first key seals,
all of them verify. The time is when assignments began to be sealed: pods that were created before the earliest of these
times, and are bound, were assigned without a seal. So they need none.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vgpuscope.formats.hami.annotation import (
    ALLOCATED,
    FILTERED,
    MIG_ALLOCATIONS,
    NODE,
    held_instances,
    mig_allocations,
)
from vgpuscope.model.errors import AnnotationMalformed, ConfigInvalid
from vgpuscope.model.quantity import PodUID, UnixTime

SEAL = "vgpuscope.io/assignment-seal"
_SHORTEST = 32  # characters of a secret
_MOST = 16  # keys


class SealKey(NamedTuple):
    """One key. Its id tells nothing of it."""

    id: str
    secret: bytes
    since: UnixTime


class Seals:
    """Makes and checks seals."""

    def __init__(self, keys: Sequence[SealKey]) -> None:
        assert keys
        self._sealing, self._keys = keys[0], {key.id: key.secret for key in keys}
        self.since = min(key.since for key in keys)

    def seal(self, uid: PodUID, annotations: Mapping[str, str], *, bound: bool) -> str:
        """The seal of the assignment in these annotations; AnnotationMalformed if they have none that can be read."""
        mac = _mac(self._sealing.secret, uid, annotations, bound=bound)
        return f"{self._sealing.id}.{base64.urlsafe_b64encode(mac).decode()}"

    def holds(self, uid: PodUID, annotations: Mapping[str, str], *, bound: bool) -> bool:
        """Whether the seal in these annotations is one of their assignment, and of its binding if the pod is bound."""
        key, _, text = annotations.get(SEAL, "").partition(".")
        secret = self._keys.get(key)
        if secret is None:
            return False
        try:
            mac = _mac(secret, uid, annotations, bound=bound)
            return hmac.compare_digest(base64.urlsafe_b64encode(mac).decode(), text)
        except (AnnotationMalformed, TypeError):  # TypeError: text that is not ASCII
            return False

    def believes(self, uid: PodUID, annotations: Mapping[str, str], *, bound: bool, created: UnixTime | None) -> bool:
        """Whether a pod holds what these annotations say: they are sealed, or older than all seals."""
        return self.holds(uid, annotations, bound=bound) or (bound and created is not None and created < self.since)


def read_seal_keys(text: str) -> Seals:
    """The keys in a file; ConfigInvalid without saying anything of what is in it."""
    keys = [_key(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if not keys or len(keys) > _MOST:
        raise ConfigInvalid(f"seal keys: {len(keys)} keys, from 1 to {_MOST} are possible")
    return Seals(keys)


def _key(number: int, line: str) -> SealKey:
    since, _, secret = line.strip().partition(" ")
    if not since.isdecimal() or len(secret.strip()) < _SHORTEST:
        raise ConfigInvalid(f"seal keys: line {number} is not `<Unix seconds> <secret of {_SHORTEST} characters>`")
    data = secret.strip().encode()
    return SealKey(hashlib.sha256(b"id:" + data).hexdigest()[:8], data, float(since))


def _mac(secret: bytes, uid: PodUID, annotations: Mapping[str, str], *, bound: bool) -> bytes:
    if not annotations.get(ALLOCATED) or not annotations.get(NODE):
        raise AnnotationMalformed(f"{ALLOCATED} or {NODE} is missing")
    parts = [uid, "bound" if bound else "", annotations[NODE], annotations.get(FILTERED, ""), annotations[ALLOCATED]]
    if MIG_ALLOCATIONS in annotations:
        rows = zip(mig_allocations(annotations), held_instances(annotations), strict=True)
        parts += [
            f"{row.container_index},{row.device_index},{row.gpu},{row.profile},{held.start},{held.size}"
            for row, held in rows
        ]
    text = "\0".join(parts)
    if text.count("\0") != len(parts) - 1:  # another split of the same text would be another assignment
        raise AnnotationMalformed("an assignment with NUL characters has no seal")
    return hmac.digest(secret, text.encode(), "sha256")
