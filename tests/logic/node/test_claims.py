"""Devices of ResourceClaims on the node: which GPU a name means, and who holds it.

The slices are recorded; the expected UUIDs are written out here, read from these files by a person.
"""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.node.builders import instance, make_gpu, pod, sample, usage
from tests.paths import TESTS
from vgpuscope.formats.kube.dra import decode_slices
from vgpuscope.logic.node.claims import ClaimCache
from vgpuscope.logic.node.holdings import PodIndex
from vgpuscope.logic.node.host_accounts import sought
from vgpuscope.model.dra import AllocatedClaim, ClaimedDevice, DraDevice, SliceState
from vgpuscope.model.pod import ClaimUse, Container, Grant, Pod

GIB = 1024**3
NVIDIA, HAMI = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
FIRST, SECOND = "GPU-3f1c5a02-7c1e-4b6a-9d54-0d1f6a2b7c10", "GPU-a7d84b1e-52f0-46c9-8be3-9c7d1e5f2a34"
STATIC = "MIG-5b7e2c90-8a13-5d6f-b3c4-1f2e3d4c5b6a"  # gpu-0-mig-1g10gb-19-4
OTHER_STATIC = "MIG-c1d2e3f4-0a1b-5c2d-8e3f-4a5b6c7d8e9f"  # gpu-0-mig-1g10gb-19-5


def slices(*names):
    return [one for name in names for one in decode_slices((TESTS / f"fixtures/dra/{name}.json").read_bytes()).items]


def granted(name, device, claim="c", *, driver=NVIDIA, pool="n1", container="main"):
    return Grant(
        namespace="ml",
        pod=name,
        container=container,
        resource=driver,
        device_id=device,
        claim=f"ml/{claim}",
        pool=pool,
    )


def of(device, *, driver=NVIDIA, pool="n1", **more):
    return ClaimedDevice(driver=driver, pool=pool, device=device, request="gpu", **more)


def holding(*devices, **more):
    return AllocatedClaim(devices=devices, **more)


def book_of(published, **claims):
    cache = ClaimCache("n1")
    cache.take_slices(published)
    cache.take_claims({f"ml/{name}": claim for name, claim in claims.items()})
    return cache


def held(cache, grants, *gpus, pods=None):
    """Who holds what, as the agent shows it."""
    pods = [pod(name) for name in {one.pod: None for one in grants}] if pods is None else pods
    found = sample(*gpus, pods=pods, grants=cache.resolve(grants))
    return {(u.key.pod, u.key.container, u.mig or u.gpu, u.mode) for u in found.containers if u.allocated}


def test_a_gpu_is_found_by_the_uuid_that_its_driver_publishes_and_not_by_the_number_in_its_name():
    renumbered = make_gpu(FIRST, index=5), make_gpu(SECOND, index=0)  # a GPU before them was taken out
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")))
    assert held(cache, [granted("a", "gpu-0")], *renumbered) == {("a", "main", FIRST, "exclusive")}


def test_a_name_of_any_form_is_understood():
    (published,) = slices("nvidia_gpus")
    renamed = replace(published, devices=tuple(replace(one, name=f"x-{one.index}") for one in published.devices))
    cache = book_of([renamed], c=holding(of("x-1")))
    assert held(cache, [granted("a", "x-1")], make_gpu(FIRST), make_gpu(SECOND, index=1)) == {
        ("a", "main", SECOND, "exclusive")
    }


def test_an_instance_that_existed_before_is_found_by_its_own_uuid():
    gpu = make_gpu(FIRST, mig_enabled=True, instances=(instance(OTHER_STATIC, gi=9), instance(STATIC, gi=7)))
    cache = book_of(slices("nvidia_static_mig"), c=holding(of("gpu-0-mig-1g10gb-19-4")))
    assert held(cache, [granted("a", "gpu-0-mig-1g10gb-19-4")], gpu) == {("a", "main", STATIC, "mig")}


