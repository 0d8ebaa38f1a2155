"""The one body in Kubernetes' own encoding that is understood here: the question of `kubectl auth can-i`.

After four magic bytes comes a runtime.Unknown: raw=2. That of a SelfSubjectAccessReview has spec=2, with
resourceAttributes=1 of namespace=1, verb=2, group=3, version=4, resource=5, subresource=6 and name=7.
"""

from collections.abc import Iterator

from vgpuscope.sim.kubekinds import Json

MAGIC = b"k8s\x00"
_RAW, _SPEC, _RESOURCE_ATTRIBUTES = 2, 2, 1
_ATTRIBUTES = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
_LENGTH_DELIMITED, _VARINT = 2, 0


def access_review(sent: bytes) -> Json:
    """The SelfSubjectAccessReview as JSON has it; ValueError for anything else."""
    found = sent.removeprefix(MAGIC)
    for number in (_RAW, _SPEC, _RESOURCE_ATTRIBUTES):
        found = dict(_fields(found)).get(number, b"")
    named = {_ATTRIBUTES[number]: text.decode() for number, text in _fields(found) if number in _ATTRIBUTES}
    return {"spec": {"resourceAttributes": named}}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields that hold bytes, texts or messages."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        length, at = _varint(message, at)
        if key & 7 == _VARINT:
            continue
        if key & 7 != _LENGTH_DELIMITED or at + length > len(message):
            raise ValueError("a field is cut off, or of a type that no access review has")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while at < len(message) and shift < 64:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 0x80:
            return value, at
    raise ValueError("a number is cut off")
