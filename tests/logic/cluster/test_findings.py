"""Every kind of finding, and what is not one."""

import pytest

from tests.logic.cluster.builders import GIB, device, given, ledger, node, pod, relist_pods, settled


def kinds(one):
    return [(finding.kind, finding.reason) for finding in one.findings]


def test_a_node_where_all_is_well_has_no_findings():
    one = settled(device(), pod("a", given(), requests={"nvidia.com/gpu": 1}), allocatable={"nvidia.com/gpu": 10})
    assert (one.findings, one.finding_counts) == ((), ())


def test_the_devices_of_an_ended_pod_are_a_ghost_that_is_not_counted():
    one = settled(device(), pod("a", given(), phase="Succeeded"))
    assert kinds(one) == [("ghost", "ended")]
    assert one.devices[0].memory_allocated == 0


def test_a_pod_whose_kubelet_is_silent_is_a_ghost():
    one = settled(device(), pod("a", given(), phase="Unknown"))
    assert kinds(one) == [("ghost", "unknown")]
    assert (one.findings[0].namespace, one.findings[0].pod, one.findings[0].pod_uid) == ("ml", "a", "uid-ml-a")


def test_a_pod_that_nobody_can_end_is_a_ghost():
    leaving = pod("a", given(), deleting=True)
    assert kinds(settled(device(), leaving, ready=False)) == [("ghost", "terminating")]
    assert kinds(settled(device(), leaving)) == []


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_pod_bound_elsewhere_is_a_ghost_where_its_devices_are(phase):
    made = ledger(
        [node(device()), node(device("GPU-1"), name="n2")],
        [pod("a", given(), node="n2", phase=phase, requests={"nvidia.com/gpu": 1})],
    )
    assert kinds(made.node("n1")) == [("ghost", "elsewhere")]
    assert kinds(made.node("n2")) == [("unallocated-user", "")]


def test_a_pod_is_a_ghost_when_it_has_waited_too_long_for_its_binding():
    made = ledger([node(device())], [pod("a", given(), bound=False, phase="Pending")], patience=300)
    for now in (1000, 1299):
        made.pass_time(now)
        assert kinds(made.node("n1")) == []
    made.changed()
    made.pass_time(1300)
    assert made.changed().nodes == {"n1"}
    assert kinds(made.node("n1")) == [("ghost", "unbound")]
    made.set_pod(pod("a", given()))
    assert kinds(made.node("n1")) == []


def test_the_wait_goes_on_through_events_and_lists_and_begins_again_on_another_node():
    waiting = pod("a", given(), bound=False, phase="Pending")
    made = ledger([node(device()), node(device(), name="n2")], [waiting], patience=300)
    made.pass_time(0)
    made.set_pod(pod("a", given(), bound=False, phase="Pending", requests={"nvidia.com/gpu": 1}))
    relist_pods(made, [waiting])
    made.pass_time(300)
    assert kinds(made.node("n1")) == [("ghost", "unbound")]
    made.set_pod(pod("a", given(), on="n2", bound=False, phase="Pending"))
    made.pass_time(400)
    assert kinds(made.node("n2")) == []


def test_a_clock_that_jumps_back_only_begins_the_wait_again():
    made = ledger([node(device())], [pod("a", given(), bound=False, phase="Pending")], patience=300)
    for now in (1000, 10, 309):
        made.pass_time(now)
    assert kinds(made.node("n1")) == []
    made.pass_time(310)
    assert kinds(made.node("n1")) == [("ghost", "unbound")]


def test_a_pod_that_is_gone_waits_no_longer():
    made = ledger([node(device())], [pod("a", given(), bound=False, phase="Pending")], patience=300)
    made.pass_time(0)
    made.drop_pod("uid-ml-a")
    made.changed()
    made.pass_time(1000)
    assert made.changed().nodes == set()


def test_a_bound_pod_that_asks_for_a_registered_device_and_has_none_is_named():
    one = settled(device(), pod("a", requests={"nvidia.com/gpu": 1, "cpu": 4}))
    assert kinds(one) == [("unallocated-user", "")]
    assert (one.findings[0].pod, one.findings[0].resource) == ("a", "nvidia.com/gpu")