def test_an_instance_made_for_a_claim_is_found_by_its_placement_while_it_exists():
    cache = book_of(slices("nvidia_dynamic_mig"), c=holding(of("gpu-0-mig-1g10gb-19-1")))
    claim = [granted("a", "gpu-0-mig-1g10gb-19-1")]
    beside = instance("MIG-0", gi=7, start=0, size=1)
    before = make_gpu(FIRST, index=3, mig_enabled=True, instances=(beside,))
    assert held(cache, claim, before) == set()  # not made yet: the one beside it is not taken for it
    made = make_gpu(
        FIRST, index=3, mig_enabled=True, instances=(beside, instance("MIG-1", gi=8, start=1, size=1, index=1))
    )
    assert held(cache, claim, made) == {("a", "main", "MIG-1", "mig")}
    again = make_gpu(FIRST, index=3, mig_enabled=True, instances=(instance("MIG-2", gi=8, start=1, size=1),))
    assert held(cache, claim, again) == {("a", "main", "MIG-2", "mig")}


def test_without_placements_an_instance_is_found_only_if_its_profile_is_unique():
    cache = book_of(slices("nvidia_dynamic_mig"), c=holding(of("gpu-0-mig-1g10gb-19-1")))
    claim = [granted("a", "gpu-0-mig-1g10gb-19-1")]
    one, two = instance("MIG-0", gi=7), instance("MIG-1", gi=8, index=1)
    assert held(cache, claim, make_gpu(FIRST, mig_enabled=True, instances=(one,))) == {("a", "main", "MIG-0", "mig")}
    assert held(cache, claim, make_gpu(FIRST, mig_enabled=True, instances=(one, two))) == set()


def test_a_share_by_hamis_driver_has_the_memory_that_its_claim_consumes():
    shares = [of("hami-gpu-0", driver=HAMI, memory=memory * GIB) for memory in (10, 4)]
    cache = book_of(slices("hami_core"), c=holding(shares[0]), d=holding(shares[1]))
    claims = [granted(name, "hami-gpu-0", claim, driver=HAMI) for name, claim in (("a", "c"), ("b", "d"))]
    found = sample(make_gpu(FIRST, index=2), pods=[pod("a"), pod("b")], grants=cache.resolve(claims))
    assert {(u.key.pod, u.mode, u.memory_total) for u in found.containers} == {
        ("a", "hami", 10 * GIB),
        ("b", "hami", 4 * GIB),
    }


def test_two_claims_of_one_container_on_one_gpu_add_up():
    one, two = (of("hami-gpu-0", driver=HAMI, memory=memory * GIB) for memory in (10, 4))
    cache = book_of(slices("hami_core"), c=holding(one, one), d=holding(two))
    claims = [granted("a", "hami-gpu-0", name, driver=HAMI) for name in "cd"]
    assert usage(sample(make_gpu(FIRST), pods=[pod("a")], grants=cache.resolve(claims)), "a").memory_total == 24 * GIB


def test_pods_that_share_a_claim_all_hold_its_gpu():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")))
    claims = [granted("a", "gpu-0"), granted("b", "gpu-0")]
    assert held(cache, claims, make_gpu(FIRST)) == {
        ("a", "main", FIRST, "time-slicing"),
        ("b", "main", FIRST, "time-slicing"),
    }


def test_admin_access_is_no_allocation_and_leaves_the_gpu_to_its_holder():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")), look=holding(admin=(of("gpu-0"), of("gpu-1"))))
    claims = [granted("a", "gpu-0"), granted("watcher", "gpu-0", "look"), granted("watcher", "gpu-1", "look")]
    assert held(cache, claims, make_gpu(FIRST), make_gpu(SECOND, index=1)) == {("a", "main", FIRST, "exclusive")}


