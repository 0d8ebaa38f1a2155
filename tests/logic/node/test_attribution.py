"""Whose is what, mode by mode."""

import pytest
from msgspec import structs

from tests.logic.node.builders import (
    GIB,
    M1,
    M2,
    A,
    B,
    grant,
    instance,
    ledger,
    make_gpu,
    memory,
    owner,
    pod,
    process,
    region,
    sample,
    share,
    slot,
    usage,
)
from vgpuscope.logic.node.snapshot import NodeTracker
from vgpuscope.model.device import Gpu
from vgpuscope.model.pod import MigAllocation


def test_a_whole_gpu_is_its_holders_down_to_the_last_byte_in_use():
    gpu = make_gpu(used=10 * GIB, processes=(process(1, 9 * GIB, 0.8),), utilization=0.9)
    seen = sample(gpu, owners=[owner(1, "train")], pods=[pod("train")], grants=[grant("train", A)])
    row = usage(seen, "train")
    assert (row.mode, row.state, row.allocated) == ("exclusive", "active", True)
    assert (row.memory, row.sm) == (10 * GIB, 0.9)
    assert seen.gpus[0].holder == row.key


@pytest.mark.parametrize("whole", [True, False])
def test_processes_together_use_no_more_than_there_is_where_only_they_are_measured(whole):
    both = (process(1, GIB, 1.0), process(2, GIB, 1.0))
    held = () if whole else (instance(M1, gi=1, processes=both),)
    gpu = make_gpu(
        used=2 * GIB, utilization=None, mig_enabled=not whole, processes=both if whole else None, instances=held
    )
    row = usage(sample(gpu, owners=[owner(1, "train"), owner(2, "train")], pods=[pod("train")]), "train")
    assert (row.sm, row.instance_sm, row.sm_certainty) == (1.0, None if whole else 1.0, "shared-out")


def test_without_a_process_list_the_sole_holder_has_what_is_in_use():
    gpu = make_gpu(used=10 * GIB, processes=None, utilization=0.9)
    row = usage(sample(gpu, pods=[pod("train")], grants=[grant("train", A)]), "train")
    assert (row.memory, row.memory_method, row.sm, row.sm_method) == (10 * GIB, "podresources", 0.9, "podresources")


@pytest.mark.parametrize(("running", "holders"), [(False, ["main"]), (True, ["main", "prepare"])])
def test_an_init_container_holds_its_share_while_it_runs(running, holders):
    made = pod("train", "prepare", "main", shares=[share("prepare"), share("main")])
    first = structs.replace(made.containers[0], init=True, running=running)
    seen = sample(make_gpu(), pods=[structs.replace(made, containers=(first, made.containers[1]))])
    assert sorted(row.key.container for row in seen.containers) == holders


@pytest.mark.parametrize("id_", [A, f"{A}-3"])
@pytest.mark.parametrize(("sidecar", "holders"), [(False, ["main"]), (True, ["main", "prepare"])])
def test_an_init_container_that_has_ended_holds_nothing_and_its_region_is_no_dispute(id_, sidecar, holders):
    """Its region and what the kubelet gave it stay until the pod is gone. A sidecar runs again."""
    made = pod("train", "prepare", "main", shares=[share("prepare"), share("main")], assigned=True)
    first = structs.replace(made.containers[0], init=True, sidecar=sidecar, running=False)
    seen = sample(
        make_gpu(processes=()),
        pods=[structs.replace(made, containers=(first, made.containers[1]))],
        grants=[grant("train", id_), grant("train", id_, container="prepare")],
        regions=[region("train", slot(0), container="prepare"), region("train", slot(0))],
    )
    assert sorted(row.key.container for row in seen.containers) == holders
    assert seen.disputes == ()


