"""Containers beside their GPU: which are looked at, and what follows from the kernel's counters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.catalog.limits import HOST_CONTAINERS
from vgpuscope.logic.node.holdings import PodIndex
from vgpuscope.logic.node.host_accounts import HostAccounts, sought
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.host import CgroupCounts, CpuTimes, NodeHost
from vgpuscope.model.pod import Container, Pod, ProcessOwner
from vgpuscope.model.usage import ContainerUsage

UID, ID, OTHER = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340", "a" * 64, "b" * 64
KEY = ContainerKey(namespace="ml", pod="train", pod_uid=UID, container="main")
POD = Pod(uid=UID, namespace="ml", name="train", containers=(Container(name="main", id=ID),))


def usage(key=KEY, gpu="GPU-0"):
    return ContainerUsage(key=key, gpu=gpu, mode="exclusive", state="idle", allocated=True)


def counts(seconds=None, **more):
    return CgroupCounts(place="/a", cpu_seconds=seconds, **more)


def settle(accounts, at, *args, **more):
    (use,) = accounts.settle({KEY: counts(*args, **more)}, at)
    return use


# ── which ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_container_on_many_gpus_is_looked_at_once():
    found = sought([usage(gpu=f"GPU-{n}") for n in range(8)], {}, PodIndex((POD,)))
    assert [one.key for one in found] == [KEY]
    assert found[0].container_id == ID
    assert found[0].pod_uids == (UID,)


def test_only_containers_that_hold_a_gpu_are_looked_at():
    beside = ProcessOwner(pid=7, start_time=1, pod_uid=UID, container_id=OTHER)
    pod = replace(POD, containers=(*POD.containers, Container(name="sidecar", id=OTHER)))
    (found,) = sought([usage()], {7: beside}, PodIndex((pod,)))
    assert (found.key, found.pids) == (KEY, ())


def test_the_kernel_s_word_on_which_container_runs_comes_before_the_pod_s_status():
    pod = replace(POD, containers=(Container(name="main", id=None),))
    owner = ProcessOwner(pid=7, start_time=1, pod_uid=UID, container_id=OTHER)
    (found,) = sought([usage()], {7: owner}, PodIndex((pod,)))
    assert (found.container_id, found.pids) == (OTHER, (7,))


def test_a_static_pod_is_looked_for_by_its_hash_too():
    pod = replace(POD, config_hash="36b6d6be73b1065af369b3985edafa09")
    assert sought([usage()], {}, PodIndex((pod,)))[0].pod_uids == (UID, "36b6d6be73b1065af369b3985edafa09")


def test_there_is_an_upper_bound():
    many = [usage(replace(KEY, container=f"c{n}")) for n in range(HOST_CONTAINERS.most + 5)]
    assert len(sought(many, None, PodIndex(None))) == HOST_CONTAINERS.most


# ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_look_shows_no_rate():
    assert settle(HostAccounts(60), 100.0, 5.0).cpu_cores is None


def test_cpu_use_is_the_mean_over_the_window():
    accounts = HostAccounts(60)
    rates = [settle(accounts, 5.0 * n, 5.0 * n * (4 if n <= 12 else 0) + (240 if n > 12 else 0)) for n in range(40)]
    assert rates[12].cpu_cores == pytest.approx(4.0)
    assert rates[24].cpu_cores == pytest.approx(0.0, abs=1e-9)


def test_a_counter_that_falls_is_absent_once_and_counted():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 100.0, read_bytes=50)
    fallen = settle(accounts, 5.0, 3.0, read_bytes=60)
    assert (fallen.cpu_seconds, fallen.cpu_cores, fallen.read_bytes) == (None, None, 60)
    assert accounts.backwards == 1
    assert settle(accounts, 10.0, 8.0).cpu_seconds == 8.0
    assert settle(accounts, 15.0, 13.0).cpu_cores == pytest.approx(1.0)


def test_a_restarted_container_begins_anew_and_is_no_fault():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 100.0)
    (use,) = accounts.settle({KEY: CgroupCounts(place="/b", cpu_seconds=1.0)}, 5.0)
    assert (use.cpu_seconds, use.cpu_cores, accounts.backwards) == (1.0, None, 0)


def test_a_missed_look_is_not_bridged():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 0.0)
    assert settle(accounts, 5.0, None).cpu_cores is None
    assert settle(accounts, 10.0, 100.0).cpu_cores is None


def test_the_working_set_leaves_out_what_can_be_dropped():
    assert settle(HostAccounts(60), 0.0, memory=100, memory_inactive=30).memory_working_set == 70
    assert settle(HostAccounts(60), 0.0, memory=100).memory_working_set is None
    assert settle(HostAccounts(60), 0.0, memory=10, memory_inactive=30).memory_working_set == 0


looks = st.lists(st.tuples(st.floats(0.1, 100), st.none() | st.floats(0, 1e6)), min_size=1, max_size=30)


@given(looks)
def test_a_rate_is_never_negative_and_never_made_from_nothing(history):
    accounts, at = HostAccounts(60), 0.0
    for pause, seconds in history:
        at += pause
        use = settle(accounts, at, seconds)
        assert use.cpu_cores is None or use.cpu_cores >= 0
        assert not (seconds is None and use.cpu_cores is not None)


@given(looks)
def test_what_is_remembered_is_bounded(history):
    accounts, at = HostAccounts(60), 0.0
    for _, seconds in history * 3:
        at += 5.0
        settle(accounts, at, seconds)
    assert len(accounts._past[KEY].looks._found) <= 14
    accounts.settle({}, at)
    assert not accounts._past


def test_throttling_is_the_share_of_periods_over_the_window():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 0.0, periods=1000, throttled_periods=900)
    use = settle(accounts, 10.0, 5.0, periods=1100, throttled_periods=925)
    assert (use.over, use.throttled) == (10.0, 0.25)


def test_without_a_limit_that_applied_nothing_is_said_of_throttling():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 0.0, periods=0, throttled_periods=0)
    assert settle(accounts, 10.0, 5.0, periods=0, throttled_periods=0).throttled is None


def test_io_and_network_are_rates_over_the_window_and_absent_where_they_are_not_counted():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 0.0, read_bytes=100, sent_bytes=7)
    use = settle(accounts, 10.0, 5.0, read_bytes=600, sent_bytes=7)
    assert (use.read_rate, use.sent_rate) == (50.0, 0.0)
    assert (use.written_rate, use.received_rate) == (None, None)


def test_a_counter_that_falls_leaves_no_rate_until_two_more_looks():
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 9.0, read_bytes=500)
    assert settle(accounts, 5.0, 10.0, read_bytes=20).read_rate is None
    assert settle(accounts, 10.0, 11.0, read_bytes=30).read_rate is None
    assert settle(accounts, 15.0, 12.0, read_bytes=40).read_rate == pytest.approx(2.0)


def node(user, idle, iowait=0.0):
    return NodeHost(cpus=4, cpu=CpuTimes(user=user, system=0.0, iowait=iowait, steal=0.0, idle=idle))


def test_the_node_s_cpu_use_is_what_is_neither_idle_nor_waiting():
    accounts = HostAccounts(60)
    assert accounts.node(node(100.0, 900.0), 0.0).cpu_used is None
    found = accounts.node(node(110.0, 928.0, 2.0), 10.0)
    assert found.over == 10.0
    assert (found.cpu_used, found.iowait) == pytest.approx((0.25, 0.05))


def test_a_node_that_was_started_again_has_no_use_until_two_looks():
    accounts = HostAccounts(60)
    accounts.node(node(100.0, 900.0), 0.0)
    assert accounts.node(node(1.0, 9.0), 5.0).cpu_used is None
    assert accounts.node(node(2.0, 10.0), 10.0).cpu_used is None
    assert accounts.node(node(3.0, 11.0), 15.0).cpu_used == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20))
def test_the_node_s_shares_are_never_outside_0_to_1(times):
    accounts = HostAccounts(60)
    for at, (user, idle, iowait) in enumerate(times):
        found = accounts.node(node(user, idle, iowait), float(at))
        assert found.cpu_used is None or 0.0 <= found.cpu_used <= 1.0
        assert found.iowait is None or 0.0 <= found.iowait <= 1.0


def test_a_counter_that_falls_costs_only_its_own_rate():
    """A container's disk is detached, and its CPU use goes on."""
    accounts = HostAccounts(60)
    settle(accounts, 0.0, 9.0, read_bytes=500)
    use = settle(accounts, 5.0, 19.0, read_bytes=20)
    assert (use.cpu_cores, use.read_rate) == (2.0, None)
