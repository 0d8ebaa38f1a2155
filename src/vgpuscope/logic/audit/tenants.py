"""Tenants of a GPU together: in the same quantity they have no more than the GPU."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces

Row = dict[str, Any]

_SAMPLE = 0.1  # of a tenant's value: a mean over its own samples, weighed by the time since it came


class _Part(Struct, frozen=True, kw_only=True):
    """One quantity that the tenants of a GPU divide among them."""

    path: str  # in the row of a tenant
    figure: str
    whole: str  # in the row of the GPU
    whole_figure: str
    slack: float  # of the GPU's value: other samples of the same window
    margin: float


_PARTS = (
    # At most the time in which any kernel ran, not SM activity. Of that the peak, because the mean of a GPU is made of
    # means of its agent's windows: it rises for up to a window after a tenant came.
    _Part(
        path="use.mean",
        figure="tenant.use",
        whole="gpu_util.max",
        whole_figure="gpu.utilization_max",
        slack=0.05,
        margin=0.02,
    ),
    _Part(
        path="memory_used",
        figure="tenant.memory_used",
        whole="memory_used",
        whole_figure="gpu.memory_used",
        slack=0.02,
        margin=2**20,
    ),
    # The power of a GPU is a mean of means of its agent's windows, that of a tenant a mean of samples: while the power
    # changes, one follows the other.
    _Part(path="power", figure="tenant.power", whole="power", whole_figure="gpu.power", slack=0.1, margin=1.0),
)


def together(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The tenants of a GPU together have no more kernel time, memory and power than the GPU, each for its own time."""
    for answer in surfaces.answers:
        if answer.kind.removeprefix("SomeOf") != "GpuList":
            continue
        for index, row in enumerate(answer.body["rows"]):
            tenants = [tenant for tenant in row["tenants"] if tenant["own_numbers"]]
            for part in _PARTS:
                yield from _at_most(answer, index, row, tenants, part)


def _at_most(answer: PublicAnswer, index: int, row: Row, tenants: list[Row], part: _Part) -> Iterator[FigureComparison]:
    whole = _value(row, part.whole)
    known = [(value, _share(tenant)) for tenant in tenants if (value := _value(tenant, part.path)) is not None]
    if whole is None or not known or (row["mig"] and part.path == "power"):
        return
    uncertain = sum(_SAMPLE * value for value, share in known if share < 1.0)

    def place(path: str, figure: str, value: float) -> FigureReading:
        return FigureReading(
            surface=answer.surface, path=path, figure=figure, subject=(), value=value, moment=answer.moment
        )

    yield FigureComparison(
        check="parts",
        subject="/".join(name for name in (row["gpu_id"], row["mig"]) if name),
        first=place(
            f"sum(rows[{index}].tenants.{part.path} × share of the window)",
            part.figure,
            sum(value * share for value, share in known),
        ),
        second=place(f"rows[{index}].{part.whole}", part.whole_figure, whole),
        rule="at_most",
        tolerance=part.slack * whole + part.margin + uncertain,
    )


def _share(tenant: Row) -> float:
    """The part of the window in which a tenant was measured: it can have its GPU for longer than it uses memory."""
    here, measured = float(tenant["window_share"]), tenant["coverage"]
    return here if measured is None else min(here, float(measured))


def _value(row: Row, path: str) -> float | None:
    found: Any = row
    for name in path.split("."):
        found = found[name]
    return None if found is None else float(found)