def test_a_holder_that_has_not_started_is_given_nothing_it_did_not_use():
    gpu = make_gpu(used=GIB, utilization=0.2, processes=(process(5, GIB, 0.2),))
    seen = sample(gpu, owners=[owner(5)], pods=[pod("train")], grants=[grant("train", A)])
    row = usage(seen, "train")
    assert (row.state, row.memory, row.sm) == ("not-started", None, None)
    assert ledger(seen).memory.system == 2 * GIB  # the host's process and what the driver reserves


def test_two_hami_containers_get_what_the_driver_says_of_their_processes():
    gpu = make_gpu(used=12 * GIB, utilization=0.9, processes=(process(11, 4 * GIB, 0.3), process(12, 6 * GIB, 0.5)))
    seen = sample(
        gpu,
        regions=[region("a", slot(11, 3 * GIB), limit=8 * GIB), region("b", slot(12, 5 * GIB))],
        pods=[pod("a", shares=[share()]), pod("b", shares=[share()])],
        owners=[owner(11, "a"), owner(12, "b")],
    )
    a, b = usage(seen, "a"), usage(seen, "b")
    assert (a.memory, a.memory_method, a.sm) == (4 * GIB, "hami-region", 0.3)
    assert (b.memory, b.sm, b.mode) == (6 * GIB, 0.5, "hami")
    assert (a.memory_total, b.memory_total) == (8 * GIB, 8 * GIB)  # as assigned, whatever the region says
    assert ledger(seen).memory.unattributed == 2 * GIB


def test_where_host_pids_are_unknown_the_region_speaks_for_its_container():
    gpu = make_gpu(used=12 * GIB, utilization=0.9, processes=(process(11, 4 * GIB, 0.3),))
    seen = sample(gpu, regions=[region("a", slot(0, 3 * GIB, 0.25))], pods=[pod("a", shares=[share()])])
    row = usage(seen, "a")
    assert (row.memory, row.memory_method, row.sm, row.sm_method) == (3 * GIB, "hami-region", 0.25, "hami-region")


def test_a_process_in_both_region_and_cgroup_is_counted_once():
    gpu = make_gpu(used=5 * GIB, utilization=0.5, processes=(process(11, 4 * GIB, 0.5),))
    seen = sample(
        gpu, regions=[region("a", slot(11, 4 * GIB, 0.5))], pods=[pod("a", shares=[share()])], owners=[owner(11, "a")]
    )
    assert usage(seen, "a").memory == 4 * GIB
    assert usage(seen, "a").processes == 1


def test_a_reused_pid_is_not_the_container_that_once_had_it():
    gpu = make_gpu(used=5 * GIB, processes=(process(11, 4 * GIB),))
    seen = sample(
        gpu,
        regions=[region("a", slot(11, 4 * GIB))],
        pods=[pod("a", shares=[share()]), pod("b")],
        owners=[owner(11, "b")],
    )
    assert usage(seen, "a").memory == 0
    assert (usage(seen, "b").memory, usage(seen, "b").allocated) == (4 * GIB, False)
    assert seen.tally.corrections["dead-process"] == 1


def test_a_pod_that_uses_a_gpu_nobody_gave_it_is_shown_as_such():
    gpu = make_gpu(used=GIB, processes=(process(3, GIB, 0.0),))
    row = usage(sample(gpu, owners=[owner(3, "sneaky")], pods=[pod("sneaky")]), "sneaky")
    assert (row.mode, row.allocated, row.state) == ("unallocated", False, "idle")


def test_the_mps_server_is_the_systems_and_its_clients_their_own():
    gpu = make_gpu(
        used=5 * GIB,
        utilization=0.6,
        processes=(process(1, GIB), process(2, 2 * GIB, 0.2, ("mps", "compute")), process(3, GIB, 0.4, ("mps",))),
    )
    seen = sample(
        gpu,
        owners=[owner(1, "mps-daemon", command="nvidia-cuda-mps"), owner(2, "a"), owner(3, "b")],
        pods=[pod("a"), pod("b"), pod("mps-daemon")],
        grants=[grant("a", f"{A}::0"), grant("b", f"{A}::1")],
    )
    assert {u.key.pod: (u.mode, u.memory, u.sm) for u in seen.containers} == {
        "a": ("mps", 2 * GIB, 0.2),
        "b": ("mps", GIB, 0.4),
    }
    assert ledger(seen).memory.system == 2 * GIB


