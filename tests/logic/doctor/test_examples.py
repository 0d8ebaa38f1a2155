"""A finding names a few objects, and says how many it does not name."""

import pytest

from vgpuscope.logic.doctor.judging import failed, warned


@pytest.mark.parametrize("judged", [warned, failed])
def test_the_objects_that_are_named_and_those_that_are_not_are_all(judged):
    for count in range(9):
        found = judged([f"GPU-{n}" for n in range(count)] * 2, count=count)
        assert len(found.examples) + found.numbers.get("omitted", 0) == count
        assert ("omitted" in found.numbers) == (len(found.examples) < count)
