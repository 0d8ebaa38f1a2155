"""What namespaces use of what quotas limit."""

import pytest

from tests.logic.cluster.builders import MIB, device, given, ledger, namespace_names, node, pod, quota, relist_pods
from vgpuscope.model.allocation import QuotaState

MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"


def uses(made, namespace="ml"):
    return {one.resource: one for one in made.namespace(namespace).quotas}


def used(made, namespace="ml"):
    return {resource: one.used for resource, one in uses(made, namespace).items()}


def test_use_is_what_pods_of_the_namespace_were_given_on_any_node():
    made = ledger(
        [node(device())],
        [
            pod("a", given(memory=8000 * MIB, cores=30)),
            pod("b", given(memory=500 * MIB), on="never-seen"),
            pod("c", given(memory=70 * MIB), namespace="web"),
        ],
    )
    assert used(made) == {MEMORY: 8500, CORES: 30}
    assert made.namespace("ml").pods == 2


def test_a_namespace_with_devices_and_without_a_quota_has_no_limit():
    assert [one.limit for one in ledger([], [pod("a", given())]).namespace("ml").quotas] == [None, None]


def test_a_quota_that_nobody_uses_is_shown():
    made = ledger([], [], [quota(gpumem=10000)])
    assert (used(made), uses(made)[MEMORY].limit) == ({MEMORY: 0}, 10000)


def test_a_limit_of_nothing_is_not_the_lack_of_a_limit():
    assert uses(ledger([], [pod("a", given())], [quota(gpumem=0)]))[MEMORY].limit == 0


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_limits_the_strictest_holds_whatever_their_order(order):
    both = [quota("q1", gpumem=10), quota("q2", gpumem=5, gpucores=50)]
    memory = uses(ledger([], [], both[::order]))[MEMORY]
    assert (memory.limit, [one.name for one in memory.limits]) == (5, ["q1", "q2"])


def test_when_one_of_two_quotas_goes_the_other_still_limits():
    made = ledger([], [], [quota("q1", gpumem=10), quota("q2", gpumem=5)])
    made.changed()
    made.drop_quota("ml", "q2")
    assert made.changed().namespaces == {"ml"}
    assert uses(made)[MEMORY].limit == 10


def test_the_count_of_devices_and_what_is_no_device_are_left_to_kubernetes():
    hard = {"nvidia.com/gpu": 4, "cpu": 8, "pods": 3}
    assert used(ledger([], [], [QuotaState(namespace="ml", name="q", hard=hard)])) == {}


def test_memory_of_a_vendor_with_larger_units_is_held_against_limit_times_unit():
    hard = {"iluvatar.ai/BI-V150.vMem": 4, "iluvatar.ai/BI-V150.vCore": 50}
    made = ledger(
        [],
        [pod("a", given(memory=512 * MIB, vendor="BI-V150"))],
        [QuotaState(namespace="ml", name="q", hard=hard)],
    )
    memory = uses(made)["iluvatar.ai/BI-V150.vMem"]
    assert (memory.used, memory.limit, memory.factor) == (512, 4, 256)
    assert uses(made)["iluvatar.ai/BI-V150.vCore"].factor == 1


def test_init_containers_count_only_until_they_are_done():
    held = (given(memory=20 * MIB, init=True), given(memory=10 * MIB, container=1))
    made = ledger([], [pod("a", *held)])
    assert used(made)[MEMORY] == 20
    made.set_pod(pod("a", *held, init_done=True))
    assert used(made)[MEMORY] == 10


@pytest.mark.parametrize("end", [lambda made: made.drop_pod("uid-ml-a"), lambda made: relist_pods(made, [])])
def test_when_the_last_pod_goes_nothing_is_left_of_its_use(end):
    made = ledger([], [pod("a", given())])
    made.changed()
    end(made)
    assert made.changed().namespaces == {"ml"}
    assert (used(made), namespace_names(made)) == ({}, set())


def test_a_vendor_whose_last_pod_goes_is_not_shown_beside_the_others():
    made = ledger([], [pod("a", given(vendor="DCU")), pod("b", given())])
    made.drop_pod("uid-ml-a")
    assert used(made).keys() == {MEMORY, CORES}


def test_a_pod_that_ends_uses_nothing():
    made = ledger([], [pod("a", given())])
    made.set_pod(pod("a", given(), phase="Failed"))
    assert used(made) == {}


def test_a_vendor_nobody_has_heard_of_has_no_quota():
    assert used(ledger([], [pod("a", given(vendor="Unheard-of"))])) == {}
