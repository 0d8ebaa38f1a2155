"""What every number means, as the API tells it."""

from msgspec import Struct

from vgpuscope.model.words import Words


class Definition(Struct, frozen=True, kw_only=True):
    """One figure: what is counted or measured, of what, over which time, and where it is shown."""

    code: str
    subject: str  # of what one value is
    population: str  # what is counted or added up over; one: the subject itself is measured
    condition: str  # which of the population
    quantity: str
    unit: str  # base unit; "": the number has none
    time: str  # time basis
    name: Words
    text: Words
    fields: tuple[str, ...]  # of the API: Struct.field
    metrics: tuple[str, ...]
    columns: tuple[str, ...]  # of commands: command.COLUMN


class MetricDefinition(Struct, frozen=True, kw_only=True):
    """One metric by the same codes."""

    name: str
    figure: str | None  # code of its definition; null: it counts events or shows a state
    subject: str
    population: str
    quantity: str
    unit: str
    time: str


class Definitions(Struct, frozen=True, kw_only=True):
    """Every figure, and every metric of all services."""

    definitions: tuple[Definition, ...]
    metrics: tuple[MetricDefinition, ...]
