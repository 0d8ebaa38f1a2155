"""What a process's own listener has served."""

from msgspec import Struct

from vgpuscope.model.quantity import Seconds

QUANTILES = (0.5, 0.9, 0.99)


class ServedScrapes(Struct, frozen=True, kw_only=True):
    """How many times /metrics was answered since the process started, and how long that took."""

    count: int
    bytes: int  # of all bodies, as they were sent: compressed, if the scraper asked for that
    seconds: Seconds  # of all answers together
    quantiles: tuple[Seconds, ...]  # of answers of the last minute, one for each of QUANTILES; empty without any
