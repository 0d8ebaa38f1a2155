"""Workloads of containers: the demand on a GPU by the age of a process."""

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Demand(NamedTuple):
    """The demand of one process at one moment, if it had the GPU to itself. SM and codecs 0-1, memory in MiB."""

    sm: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


Shape = Callable[[float, Random], Demand]  # age in seconds, and a random number generator


def training(*, sm: float, memory: float) -> Shape:
    """High, constant use, with a dip when a checkpoint is written."""

    def at(age: float, random: Random) -> Demand:
        saving = age % 41 > 38
        level = sm * (0.12 if saving else random.uniform(0.94, 1.03))
        return Demand(sm=min(level, 1.0), memory=memory * min(1.0, 0.4 + age / 15))

    return at


class Quiet(NamedTuple):
    """A period without requests that repeats, in seconds of age."""

    start: float
    length: float
    period: float

    def holds(self, age: float) -> bool:
        """Whether this age is inside the period."""
        return (age - self.start) % self.period < self.length


def inference(*, sm: float, memory: float, every: float = 17, length: float = 6, quiet: Quiet | None = None) -> Shape:
    """Bursts of requests with pauses between them."""

    def at(age: float, random: Random) -> Demand:
        burst = age % every < length and not (quiet and quiet.holds(age))
        return Demand(sm=sm * random.uniform(0.7, 1.0) if burst else 0.0, memory=memory * (1.06 if burst else 1.0))

    return at


def notebook(*, memory: float) -> Shape:
    """Holds memory and does nothing."""

    def at(age: float, random: Random) -> Demand:  # noqa: ARG001 - a shape takes both
        return Demand(memory=memory)

    return at


def leak(*, start: float, limit: float, seconds: float) -> Shape:
    """Some work, and memory that grows up to the limit and stays there."""

    def at(age: float, random: Random) -> Demand:
        share = min(1.0, age / seconds)
        return Demand(sm=random.uniform(0.08, 0.16), memory=start + (limit - start) * share)

    return at


def transcoding(*, memory: float) -> Shape:
    """Video decoding and encoding; the SMs are idle."""

    def at(age: float, random: Random) -> Demand:
        wave = 0.5 + 0.4 * math.sin(age / 9)
        return Demand(sm=0.05, memory=memory, encoder=wave * random.uniform(0.9, 1.0), decoder=wave * 0.6)

    return at