def test_time_slicing_never_copies_the_gpus_number_to_its_pods():
    gpu = make_gpu(used=6 * GIB, utilization=0.7, processes=(process(1, 2 * GIB, 0.3), process(2, 3 * GIB, 0.4)))
    seen = sample(
        gpu,
        owners=[owner(1, "a"), owner(2, "b")],
        pods=[pod("a"), pod("b"), pod("c")],
        grants=[grant("a", f"{A}::0"), grant("b", f"{A}::1"), grant("c", f"{A}::2")],
        ratio=4,
    )
    assert [usage(seen, p).sm for p in "abc"] == [0.3, 0.4, None]
    assert [usage(seen, p).state for p in "abc"] == ["active", "active", "not-started"]
    assert usage(seen, "c").memory_total == 20 * GIB
    assert seen.gpus[0].mode == "time-slicing"


def test_time_sliced_processes_without_numbers_stay_unattributed():
    gpu = make_gpu(used=6 * GIB, utilization=0.7, processes=(process(1), process(2)))
    seen = sample(
        gpu,
        owners=[owner(1, "a"), owner(2, "b")],
        pods=[pod("a"), pod("b")],
        grants=[grant("a", f"{A}::0"), grant("b", f"{A}::1")],
    )
    assert [(u.memory, u.sm, u.state) for u in seen.containers] == [(None, None, "unknown")] * 2
    assert ledger(seen).memory.unattributed == 6 * GIB


def test_claims_beyond_what_is_in_use_are_cut_in_proportion_and_counted():
    gpu = make_gpu(used=6 * GIB, utilization=0.5, processes=(process(1, 6 * GIB, 0.6), process(2, 6 * GIB, 0.4)))
    seen = sample(gpu, owners=[owner(1, "a"), owner(2, "b")], pods=[pod("a"), pod("b")])
    assert [usage(seen, p).memory for p in "ab"] == [3 * GIB, 3 * GIB]
    assert [round(usage(seen, p).sm, 6) for p in "ab"] == [0.3, 0.2]
    assert seen.tally.scaled == {"memory": 1, "sm": 1}


def test_a_mig_instance_is_its_holders():
    held = instance(M1, gi=1, used=3 * GIB, processes=(process(1, 2 * GIB),))
    free = instance(M2, gi=5, index=3)
    gpu = make_gpu(used=3 * GIB, mig_enabled=True, utilization=None, processes=None, instances=(held, free))
    seen = sample(gpu, owners=[owner(1, "a")], pods=[pod("a")], grants=[grant("a", M1)])
    row = usage(seen, "a")
    assert (row.mode, row.mig, row.memory, row.memory_method) == ("mig", M1, 3 * GIB, "mig")
    assert (row.memory_total, row.sm, row.state) == (10 * GIB, None, "unknown")
    assert ledger(seen, mig=M2).memory.free == 10 * GIB


def test_compute_instances_of_one_gpu_instance_share_its_memory_once():
    one = instance(M1, gi=1, ci=0, used=5 * GIB, processes=(process(1, 2 * GIB),))
    two = instance(M2, gi=1, ci=1, used=5 * GIB, processes=(process(2, 3 * GIB),), index=1)
    gpu = make_gpu(used=5 * GIB, mig_enabled=True, utilization=None, processes=None, instances=(one, two))
    seen = sample(
        gpu,
        owners=[owner(1, "a"), owner(2, "b")],
        pods=[pod("a"), pod("b")],
        grants=[grant("a", M1), grant("b", M2)],
    )
    assert [usage(seen, p).memory for p in "ab"] == [2 * GIB, 3 * GIB]
    assert ledger(seen).memory.containers == 5 * GIB


