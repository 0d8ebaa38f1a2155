"""The kubelet does not say for whom it asks. A pod that bypassed the scheduler must get nobody else's share.

Each stranger here wants as many GPUs as the victim, which the scheduler has placed, locked and bound.
"""

import pytest

from tests.services.plugin.pluginrun import ALLOCATED, LOCK, PHASE, TO_ALLOCATE, assigned, lock
from tests.services.plugin.test_allocation import (  # noqa: F401 - world is a fixture
    A,
    B,
    allocate,
    containers,
    directories,
    hung_up,
    refusal,
    registered_again,
    world,
)
from vgpuscope.formats.hami.seal import SEAL, SealKey, Seals
from vgpuscope.model.plugin import KubeletView

pytestmark = pytest.mark.attack
SHARE = f"{A},NVIDIA,4000,30:;"
KEYS, OTHER = (Seals([SealKey("k", letter * 32, 0.0)]) for letter in (b"x", b"y"))


def kubelet_knows(world, *names, holding=()):  # noqa: F811
    pods = frozenset(("ml", name) for name in names)
    world.kubelet.knows = KubeletView(pods=pods, holding=frozenset(("ml", name, "main") for name in holding))


def victim(world):  # noqa: F811
    world.api.pod("victim", assigned(SHARE))
    world.api.annotate("nodes", "n1", **lock("victim"))


def untouched(world) -> bool:  # noqa: F811
    """Whether the victim's assignment waits for it as before, its node is locked for it, and no directory is there."""
    pod = world.api.annotations("pods", "victim")
    there = world.hook / "containers"
    return (
        (pod[TO_ALLOCATE], pod[PHASE]) == (SHARE, "allocating")
        and world.api.annotations("nodes", "n1")[LOCK].endswith("victim")
        and (not there.exists() or directories(world) == [])
    )


async def victim_is_served(world):  # noqa: F811
    (answer,) = await allocate(world, [f"{A}-0"])
    assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "4000m"
    assert "uid-victim_main" in directories(world)
    assert world.api.annotations("pods", "victim")[PHASE] == "success"


DISGUISES = {
    "plain": {},
    "served": assigned(";", phase="success"),
    "failed": assigned(SHARE, phase="failed"),
    "elsewhere": assigned(SHARE, node="n2"),
    "bound-before": assigned(SHARE, bound="1"),
}


@pytest.mark.parametrize("disguise", DISGUISES)
async def test_a_pod_that_bypassed_the_scheduler_gets_neither_share_nor_directory(world, disguise):  # noqa: F811
    """The kubelet says nothing of the pods that it knows: nobody gets the share, and the victim's waits for it."""
    victim(world)
    world.api.pod("stranger", DISGUISES[disguise])
    assert (await refusal(world, 1)).startswith("ALLOCATE_AMBIGUOUS")
    assert untouched(world)
    world.api.drop("stranger")  # the kubelet has ended it
    await victim_is_served(world)


@pytest.mark.parametrize("disguise", [name for name in DISGUISES if name != "bound-before"])
async def test_where_the_kubelet_names_its_pods_the_victim_is_served_and_the_stranger_is_not(world, disguise):  # noqa: F811
    victim(world)
    world.api.pod("stranger", DISGUISES[disguise])
    kubelet_knows(world, "stranger")  # it has not seen the victim yet
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")
    assert untouched(world)
    kubelet_knows(world, "stranger", "victim")  # it has not said yet that the stranger failed
    await victim_is_served(world)


async def test_a_stranger_that_wants_another_number_does_not_make_the_victim_fail(world):  # noqa: F811
    victim(world)
    spec = containers("main")
    spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
    world.api.pod("stranger", {}, spec=spec)
    assert (await refusal(world, 2)).startswith("ALLOCATE_POD_UNKNOWN")
    assert untouched(world)
    await victim_is_served(world)


@pytest.mark.parametrize("deleted", ["leaving", "gone"])
async def test_a_stranger_that_is_deleted_while_the_kubelet_asks_for_it_gets_nothing(world, deleted):  # noqa: F811
    victim(world)
    if deleted == "leaving":
        world.api.pod("stranger", {})
        found = world.api.objects["/api/v1/namespaces/ml/pods/stranger"]["metadata"]
        found["deletionTimestamp"] = "2026-11-17T08:00:00Z"
    kubelet_knows(world, "stranger", "victim")
    assert (await refusal(world, 1)).startswith("ALLOCATE_AMBIGUOUS")
    assert untouched(world)


async def test_a_missed_answer_is_not_given_to_the_next_pod_that_asks(world):  # noqa: F811
    await hung_up(world)  # pod p was served and its kubelet did not get the answer
    await registered_again(world)
    world.api.pod("stranger", {})
    said = await refusal(world, 1)
    assert said.startswith("ALLOCATE_AMBIGUOUS")
    kubelet_knows(world, "stranger")
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")
    kubelet_knows(world, "stranger", "p")
    (answer,) = await allocate(world, [f"{B}-0"])
    mounted = next(mount.host_path for mount in answer.mounts if mount.container_path == str(world.hook))
    assert mounted.endswith("uid-p_main")


