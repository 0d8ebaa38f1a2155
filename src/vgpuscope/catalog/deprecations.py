"""The table of names that still work and will be removed: settings and metrics, each with its release and its day.

A row is added when a name gets a successor, and removed together with the name. A test fails once a row is overdue.
"""

from datetime import date
from typing import Final, Literal

from msgspec import Struct


class Deprecation(Struct, frozen=True, kw_only=True):
    """One name: since which release it should not be used, and when it is removed."""

    kind: Literal["setting", "metric"]
    name: str  # agent.ratio; vgpuscope_x_total
    instead: str = ""  # the name to use; "": nothing takes its place
    since: str  # release: 0.2
    removed_in: str  # release, at least two minor ones later: 0.4
    removed_on: date  # the day until which the release comes

    @property
    def note(self) -> str:
        """For the help text of a metric and the description of a setting."""
        use = f" Use {self.instead}." if self.instead else ""
        return f"Deprecated since {self.since}, removed in {self.removed_in} ({self.removed_on.isoformat()}).{use}"


DEPRECATIONS: Final[tuple[Deprecation, ...]] = ()


def deprecated_setting(path: str) -> Deprecation | None:
    """The row of a setting."""
    return next((row for row in DEPRECATIONS if row.kind == "setting" and row.name == path), None)


def deprecated_metric(name: str) -> Deprecation | None:
    """The row of a metric, by a name under which it appears on a page."""
    return next((row for row in DEPRECATIONS if row.kind == "metric" and row.name == name), None)


def minor(release: str) -> tuple[int, int]:
    """Major and minor number of a release."""
    numbers = release.split(".")
    return int(numbers[0]), int(numbers[1])


def overdue(version: str, today: date) -> tuple[Deprecation, ...]:
    """Names that this release must not have any more, and those whose day has passed."""
    return tuple(row for row in DEPRECATIONS if minor(version) >= minor(row.removed_in) or today > row.removed_on)
