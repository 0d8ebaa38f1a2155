"""Values of an expression that shows use: the highest of each pod counts, and what is not a number is unknown."""

import itertools
import math

import pytest

from vgpuscope.logic.reclaim.signals import ActivityAnswer, highest_values, signals_of
from vgpuscope.model.reclaim import ActivityQuery, Workload

QUERY = ActivityQuery(name="vllm", query="requests")


def rows(values):
    return [({"namespace": "ml", "pod": "p", "n": str(n)}, float(value)) for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("NaN", "0"), None),
        (("NaN", "-1"), None),
        (("NaN", "0", "NaN", "0"), None),
        (("NaN", "3"), 3.0),  # one sign of use is enough
        (("NaN", "0", "3"), 3.0),
        (("0", "2"), 2.0),
        (("-1", "0"), 0.0),
    ],
)
def test_the_order_of_the_series_does_not_matter_and_unknown_is_not_quiet(values, found):
    for order in set(itertools.permutations(values)):
        value = highest_values(QUERY, rows(order))["ml", "p"]
        assert (None if math.isnan(value) else value) == found, order


WORKLOAD = Workload(uid="u", namespace="ml", pod="p")
QUEUE = ActivityQuery(name="rabbitmq", query="length", by="queue")


def active(*answers: ActivityAnswer, queues: tuple[str, ...] = ()) -> dict[str, bool | None]:
    return {one.name: one.active for one in signals_of(answers, WORKLOAD, queues)}


def test_only_a_value_above_0_is_use_and_a_pod_without_a_value_has_no_sign():
    assert active(ActivityAnswer(QUERY, {("ml", "p"): 1.0})) == {"vllm": True}
    assert active(ActivityAnswer(QUERY, {("ml", "p"): 0.0})) == {"vllm": False}
    assert active(ActivityAnswer(QUERY, {("ml", "p"): math.nan})) == {"vllm": None}
    assert active(ActivityAnswer(QUERY, {("ml", "other"): 1.0})) == {}


def test_an_expression_that_failed_is_unknown_for_every_pod():
    assert active(ActivityAnswer(QUERY, {}, "no answer"), ActivityAnswer(QUEUE, {}, "no answer")) == {
        "vllm": None,
        "rabbitmq": None,
    }


def test_a_queue_that_no_expression_knows_is_unknown():
    found = active(ActivityAnswer(QUEUE, {("full",): 7.0, ("empty",): 0.0}), queues=("lost",))
    assert found == {"queue lost": None}
    assert active(ActivityAnswer(QUEUE, {("full",): 7.0}), queues=("full",)) == {"rabbitmq": True}
    assert active(ActivityAnswer(QUEUE, {("empty",): 0.0}), queues=("empty",)) == {"rabbitmq": False}