def test_hamis_mig_annotation_names_the_holder():
    gpu = make_gpu(mig_enabled=True, utilization=None, processes=None, instances=(instance(M1, gi=13),))
    given = MigAllocation(
        container_index=0, device_index=0, gpu=A, profile="1g.10gb", mig=M1, gpu_instance=13, compute_instance=0
    )
    seen = sample(gpu, pods=[pod("a", migs=(given,))])
    assert usage(seen, "a").mig == M1
    assert (seen.migs[0].key.container, seen.migs[0].gpu_instance) == ("main", 13)


def test_a_dra_claim_is_found_by_the_gpus_minor_number():
    gpu = make_gpu(uuid=B, index=0, minor=3, used=GIB, processes=(process(1, GIB, 0.1),))
    claim = grant("a", "gpu-3", resource="gpu.nvidia.com", claim="ml/one")
    seen = sample(gpu, owners=[owner(1, "a")], pods=[pod("a")], grants=[claim])
    assert (usage(seen, "a").gpu, usage(seen, "a").mode) == (B, "exclusive")


def test_a_claim_of_hamis_driver_finds_its_holder():
    gpus = (
        make_gpu(uuid=B, index=0, minor=3, used=GIB, processes=(process(1, GIB, 0.1),)),
        make_gpu(uuid=A, index=1, minor=0),
    )
    claim = grant("a", "hami-gpu-3", resource="hami-core-gpu.project-hami.io", claim="ml/one")
    seen = sample(*gpus, owners=[owner(1, "a")], pods=[pod("a")], grants=[claim])
    assert (usage(seen, "a").gpu, usage(seen, "a").mode, usage(seen, "a").allocated) == (B, "hami", True)


def in_instances(*instances, **more):
    """A MIG GPU whose holder was given a device by this name of NVIDIA's DRA driver."""
    gpus = (
        make_gpu(uuid=B, index=0, minor=3, mig_enabled=True, utilization=None, processes=None, instances=instances),
        make_gpu(uuid=A, index=1, minor=0),
    )

    def held(name):
        claim = grant("a", name, resource="gpu.nvidia.com", claim="ml/one")
        seen = sample(*gpus, pods=[pod("a")], grants=[claim], **more)
        return [(u.gpu, u.mig, u.mode) for u in seen.containers]

    return held


def test_a_claim_of_a_mig_instance_finds_its_holder_by_profile_and_place():
    held = in_instances(
        instance(M1, gi=11, profile_id=19, start=4),
        instance(M2, gi=12, profile_id=19, start=5, index=1),
        instance("MIG-me", gi=13, profile="1g.10gb+me", profile_id=20, start=6, index=2),
    )
    assert held("gpu-3-mig-1g10gb-19-4") == [(B, M1, "mig")]
    assert held("gpu-3-mig-1g10gb-19-5") == [(B, M2, "mig")]
    assert held("gpu-3-mig-1g10gb-me-20-6") == [(B, "MIG-me", "mig")]
    assert held("gpu-3-mig-19-5-1") == [(B, M2, "mig")]  # as releases before 25.12 name it: profile, start, size
    assert held("gpu-3-mig-1g10gb-19-0") == []
    assert held("gpu-0-mig-1g10gb-19-4") == []


def test_where_the_driver_does_not_tell_places_a_profile_that_is_there_once_is_enough():
    held = in_instances(instance(M1, gi=1, profile="3g.40gb"), instance(M2, gi=12, index=1))
    assert held("gpu-3-mig-3g40gb-9-0") == [(B, M1, "mig")]
    assert held("gpu-3-mig-1g10gb-19-5") == [(B, M2, "mig")]


def test_of_two_instances_that_cannot_be_told_apart_none_is_guessed():
    held = in_instances(instance(M1, gi=11), instance(M2, gi=12, index=1))
    assert held("gpu-3-mig-1g10gb-19-5") == []


