"""A finding names a few objects, and says how many it does not name."""

import pytest

from vgpuscope.logic.doctor.judging import NamedObjects, failed, warned
from vgpuscope.logic.doctor.regions import not_made
from vgpuscope.model.doctor import DoctorFacts, Missing, ObjectNames, SeriesFacts, SeriesValue


@pytest.mark.parametrize("judged", [warned, failed])
def test_the_objects_that_are_named_and_those_that_are_not_are_all(judged):
    for count in range(9):
        found = judged([f"GPU-{n}" for n in range(count)] * 2, count=count)
        assert len(found.examples) + found.numbers.get("omitted", 0) == count
        assert ("omitted" in found.numbers) == (len(found.examples) < count)


def test_commands_name_the_first_object_that_is_named():
    pods = {f"research/dev-{n}": ObjectNames(namespace="research", pod=f"dev-{n}") for n in (2, 1)}
    assert failed(NamedObjects(pods)).names == ObjectNames(namespace="research", pod="dev-1")
    assert failed(["a message"]).names == ObjectNames()


def test_a_container_that_never_started_cuda_is_named_for_commands():
    labels = {"node": "a", "namespace": "research", "pod": "dev-0", "container": "main", "state": "not-started"}
    state = SeriesValue(name="vgpuscope_container_state", labels=labels, value=1)
    gone = {name: Missing(fact="driver", reason="not-here") for name in DoctorFacts.__struct_fields__}
    found = not_made(DoctorFacts(**(gone | {"series": SeriesFacts(now=(state,))})))  # type: ignore[arg-type]
    assert found.examples == ("research/dev-0/main",)
    assert found.names == ObjectNames(node="a", namespace="research", pod="dev-0")
