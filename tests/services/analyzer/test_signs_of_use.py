"""Values of an expression that shows use: the highest of each pod counts, and what is no number is unknown."""

import itertools
import json
import math

import pytest

from vgpuscope.model.reclaim import ActivityQuery
from vgpuscope.services.analyzer.reclaim.activity import _values

QUERY = ActivityQuery(name="vllm", query="requests")


def answer(values) -> bytes:
    rows = [
        {"metric": {"namespace": "ml", "pod": "p", "n": str(n)}, "value": [1, value]} for n, value in enumerate(values)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()


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
        value = _values(QUERY, answer(order))["ml", "p"]
        assert (None if math.isnan(value) else value) == found, order
