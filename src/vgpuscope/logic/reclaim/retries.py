"""When a call that failed is tried again: after 1 s, then twice as long each time up to 5 minutes, for 24 hours."""

from vgpuscope.model.quantity import Seconds, UnixTime

FIRST: Seconds = 1.0
LONGEST: Seconds = 300.0
GIVE_UP: Seconds = 24 * 3600.0


def pause(attempts: int) -> Seconds:
    """The pause after so many attempts."""
    return min(LONGEST, FIRST * 2.0 ** min(attempts - 1, 16))


def exhausted(first: UnixTime, now: UnixTime) -> bool:
    """Whether a call that was first due then is given up now."""
    return now - first >= GIVE_UP
