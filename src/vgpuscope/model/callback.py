"""A report of a low GPU or tenant to the control service; nothing is taken by it."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.opinion import PartId
from vgpuscope.model.quantity import UnixTime

CallbackOutcome: TypeAlias = Literal["success", "failure", "given_up"]


class Callback(Struct, frozen=True, kw_only=True):
    """One call; its key is the same each time it is sent."""

    part: PartId
    key: str
    body: bytes
    first_at: UnixTime