async def test_a_scheduled_pod_that_says_its_first_container_is_served_does_not_take_another_pods_share(world):  # noqa: F811
    """Its second container wants two GPUs; by emptying the first segment it says that it waits for two."""
    victim(world)
    spec = containers("main", "more")
    spec["containers"][1]["resources"]["limits"]["nvidia.com/gpu"] = 2
    rest = f";{A},NVIDIA,1,0:{B},NVIDIA,1,0:;"
    world.api.pod("tenant", assigned(f"{B},NVIDIA,1,0:{rest}") | {TO_ALLOCATE: rest}, spec=spec)
    assert (await refusal(world, 1)).startswith("ALLOCATE_AMBIGUOUS")
    assert untouched(world)


@pytest.fixture
def sealed(world, monkeypatch):  # noqa: F811
    """The same, where assignments are sealed."""
    monkeypatch.setattr(world.cluster, "_seals", KEYS)
    return world


def seal(name: str, notes: dict[str, str]) -> dict[str, str]:
    return notes | {SEAL: KEYS.seal(f"uid-{name}", notes, bound=True)}


FORGERIES = {
    "no seal": assigned(SHARE),
    "another pod's seal": assigned(SHARE) | {SEAL: seal("victim", assigned(SHARE))[SEAL]},
    "a larger share": seal("p", assigned(SHARE)) | {ALLOCATED: f"{A},NVIDIA,9000,30:;"},
    "another GPU": seal("p", assigned(SHARE)) | {TO_ALLOCATE: f"{B},NVIDIA,4000,30:;"},
    "a larger share to allocate": seal("p", assigned(SHARE)) | {TO_ALLOCATE: f"{A},NVIDIA,9000,30:;"},
    "a larger share in both": seal("p", assigned(SHARE))
    | dict.fromkeys((ALLOCATED, TO_ALLOCATE), f"{A},NVIDIA,9000,30:;"),
    "what was decided and not bound": assigned(SHARE) | {SEAL: KEYS.seal("uid-p", assigned(SHARE), bound=False)},
    "another key": assigned(SHARE) | {SEAL: OTHER.seal("uid-p", assigned(SHARE), bound=True)},
}


@pytest.mark.parametrize("how", FORGERIES)
async def test_an_assignment_that_the_scheduler_did_not_make_is_not_served(sealed, how):
    sealed.api.pod("p", FORGERIES[how])
    assert (await refusal(sealed, 1)).startswith("ALLOCATE_FORGED")
    assert not (sealed.hook / "containers").exists()


async def test_a_sealed_assignment_is_served(sealed):
    sealed.api.pod("p", seal("p", assigned(SHARE)))
    (answer,) = await allocate(sealed, [f"{A}-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == A


async def test_a_container_that_requests_nothing_gets_nothing(world):  # noqa: F811
    """Two segments for three containers go to those that request GPUs, and only one of them does."""
    world.api.pod("p", assigned(f";{A},NVIDIA,1,0:;"), spec=containers("one", "side"))
    assert not (await refusal(world, 1)).startswith("KUBE")
    assert not (world.hook / "containers").exists() or directories(world) == []


async def test_a_pod_of_another_age_needs_a_seal(sealed):
    """The pod was created after the first key; only older ones were assigned without a seal."""
    sealed.api.pod("p", assigned(SHARE))
    sealed.api.objects["/api/v1/namespaces/ml/pods/p"]["metadata"]["creationTimestamp"] = "2026-11-17T08:00:00Z"
    assert (await refusal(sealed, 1)).startswith("ALLOCATE_FORGED")


@pytest.mark.parametrize("world", [True], indirect=True)
async def test_where_gpus_are_given_whole_the_share_of_a_placed_pod_is_not_anothers_either(world):  # noqa: F811
    victim(world)
    world.api.pod("stranger", {})
    assert (await refusal(world, 1)).startswith("ALLOCATE_AMBIGUOUS")
    assert untouched(world)


async def test_a_pod_that_only_the_kubelet_has_known_for_a_minute_stops_nobody(world, monkeypatch):  # noqa: F811
    """A static pod without a mirror at the API server: it is no pod that was deleted while the kubelet asks."""
    victim(world)
    kubelet_knows(world, "victim", "static")
    now = [1705984204.0]
    monkeypatch.setattr(world.allocator, "_clock", lambda: now[0])
    assert (await refusal(world, 1)).startswith("ALLOCATE_AMBIGUOUS")
    now[0] += 61.0
    await victim_is_served(world)


async def test_a_missed_answer_for_one_container_is_not_given_to_a_larger_one_of_the_pod(world):  # noqa: F811
    spec = containers("main", "more")
    spec["containers"][1]["resources"]["limits"]["nvidia.com/gpu"] = 2
    await hung_up(world, text=f"{A},NVIDIA,1,0:;{A},NVIDIA,2,0:{B},NVIDIA,2,0:;", spec=spec)
    await registered_again(world)
    (answer,) = await allocate(world, [f"{A}-1", f"{B}-1"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == f"{A},{B}"
