"""A pod that is about to be created, and what an admission webhook decides about it."""

from typing import Any

from msgspec import Struct


class SubmittedContainer(Struct, frozen=True, kw_only=True):
    """One container of a submitted pod, with the fields that concern GPUs."""

    path: str  # where it is in the pod: /spec/containers/0
    name: str
    privileged: bool = False
    amounts: dict[str, int] = {}  # NVIDIA's resources; limits take precedence over requests
    wrong: tuple[str, ...] = ()  # amounts that are no whole number of at least 0
    limits: bool = False  # whether it has a map of limits, empty or not
    requests: bool = False
    env: frozenset[str] | None = None  # names of its variables; None: it has no list of them


class SubmittedPod(Struct, frozen=True, kw_only=True):
    """A pod as a user wrote it."""

    namespace: str
    name: str
    ignored: bool = False  # its label asks the webhook to leave it alone
    node: str = ""
    scheduler: str = ""
    containers: tuple[SubmittedContainer, ...] = ()  # init containers first


class QuotaRoom(Struct, frozen=True, kw_only=True):
    """What a namespace may still allocate of one resource."""

    resource: str
    limit: int
    used: int


class AdmissionResult(Struct, frozen=True, kw_only=True):
    """The answer: a patch of the pod, or the reason why it is denied."""

    patch: tuple[dict[str, Any], ...] = ()  # JSON Patch; empty: the pod stays as it is
    code: str = ""  # of docs/scheduling-codes.md; "": allowed
    message: str = ""
