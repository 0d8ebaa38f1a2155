"""Which queries are sent, and how many of them in one request, by the size of the fleet and the pace of its samples."""

import pytest

from vgpuscope.knowledge.exporters import GROUPS, Group
from vgpuscope.logic.fleet.queries import StatisticsQuery, plan
from vgpuscope.logic.fleet.requests import FleetSize, QueryBatch, prefers_samples, requests

GPUS = next(group for group in GROUPS if group.schema == "vgpuscope" and group.kind == "device")
MOST = 1000


def plans() -> list[list[StatisticsQuery]]:
    return [list(plan(GPUS, present=GPUS.names, condition=(), expected=20))]


def sized(series: int, *, seconds: float = 600, pace: float | None = 10, known: bool = True) -> FleetSize:
    def count(_: Group) -> int:
        return series

    return FleetSize(series=count, known=known, seconds=seconds, interval=30, pace=pace)


def sent(size: FleetSize, *, sparing: bool = False) -> list[QueryBatch]:
    return requests(plans(), size, most_samples=MOST, sparing=sparing)


def wanted(batches: list[QueryBatch]) -> set[tuple[int, str]]:
    return {(ask.quantity, one) for batch in batches for ask in batch.asks for one in ask.statistics}


@pytest.mark.parametrize(
    "size", [sized(1), sized(10_000), sized(0, known=False)], ids=["small fleet", "large fleet", "unknown size"]
)
def test_every_wanted_statistic_is_in_one_request(size):
    batches = sent(size)
    assert wanted(batches) == {(ask.quantity, ask.statistics[0]) for ask in plans()[0]}
    assert sum(len(ask.statistics) for batch in batches for ask in batch.asks) == len(plans()[0])


def test_answers_of_unknown_size_are_not_bundled():
    assert all(len(batch.asks) == 1 for batch in sent(sized(0, known=False)))
    assert any(len(batch.asks) > 1 for batch in sent(sized(1)))


def test_an_engine_that_rejected_queries_for_samples_is_asked_for_statistics():
    assert any(batch.raw for batch in sent(sized(1)))
    assert not any(batch.raw for batch in sent(sized(1), sparing=True))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (sized(0), False),  # the number of series is unknown
        (sized(16, seconds=600, pace=10), True),  # 960 samples
        (sized(17, seconds=600, pace=10), False),  # 1020
        (sized(200, seconds=400, pace=10), True),  # series are so short that eight times as many samples are allowed
        (sized(201, seconds=400, pace=10), False),
        (sized(50, seconds=600, pace=None), True),  # 20 samples each by the configured interval: 1000
        (sized(51, seconds=600, pace=None), False),  # a pace that is not known allows no more
    ],
)
def test_samples_are_queried_if_there_are_few_in_all(size, expected):
    assert prefers_samples(GPUS, size, most=MOST) is expected
