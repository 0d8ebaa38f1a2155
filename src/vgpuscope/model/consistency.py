"""Numbers as the public surfaces of a running system show them, and the comparisons between them."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.words import Words

STORED = "stored"  # the moment of answers about the past: they were read one after the other, and hours grow meanwhile
Rule: TypeAlias = Literal[
    "equal",  # both places show the same number
    "at_most",  # the first is a part of the second
    "sum",  # the first is the sum of the parts in the second
]
SkipReason: TypeAlias = Literal[
    "no-answer",  # no service that shows these numbers answered
    "not-shown",  # the answers do not have these numbers
    "no-time",  # the time limit was reached before
    "moving",  # the numbers change faster than they can be read
    "no-weights",  # a chart of a PromQL engine does not say for how long each of its values was measured
    "two-sources",  # one chart is of a PromQL engine, the other of stored analyses: other samples, other windows
    "other-services",  # one doctor asked services that the other one does not ask
]


class FigureReading(Struct, frozen=True, kw_only=True, gc=False):
    """One number in one place, in the base unit of its figure."""

    surface: str  # GET /api/v1/overview
    path: str  # now.gpus; count(rows[verdict=idle]) for a number that the auditor counted in the answer
    figure: str  # code of its definition
    subject: tuple[str, ...]  # of what: (node,), (namespace,), (gpu, mig), …; () for the fleet
    value: float
    margin: float = 0.0  # how far rounding can move it
    scope: tuple[str, ...] = ()  # namespaces that the answer is narrowed to
    moment: str = ""  # of which analysis or sample it is; "": not known
    rows: str = ""  # the list of which it is a row: with its surface, a complete list
    counted: bool = False  # by the auditor, from the rows of the answer


class PublicAnswer(Struct, frozen=True, kw_only=True):
    """One answer as plain JSON values. Lists are complete: all pages together."""

    service: str
    surface: str
    kind: str  # name of its shape in the OpenAPI document
    body: Any
    query: dict[str, str] = {}
    scope: tuple[str, ...] = ()
    sees: tuple[str, ...] | None = None  # the namespaces that it may be about: those asked for, else the caller's
    moment: str = ""


class Surfaces(Struct, frozen=True, kw_only=True):
    """What was read together: answers, and the numbers in them."""

    answers: tuple[PublicAnswer, ...] = ()
    readings: tuple[FigureReading, ...] = ()
    defined: frozenset[str] = frozenset()  # the figures that the audited system defines itself


class FigureComparison(Struct, frozen=True, kw_only=True, gc=False):
    """Two numbers that one rule joins."""

    check: str
    subject: str
    first: FigureReading
    second: FigureReading
    rule: Rule
    tolerance: float = 0.0


class Uncompared(Struct, frozen=True, kw_only=True):
    """Numbers that a check leaves undecided, because nothing follows from what is shown."""

    check: str
    why: SkipReason
    surfaces: tuple[str, ...]


class FigurePlace(Struct, frozen=True, kw_only=True):
    """One side of a difference."""

    surface: str
    path: str
    figure: str
    value: float
    definition: Words | None  # null: the table of figures does not have it


class Difference(Struct, frozen=True, kw_only=True):
    """Two numbers that contradict each other."""

    check: str
    subject: str
    first: FigurePlace
    second: FigurePlace
    rule: Rule
    tolerance: float


class CheckCount(Struct, frozen=True, kw_only=True):
    """How much one check compared; without comparisons it says nothing, and `reason` tells why."""

    code: str
    compared: int = 0
    differences: int = 0
    skipped: int = 0
    reason: SkipReason | None = None


class AuditedAddress(Struct, frozen=True, kw_only=True):
    """One service that was asked."""

    service: str
    url: str  # without a password
    answered: bool
    message: str = ""  # why it did not answer


class Unread(Struct, frozen=True, kw_only=True):
    """What should have been compared and was not."""

    what: str  # of a service: its path; else a command
    why: str  # the answer's status or error; "no-time": the time limit was reached before


class AuditReport(Struct, frozen=True, kw_only=True):
    """What was asked, what was compared, and which numbers contradict each other."""

    at: str
    asked: tuple[AuditedAddress, ...]
    checks: tuple[CheckCount, ...]
    differences: tuple[Difference, ...]
    unread: tuple[Unread, ...] = ()
    uncompared: tuple[Uncompared, ...] = ()
    undecided: int = 0  # differences that could not be read again before the time limit
    seconds: float = 0.0
    rounds: int = 1  # how often a difference was read again before it is reported
