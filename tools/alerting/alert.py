"""The types of the tables of alerts."""

from typing import Literal, NamedTuple

from tools.project import REPOSITORY_URL

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")

# Where the pages of docs/runbooks are found. The chart replaces this text if a value gives another place.
RUNBOOKS = f"{REPOSITORY_URL}/blob/main/docs/runbooks/"


class Text(NamedTuple):
    """The same sentence in both languages."""

    en: str
    zh: str


class Cause(NamedTuple):
    """One possible cause of an alert, and what to do about it."""

    cause: Text
    action: Text


class Runbook(NamedTuple):
    """The page that an alert links to."""

    meaning: Text
    queries: tuple[str, ...]  # PromQL that shows more than the alert does
    commands: tuple[str, ...]
    causes: tuple[Cause, ...]


class Alert(NamedTuple):
    """One alert. Labels that its texts name are labels of its expression."""

    name: str
    expr: str
    wait: str  # how long the expression must hold, as Prometheus writes a duration
    severity: Severity
    summary: Text
    description: Text
    runbook: Runbook
    labels: tuple[tuple[str, str], ...] = ()


class AlertFile(NamedTuple):
    """One rule file, which is one group of alerts."""

    name: str
    about: Text
    alerts: tuple[Alert, ...]
