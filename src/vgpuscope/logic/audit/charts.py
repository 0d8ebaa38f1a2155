"""Columns of charts: the values by the time of their steps, and the readings that comparisons are made of."""

from vgpuscope.model.consistency import FigureReading, PublicAnswer


def values_at(answer: PublicAnswer, quantity: str, field: str = "values") -> dict[int, float | None]:
    """By the time of the step. `seconds` of a column: the weights of its values, none if they are not known."""
    for column in answer.body["columns"]:
        if column["quantity"] == quantity and column.get(field):
            return dict(zip(answer.body["times"], column[field], strict=True))
    return {}


def subject_of(answer: PublicAnswer) -> str:
    parts = ("gpu_id", "mig", "node", "namespace", "pod", "owner")
    return "/".join(answer.query[part] for part in parts if answer.query.get(part))


_FIGURES = {"gpus": "chart.by_class"}


def reading_at(answer: PublicAnswer, quantity: str, at: int, value: float, *, path: str = "") -> FigureReading:
    return FigureReading(
        surface=answer.surface,
        path=path or f"{quantity}[time={at}]",
        figure=_FIGURES.get(quantity, f"chart.{quantity}"),
        subject=(),
        value=value,
        moment=answer.moment,
    )


def extreme_of(reading: FigureReading, which: str) -> FigureReading:
    return FigureReading(
        surface=reading.surface,
        path=f"{which}({reading.path.replace('[time=', ', from ').rstrip(']')})",
        figure=reading.figure,
        subject=reading.subject,
        value=reading.value,
        moment=reading.moment,
    )
