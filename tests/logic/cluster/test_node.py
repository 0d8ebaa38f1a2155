"""What a node's ledger says of devices and holders, by example."""

import pytest

from tests.logic.cluster.builders import GIB, device, given, instance, ledger, node, pod, settled


def only(one):
    assert len(one.devices) == 1
    return one.devices[0]


def test_a_device_has_given_away_the_sum_of_what_containers_hold():
    one = settled(
        device(),
        pod("a", given(memory=8 * GIB, cores=30)),
        pod("b", given(memory=2 * GIB), given(memory=GIB, container=1)),
    )
    gpu = only(one)
    assert (gpu.memory_allocated, gpu.cores_allocated, gpu.shared, gpu.containers) == (11 * GIB, 30, 3, 3)


def test_a_holder_is_named_by_container_name_and_index():
    one = settled(device(), pod("a", given(memory=GIB, cores=5, container=2)))
    holder = one.holders[0]
    assert (holder.namespace, holder.pod, holder.pod_uid) == ("ml", "a", "uid-ml-a")
    assert (holder.container_index, holder.container, holder.device) == (2, "c2", "GPU-0")
    assert (holder.memory, holder.cores) == (GIB, 5)


@pytest.mark.parametrize(
    ("init", "app", "taken"), [(20, 10, 20), (10, 20, 20), (0, 10, 10)], ids=["init more", "app more", "init none"]
)
def test_until_they_have_succeeded_init_containers_count_if_they_take_more(init, app, taken):
    held = (given(memory=init * GIB, init=True), given(memory=app * GIB, container=1))
    assert only(settled(device(), pod("a", *held))).memory_allocated == taken * GIB
    assert only(settled(device(), pod("a", *held, init_done=True))).memory_allocated == app * GIB


def test_init_containers_run_one_after_the_other_and_app_containers_together():
    one = settled(
        device(),
        pod(
            "a",
            given(memory=5 * GIB, cores=80, container=0, init=True),
            given(memory=7 * GIB, container=1, init=True),
            given(memory=3 * GIB, cores=20, container=2),
            given(memory=3 * GIB, cores=20, container=3),
        ),
    )
    gpu = only(one)
    assert (gpu.memory_allocated, gpu.cores_allocated, gpu.shared, gpu.containers) == (7 * GIB, 80, 2, 2)
    assert [holder.init for holder in one.holders] == [True, True, False, False]


def test_a_sidecar_is_there_while_later_init_containers_run():
    one = settled(
        device(),
        pod(
            "a",
            given(memory=9 * GIB, container=0, init=True),
            given(memory=2 * GIB, container=1),
            given(memory=8 * GIB, container=2, init=True),
            given(memory=3 * GIB, container=3),
        ),
    )
    assert (only(one).memory_allocated, only(one).shared) == (10 * GIB, 2)


def test_what_only_an_init_container_held_is_free_once_it_is_done():
    held = (given("GPU-0", init=True), given("GPU-1", container=1))
    one = settled(device("GPU-0", 0), device("GPU-1", 1), pod("a", *held, init_done=True))
    assert [gpu.memory_allocated for gpu in one.devices] == [0, 8 * GIB]
    assert [holder.device for holder in one.holders] == ["GPU-1"]


def test_a_device_is_given_away_from_its_assignment_before_the_binding():
    waiting = pod("a", given(), bound=False, phase="Pending")
    assert only(settled(device(), waiting)).memory_allocated == 8 * GIB


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase):
    one = settled(device(), pod("a", given(), phase=phase))
    assert only(one).memory_allocated == 0
    assert one.holders == ()


def test_a_terminating_pod_still_holds_its_devices():
    assert only(settled(device(), pod("a", given(), deleting=True))).memory_allocated == 8 * GIB


def test_more_than_a_whole_gpu_is_shown_as_it_is():
    gpu = only(settled(device(cores=200, memory=160 * GIB), pod("a", given(memory=120 * GIB, cores=150))))
    assert (gpu.memory_allocated, gpu.cores_allocated, gpu.memory_free) == (120 * GIB, 150, 40 * GIB)


def test_two_mig_instances_of_one_gpu_are_two_slots_of_one_container():
    held = (given(memory=10 * GIB, cores=15), given(memory=10 * GIB, cores=15))
    one = settled(device(mode="mig", slots=7), pod("a", *held, instances=(instance(), instance(start=1))))
    gpu = only(one)
    assert (gpu.shared, gpu.containers, gpu.memory_allocated) == (2, 1, 20 * GIB)
    assert [(held.pod, held.instance.start) for held in gpu.instances] == [("a", 0), ("a", 1)]


def test_an_init_containers_mig_instance_exists_until_its_pod_ends():
    """Project-HAMi/HAMi v2.10.0 pkg/scheduler/scheduler.go getNodesUsage: reservations without devices stay in use."""
    held = (given(init=True), given(container=1))
    mig = (instance(container=0), instance(container=1, start=1))
    one = settled(device(mode="mig"), pod("a", *held, instances=mig, init_done=True))
    assert [held.instance.start for held in only(one).instances] == [0, 1]
    ended = settled(device(mode="mig"), pod("a", *held, instances=mig, init_done=True, phase="Succeeded"))
    assert only(ended).instances == ()


def test_devices_are_listed_by_index_whatever_order_they_were_written_in():
    one = settled(device("GPU-b", 1), device("GPU-a", 0))
    assert [gpu.device.id for gpu in one.devices] == ["GPU-a", "GPU-b"]


def test_a_device_that_is_written_twice_is_one_device():
    one = settled(device(memory=GIB), device(memory=2 * GIB), pod("a", given()))
    assert only(one).device.memory == GIB


def test_a_node_nobody_knows_of_has_no_ledger():
    made = ledger([node(device())], [pod("a", given())])
    assert made.node("n2") is None
    made.drop_node("n1")
    made.drop_pod("uid-ml-a")
    assert made.node("n1") is None


def test_a_pod_that_moves_leaves_nothing_behind():
    made = ledger([node(device()), node(device("GPU-1"), name="n2")], [pod("a", given())])
    made.changed()
    made.set_pod(pod("a", given("GPU-1"), on="n2"))
    assert made.changed().nodes == {"n1", "n2"}
    assert (made.node("n1").holders, len(made.node("n2").holders)) == ((), 1)


def test_an_event_names_only_the_node_and_the_namespace_it_touches():
    made = ledger([node(device()), node(device(), name="n2")], [pod("a", given()), pod("b", given(), namespace="web")])
    made.changed()
    made.set_pod(pod("a", given(), deleting=True))
    assert (made.changed().nodes, made.changed().nodes) == ({"n1"}, set())


def test_a_node_that_is_gone_is_named_as_changed():
    made = ledger([node(device())])
    made.changed()
    made.drop_node("n1")
    assert made.changed().nodes == {"n1"}