def test_a_claim_with_both_kinds_of_access_holds_what_is_not_for_looking():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0"), admin=(of("gpu-0"), of("gpu-1"))))
    claims = [granted("a", "gpu-0"), granted("a", "gpu-1")]
    assert held(cache, claims, make_gpu(FIRST), make_gpu(SECOND, index=1)) == {("a", "main", FIRST, "exclusive")}


def test_slices_of_another_node_say_nothing_of_this_one():
    (here,) = slices("nvidia_gpus")
    there = tuple(replace(one, node="n2", uuid="GPU-far") for one in here.devices)
    cache = book_of([replace(here, name="zz", devices=there)], c=holding(of("gpu-0")))
    assert cache.unknown_devices([granted("a", "gpu-0")]) == {(NVIDIA, "n1", "gpu-0")}


def test_a_pool_is_what_its_newest_generation_says():
    (old,) = slices("nvidia_gpus")
    exchanged = tuple(replace(one, uuid=uuid) for one, uuid in zip(old.devices, (SECOND, FIRST), strict=True))
    new = replace(old, name="a", generation=2, devices=exchanged)
    for order in ([old, new], [new, old]):
        cache = book_of(order, c=holding(of("gpu-0")))
        assert held(cache, [granted("a", "gpu-0")], make_gpu(FIRST), make_gpu(SECOND, index=1)) == {
            ("a", "main", SECOND, "exclusive")
        }


def test_two_pools_may_use_the_same_names():
    (one,) = slices("nvidia_gpus")
    other = replace(one, name="b", pool="rack", devices=(replace(one.devices[0], uuid=SECOND, gpu=SECOND),))
    cache = book_of([one, other], c=holding(of("gpu-0"), of("gpu-0", pool="rack")))
    claims = [granted("a", "gpu-0"), granted("b", "gpu-0", pool="rack")]
    assert held(cache, claims, make_gpu(FIRST), make_gpu(SECOND, index=1)) == {
        ("a", "main", FIRST, "exclusive"),
        ("b", "main", SECOND, "exclusive"),
    }


def test_a_device_stays_known_to_its_holder_after_its_driver_withdrew_it():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")))
    claims = [granted("a", "gpu-0")]
    truth = {("a", "main", FIRST, "exclusive")}
    gpus = make_gpu(FIRST, index=1), make_gpu(SECOND, index=0)  # by the name alone it would be the other one
    assert held(cache, claims, *gpus) == truth
    cache.take_slices(())
    assert held(cache, claims, *gpus) == truth
    assert cache.unknown_devices(claims) == frozenset()
    cache.resolve(())
    assert cache.unknown_devices(claims) == {(NVIDIA, "n1", "gpu-0")}


def test_a_device_that_the_node_does_not_have_is_not_replaced_by_a_guess():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")))
    assert held(cache, [granted("a", "gpu-0")], make_gpu("GPU-another")) == set()


def test_what_could_not_be_read_is_identified_by_its_name():
    cache = book_of(())
    claims = [granted("a", "gpu-1"), granted("b", "hami-gpu-0", "d", driver=HAMI)]
    assert held(cache, claims, make_gpu(FIRST), make_gpu(SECOND, index=1)) == {
        ("a", "main", SECOND, "exclusive"),
        ("b", "main", FIRST, "hami"),
    }


def test_a_number_in_a_name_of_another_vendor_is_not_a_minor_number_of_nvidias_driver():
    assert held(book_of(()), [granted("a", "gpu-0", driver="gpu.amd.com")], make_gpu(FIRST)) == set()


def test_a_container_holds_only_the_devices_of_the_requests_that_it_uses():
    claim = holding(of("gpu-0"), replace(of("gpu-1"), request="big/best"))
    uses = {"one": "gpu", "two": "big", "all": ""}
    containers = tuple(Container(name=name, claims=(ClaimUse("c", request),)) for name, request in uses.items())
    pods = [Pod(uid="u", namespace="ml", name="a", phase="Running", containers=containers)]
    claims = [granted("a", device, container=name) for name in uses for device in ("gpu-0", "gpu-1")]
    found = held(book_of(slices("nvidia_gpus"), c=claim), claims, make_gpu(FIRST), make_gpu(SECOND, index=1), pods=pods)
    assert {(container, gpu) for _, container, gpu, _ in found} == {
        ("one", FIRST),
        ("two", SECOND),
        ("all", FIRST),
        ("all", SECOND),
    }