def test_a_claim_of_two_pods_is_shared():
    gpu = make_gpu(minor=0)
    claims = [grant(p, "gpu-0", resource="gpu.nvidia.com", claim="ml/one") for p in "ab"]
    seen = sample(gpu, pods=[pod("a"), pod("b")], grants=claims)
    assert {u.mode for u in seen.containers} == {"time-slicing"}


def test_a_whole_gpu_of_our_own_plugin_has_a_holder_although_its_id_looks_like_a_share():
    working = make_gpu(used=GIB, processes=(process(1, GIB, 0.4),))
    seen = sample(
        working,
        make_gpu(B, index=1),
        owners=[owner(1, "train")],
        pods=[pod("train"), pod("waits")],
        grants=[grant("train", f"{A}-0"), grant("waits", f"{B}-0")],
    )
    rows = {u.key.pod: (u.gpu, u.mode, u.allocated, u.memory) for u in seen.containers}
    assert rows == {"train": (A, "exclusive", True, GIB), "waits": (B, "exclusive", True, None)}
    assert [gpu.holder.pod for gpu in seen.gpus] == ["train", "waits"]


@pytest.mark.parametrize(
    ("id_", "found"),
    [
        (f"{A}-0", pod("a", assigned=True)),  # its annotation cannot be read
        (f"{A}-3", pod("a")),  # one of several shares: no plugin gives such a one to a pod without an assignment
        (f"{M1}-0", pod("a")),
    ],
)
def test_a_share_names_no_gpu(id_, found):
    seen = sample(make_gpu(processes=()), pods=[found], grants=[grant("a", id_)])
    assert seen.containers == ()


def test_the_annotation_takes_precedence_over_the_kubelets_choice():
    placed = pod("a", shares=[share(gpu=B)], assigned=True)
    seen = sample(make_gpu(), make_gpu(B, index=1), pods=[placed], grants=[grant("a", f"{A}-0")])
    assert [(u.gpu, u.mode) for u in seen.containers] == [(B, "hami")]


def test_without_kubernetes_a_docker_container_is_shown_by_its_id():
    gpu = make_gpu(used=GIB, processes=(process(1, GIB, 0.1),))
    alone = structs.replace(owner(1), container_id="9f8e7d6c5b4a39281706")
    seen = sample(gpu, owners=[alone], pods=None, grants=None)
    assert [u.key.container for u in seen.containers] == ["9f8e7d6c5b4a"]


def test_without_pods_the_kubelets_names_are_joined_to_the_processes_of_a_whole_gpu():
    gpu = make_gpu(used=GIB, processes=(process(1, GIB, 0.1),))
    seen = sample(gpu, owners=[owner(1, "a")], pods=None, grants=[grant("a", A)])
    row = usage(seen, "a")
    assert (row.processes, row.memory, row.mode) == (1, GIB, "exclusive")
    assert len(seen.containers) == 1


def test_a_pod_that_ended_holds_nothing():
    seen = sample(
        make_gpu(),
        pods=[pod("a", phase="Succeeded", shares=[share()])],
        grants=[grant("a", A)],
        regions=[region("a", slot(0, GIB))],
    )
    assert (seen.containers, seen.vgpus, seen.regions_orphaned) == ((), (), 1)


def test_unknown_memory_of_a_gpu_leaves_its_rows_and_no_ledger():
    gpu = make_gpu(memory=None, utilization=None, processes=(process(1, GIB, 0.1),))
    seen = sample(gpu, owners=[owner(1, "a")], pods=[pod("a")], grants=[grant("a", A)])
    assert (usage(seen, "a").memory, usage(seen, "a").sm) == (GIB, 0.1)
    assert (ledger(seen).memory, ledger(seen).sm_seconds) == (None, None)


