"""The parts that an answer is joined from, each with its own state: a part that is down greys its own panel only."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import Seconds

PartName: TypeAlias = Literal["analysis", "cluster", "agents", "history", "prometheus", "extender"]
PartState: TypeAlias = Literal["ok", "stale", "down", "absent", "forbidden"]


class Part(Struct, frozen=True, kw_only=True):
    """The state of one part when the answer was made.

    ok: current. stale: the last good values are shown, and `code` says why there are no newer ones. down: there are no
    values. absent: the part is not configured. forbidden: the credentials are rejected.
    """

    name: PartName
    state: PartState
    at: str | None = None  # when its values were read
    age_seconds: Seconds | None = None
    window_seconds: Seconds | None = None  # of the analysis: the time that its means and peaks cover
    low_score: float | None = None  # of the analysis: scores below it are low
    code: str | None = None
    message: str | None = None
    hint: str | None = None


class PartList(Struct, frozen=True, kw_only=True):
    """The state of every part now."""

    parts: tuple[Part, ...]