BOTH = holding(of("gpu-0"), replace(of("gpu-1"), request="second"))  # a claim with two requests


def using(name, **requests):
    """A pod whose containers use requests of the claim c."""
    made = tuple(Container(name=container, claims=(ClaimUse("c", one),)) for container, one in requests.items())
    return Pod(uid=f"uid-{name}", namespace="ml", name=name, phase="Running", containers=made)


def listed(*pods):
    """The kubelet's list: for each container all devices of the claim."""
    return [granted(one.name, device, container=c.name) for one in pods for c in one.containers for device in GPUS]


GPUS = ("gpu-0", "gpu-1")


def test_a_device_of_a_request_that_no_container_uses_is_held_by_the_pod():
    pods = [using("a", main="gpu", side="gpu")]
    found = held(
        book_of(slices("nvidia_gpus"), c=BOTH), listed(*pods), make_gpu(FIRST), make_gpu(SECOND, index=1), pods=pods
    )
    assert found == {
        ("a", "main", FIRST, "time-slicing"),
        ("a", "side", FIRST, "time-slicing"),
        ("a", "", SECOND, "exclusive"),
    }


def test_each_pod_of_a_shared_claim_holds_all_its_devices_and_the_container_that_uses_one_has_it_to_itself():
    pods = [using("a", main="gpu"), using("b", main="second")]
    gpus = make_gpu(FIRST, used=30 * GIB, processes=None), make_gpu(SECOND, index=1)
    found = sample(*gpus, pods=pods, grants=book_of(slices("nvidia_gpus"), c=BOTH).resolve(listed(*pods)))
    holders = {(u.key.pod, u.key.container, u.gpu, u.mode) for u in found.containers if u.allocated}
    assert holders == {
        ("a", "main", FIRST, "exclusive"),
        ("a", "", SECOND, "time-slicing"),
        ("b", "main", SECOND, "exclusive"),
        ("b", "", FIRST, "time-slicing"),
    }
    assert usage(found, "a").memory == 30 * GIB


def test_what_a_pod_holds_of_a_shared_gpu_by_an_unused_request_has_the_memory_that_the_claim_consumes():
    shares = [of("hami-gpu-0", driver=HAMI, memory=10 * GIB), of("hami-gpu-1", driver=HAMI, memory=4 * GIB)]
    claim = holding(shares[0], replace(shares[1], request="second"))
    pods = [using("a", main="gpu")]
    grants = [granted("a", name, driver=HAMI) for name in ("hami-gpu-0", "hami-gpu-1")]
    (published,) = slices("hami_core")
    second = replace(published.devices[0], name="hami-gpu-1", gpu=SECOND, uuid=SECOND)
    cache = book_of([replace(published, devices=(published.devices[0], second))], c=claim)
    found = sample(make_gpu(FIRST), make_gpu(SECOND, index=1), pods=pods, grants=cache.resolve(grants))
    assert {(u.key.container, u.gpu, u.memory_total) for u in found.containers} == {
        ("main", FIRST, 10 * GIB),
        ("", SECOND, 4 * GIB),
    }


def test_no_cgroup_is_looked_for_where_only_the_pod_holds_a_device():
    pods = [using("a", main="gpu")]
    index = PodIndex(pods)
    found = sample(
        make_gpu(FIRST),
        make_gpu(SECOND, index=1),
        pods=pods,
        grants=book_of(slices("nvidia_gpus"), c=BOTH).resolve(listed(*pods)),
    )
    assert {u.key.container for u in found.containers} == {"main", ""}
    assert [one.key.container for one in sought(found.containers, {}, index)] == ["main"]


