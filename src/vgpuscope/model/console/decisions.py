"""Decisions of the scheduler extender as the console shows them."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.model.console.parts import Part
from vgpuscope.model.decision_answers import AskedGpus
from vgpuscope.model.placement import DecidedGpu, DecisionOutcome, Verb
from vgpuscope.model.quantity import PodUID, Seconds
from vgpuscope.model.scheduling_codes import Stage
from vgpuscope.model.words import Words


class DecisionRow(Struct, frozen=True, kw_only=True):
    """One decision about one pod."""

    id: str
    at: str
    verb: Verb
    namespace: str
    pod: str
    pod_uid: PodUID
    outcome: DecisionOutcome
    node: str | None
    gpus: tuple[DecidedGpu, ...]
    score: float | None
    policy: str | None
    terms: dict[str, float]  # of the node's score
    codes: dict[str, int]  # refused nodes by code, most first
    fitting: int  # nodes that the pod fits on
    asks: tuple[AskedGpus, ...]
    constraints: tuple[str, ...]  # annotations that restrict the choice
    seconds: Seconds


class DecisionList(Struct, frozen=True, kw_only=True):
    """The newest decisions."""

    total: int
    rows: tuple[DecisionRow, ...]
    parts: tuple[Part, ...]


class RefusedNode(Struct, frozen=True, kw_only=True):
    """A node that was refused, and what it lacks."""

    node: str
    message: str
    message_zh: str  # "": there is only English
    requested: str
    available: str


class CodeRow(Struct, frozen=True, kw_only=True):
    """The nodes that were refused with one code."""

    code: str
    stage: Stage | None  # null: the code is not known here
    meaning: Words | None
    advice: Words | None  # what to do about it
    count: int
    nodes: tuple[RefusedNode, ...]  # the first ones, the nearest to fitting first


class RankedNode(Struct, frozen=True, kw_only=True):
    """A node that the pod fits on, with its score."""

    node: str
    score: float


class PodDecisions(Struct, frozen=True, kw_only=True):
    """The decisions about one pod."""

    rows: tuple[DecisionRow, ...]  # newest first
    sought: DecisionRow | None  # the last time that a node was looked for: the verdicts are from then
    codes: tuple[CodeRow, ...]
    ranked: tuple[RankedNode, ...]  # best first
    parts: tuple[Part, ...]


class WhatIf(Struct, frozen=True, kw_only=True):
    """A pod with one container, as the form of the console describes it."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63)] = "default"
    gpus: Annotated[int, Meta(ge=1, le=1024)] = 1
    memory: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0  # MiB of each GPU; 0: the whole GPU
    cores: Annotated[int, Meta(ge=0, le=100)] = 0  # percent of each GPU; 0: no reservation
    replicas: Annotated[int, Meta(ge=1, le=10_000)] = 1
    type: Annotated[str, Meta(max_length=200)] = ""  # of GPU: a part of its name