@pytest.mark.parametrize(
    "innocent",
    [
        pod("a", requests={"nvidia.com/gpu": 1}, bound=False),
        pod("a", requests={"nvidia.com/gpu": 1}, phase="Succeeded"),
        pod("a", requests={"nvidia.com/gpu": 0}),
        pod("a", requests={"huawei.com/Ascend910B3": 1}),
        pod("a", given(), requests={"nvidia.com/gpu": 1}),
    ],
    ids=["not bound", "ended", "none asked for", "another vendor", "given one"],
)
def test_these_are_no_unallocated_users(innocent):
    assert "unallocated-user" not in [kind for kind, _ in kinds(settled(device(), innocent))]


def test_where_nothing_is_registered_nobody_expects_an_assignment():
    assert kinds(settled(pod("a", requests={"nvidia.com/gpu": 1}))) == []


def test_a_device_that_vanished_while_held_is_named_once_for_each_pod():
    one = settled(device(), pod("a", given("GPU-gone"), given("GPU-gone", container=1)), pod("b", given("GPU-gone")))
    assert kinds(one) == [("vanished-device", "")] * 2
    assert [(finding.device, finding.pod) for finding in one.findings] == [("GPU-gone", "a"), ("GPU-gone", "b")]
    assert {holder.device for holder in one.holders} == {"GPU-gone"}


def test_a_node_never_seen_keeps_its_holders_and_says_that_it_is_unknown():
    one = ledger([], [pod("a", given(), given("GPU-1"))]).node("n1")
    assert (one.known, len(one.holders), one.devices) == (False, 2, ())
    assert kinds(one) == [("node-unknown", "")]


def test_a_node_that_comes_late_is_as_if_it_had_come_first():
    made = ledger([], [pod("a", given())])
    made.set_node(node(device()))
    assert made.node("n1") == settled(device(), pod("a", given()))


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [({"memory": 7 * GIB}, "memory"), ({"cores": 40}, "cores"), ({"slots": 1}, "slots")],
    ids=["memory", "cores", "slots"],
)
def test_more_than_was_registered_is_over_allocated(gpu, reason):
    held = (given(memory=4 * GIB, cores=25), given(memory=4 * GIB, cores=25, container=1))
    one = settled(device(**gpu), pod("a", *held))
    assert kinds(one) == [("over-allocated", reason)]
    assert one.findings[0].device == "GPU-0"


def test_what_a_vendor_does_not_count_cannot_be_over_allocated():
    assert kinds(settled(device(memory=0, cores=0), pod("a", given(cores=50)))) == []


def test_scaling_above_the_gpu_is_not_over_allocation():
    assert kinds(settled(device(memory=160 * GIB, cores=200), pod("a", given(memory=120 * GIB, cores=150)))) == []


def test_a_kubelet_that_offers_none_of_the_registered_devices_is_named():
    one = settled(device(), allocatable={"nvidia.com/gpu": 0})
    assert kinds(one) == [("kubelet-zero", "")]
    assert (one.findings[0].resource, one.devices[0].lost) == ("nvidia.com/gpu", "kubelet-zero")


@pytest.mark.parametrize("allocatable", [{}, {"nvidia.com/gpu": 10}, {"amd.com/gpu": 0}])
def test_a_kubelet_that_says_otherwise_or_nothing_is_not(allocatable):
    assert kinds(settled(device(), allocatable=allocatable)) == []


def test_a_long_list_is_cut_where_it_hurts_least_and_counted_in_full():
    ended = [pod(f"old-{i:03}", given(), phase="Succeeded") for i in range(100)]
    one = settled(device(), *ended, pod("z", given(), phase="Unknown"))
    assert len(one.findings) == 32
    assert (one.findings[0].pod, one.findings[0].reason) == ("z", "unknown")
    assert {(count.reason, count.count) for count in one.finding_counts} == {("ended", 100), ("unknown", 1)}