def test_a_claim_that_was_made_again_under_the_same_name_is_read_again():
    cache = book_of(slices("nvidia_gpus"), c=holding(of("gpu-0")))
    claims = [granted("a", "gpu-1")]
    assert cache.unknown_claims(claims) == {"ml/c"}
    assert held(cache, claims, make_gpu(FIRST), make_gpu(SECOND, index=1)) == {("a", "main", SECOND, "exclusive")}
    cache.take_claims({"ml/c": holding(of("gpu-1"))})
    assert cache.unknown_claims(claims) == frozenset()


def test_claims_of_other_devices_are_of_no_interest():
    cache = book_of(slices("nvidia_gpus"))
    nic = granted("a", "eth0", driver="dra.net")
    assert (cache.unknown_devices([nic]), cache.unknown_claims([nic]), cache.gpu_claims([nic])) == (frozenset(),) * 3
    assert cache.gpu_claims([nic, granted("a", "gpu-0", "d")]) == {"ml/d"}


# --- any cluster, against a slow and obvious answer -------------------------------------------------------------------

UUIDS = [f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(4)]
places = st.tuples(st.sampled_from((NVIDIA, HAMI)), st.sampled_from(("n1", "rack")), st.sampled_from(("gpu-0", "x")))
published = st.builds(
    lambda name, place, generation, node, uuid: (name, place, generation, node, uuid),
    st.sampled_from("abc"),
    places,
    st.integers(1, 2),
    st.sampled_from(("n1", "n1", "n2")),
    st.sampled_from(UUIDS),
)
claims_made = st.dictionaries(
    st.sampled_from("cde"), st.lists(st.tuples(places, st.booleans()), min_size=1, max_size=3), max_size=3
)
kubelets_list = st.sets(st.tuples(st.sampled_from(("p", "q")), st.sampled_from("cde"), places), max_size=6)


def slowly(devices, claims, grants):
    """By the rules in words: the newest generation of the pool, its last slice by name; admin access holds nothing."""
    found = set()
    for name, claim, place in grants:
        if claim in claims and place in dict(claims[claim]) and all(admin for p, admin in claims[claim] if p == place):
            continue
        of_pool = [one for one in devices if one[1][:2] == place[:2]]
        newest = [one for one in of_pool if one[2] == max(two[2] for two in of_pool) and one[1] == place]
        last = max(newest, key=lambda one: one[0], default=None)
        if last is not None and last[3] == "n1":
            found.add((name, last[4]))
        elif place[2] == "gpu-0":
            found.add((name, UUIDS[0]))  # by its name: the GPU with minor number 0
    return found


@given(
    st.lists(published, unique_by=lambda one: one[0], max_size=3),
    claims_made,
    kubelets_list,
)
def test_holders_are_those_of_the_slow_answer(devices, claims, grants):
    made = [
        SliceState(
            name=name,
            driver=place[0],
            pool=place[1],
            generation=generation,
            devices=(DraDevice(name=place[2], gpu=uuid, node=node, uuid=uuid),),
        )
        for name, place, generation, node, uuid in devices
    ]
    allocated = {
        name: AllocatedClaim(
            devices=tuple(of(p[2], driver=p[0], pool=p[1]) for p, admin in results if not admin),
            admin=tuple(of(p[2], driver=p[0], pool=p[1]) for p, admin in results if admin),
        )
        for name, results in claims.items()
    }
    listed = [granted(name, p[2], claim, driver=p[0], pool=p[1]) for name, claim, p in sorted(grants)]
    gpus = [make_gpu(uuid, index=index) for index, uuid in enumerate(UUIDS)]
    found = held(book_of(made, **allocated), listed, *gpus)
    assert {(name, gpu) for name, _, gpu, _ in found} == slowly(devices, claims, grants)