def test_a_gpu_the_driver_does_not_show_keeps_its_regions_rows():
    seen = sample(regions=[region("a", slot(0, GIB, 0.2))], pods=[pod("a", shares=[share()])])
    assert (usage(seen, "a").memory, usage(seen, "a").sm) == (GIB, 0.2)


def test_started_and_gone_quiet_is_idle_and_never_started_is_not():
    mind = NodeTracker(node="n1", window=60.0)
    given = {"pods": [pod("a")], "grants": [grant("a", A)], "mind": mind}
    assert usage(sample(make_gpu(), at=1.0, **given), "a").state == "not-started"
    running = make_gpu(used=GIB, processes=(process(1, GIB, 0.4),), utilization=0.4)
    assert usage(sample(running, at=2.0, owners=[owner(1, "a")], **given), "a").state == "active"
    quiet = usage(sample(make_gpu(), at=3.0, **given), "a")
    assert (quiet.state, quiet.memory, quiet.sm) == ("idle", 0, 0.0)
    assert sample(make_gpu(), at=4.0, mind=mind).containers == ()


def test_while_a_gpu_does_not_answer_nobody_is_called_idle_or_ended():
    mind = NodeTracker(node="n1", window=60.0)
    given = {"pods": [pod("a")], "grants": [grant("a", A)], "mind": mind}
    who = {"owners": [owner(1, "a"), owner(2, "b")]}
    running = make_gpu(used=3 * GIB, processes=(process(1, GIB, 0.4), process(2, GIB, 0.1)), utilization=0.5)
    for at in (1.0, 2.0):
        sample(running, at=at, **who, **given)
    silent = sample(Gpu(uuid=A, index=0, model="m", health="unresponsive"), at=3.0, **given)
    assert (usage(silent, "a").state, usage(silent, "a").processes, silent.tally.ended) == ("unknown", None, 0)
    back = sample(running, at=4.0, **who, **given)
    assert usage(back, "a").sm_seconds == pytest.approx(0.4 * 2)
    assert back.gpus[0].utilization_burst.max == 0.5


def test_the_same_pod_name_in_two_namespaces_stays_two_pods():
    gpu = make_gpu(used=2 * GIB, processes=(process(1, GIB), process(2, GIB)))
    twins = [
        structs.replace(pod("a"), uid="uid-x", namespace="x", containers=()),
        structs.replace(pod("a"), uid="uid-y", namespace="y", containers=()),
    ]
    owners = [structs.replace(owner(1, "a"), pod_uid="uid-x"), structs.replace(owner(2, "a"), pod_uid="uid-y")]
    seen = sample(gpu, owners=owners, pods=twins)
    assert {(p.namespace, p.pod, p.memory) for p in seen.pods} == {("x", "a", GIB), ("y", "a", GIB)}


def test_all_containers_of_a_pod_add_up_in_the_pod():
    gpu = make_gpu(used=3 * GIB, utilization=0.5, processes=(process(1, GIB, 0.1), process(2, 2 * GIB, 0.4)))
    seen = sample(
        gpu,
        regions=[
            region("a", slot(1, GIB), limit=4 * GIB, container="x"),
            region("a", slot(2, 2 * GIB), limit=6 * GIB, container="y"),
        ],
        pods=[pod("a", "x", "y", shares=[share("x", memory=4 * GIB), share("y", memory=6 * GIB)])],
        owners=[owner(1, "a", "x"), owner(2, "a", "y")],
    )
    (one,) = seen.pods
    assert (one.memory, one.memory_total, one.sm, one.gpu_index) == (3 * GIB, 10 * GIB, 0.5, 0)


def test_old_drivers_that_hide_reserved_memory_still_add_up():
    hidden = structs.replace(memory(used=GIB), reserved=None, free=79 * GIB)
    split = ledger(sample(make_gpu(memory=hidden))).memory
    assert (split.unattributed, split.system, split.free) == (GIB, 0, 79 * GIB)
