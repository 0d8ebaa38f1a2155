"""Tenants of one GPU beside the GPU, written by hand."""

from typing import Any

import pytest

from tests.logic.audit.test_statements import answer, wrong
from vgpuscope.logic.audit import tenants

GIB = 2**30


def tenant(**changed: Any) -> dict[str, Any]:
    made = {"own_numbers": True, "use": {"mean": 0.3}, "memory_used": 10 * GIB, "power": 100.0}
    return made | {"window_share": 1.0, "coverage": 1.0} | changed


def gpus(*held: dict[str, Any], **changed: Any) -> Any:
    """A GPU of which few SMs are busy while kernels run."""
    row = {"gpu_id": "GPU-1", "mig": None, "use": {"mean": 0.05}, "gpu_util": {"max": 0.6}, "tenants": list(held)}
    return answer("GpuList", {"rows": [row | {"memory_used": 20 * GIB, "power": 200.0} | changed]})


def test_tenants_share_the_time_in_which_kernels_ran_and_not_the_activity_of_sms():
    assert wrong(tenants.together, gpus(tenant(), tenant())) == []


@pytest.mark.parametrize(
    ("changed", "figure"),
    [
        ({"use": {"mean": 0.5}}, "tenant.use"),
        ({"memory_used": 15 * GIB}, "tenant.memory_used"),
        ({"power": 150.0}, "tenant.power"),
    ],
)
def test_tenants_that_have_more_than_their_gpu_are_found(changed, figure):
    assert [one.first.figure for one in wrong(tenants.together, gpus(tenant(), tenant(**changed)))] == [figure]


def test_a_tenant_counts_for_the_part_of_the_window_in_which_it_was_measured():
    came = tenant(memory_used=20 * GIB, window_share=0.5)
    assert wrong(tenants.together, gpus(tenant(), came)) == []
    started = tenant(memory_used=20 * GIB, coverage=0.5)  # it has had the GPU for longer, and used no memory
    assert wrong(tenants.together, gpus(tenant(), started)) == []


def test_numbers_of_the_whole_gpu_are_not_those_of_a_tenant():
    assert wrong(tenants.together, gpus(*[tenant(own_numbers=False)] * 4)) == []
