"""How many series an agent's page can have, whatever regions and annotations contain; and honest ones lose none."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from tests.logic.node.builders import GIB, M1, A, B, instance, make_gpu, pod, region, sample, share, slot
from tools.writers.series import series_per
from vgpuscope.catalog import agent as m
from vgpuscope.catalog.limits import NODE_CONTAINERS, NODE_VGPUS
from vgpuscope.catalog.metric import FAMILIES
from vgpuscope.model.pod import MigAllocation
from vgpuscope.model.region import RegionDevice
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.node.metrics import SelfUse, node_samples
from vgpuscope.views.node.top.notes import notices

pytestmark = pytest.mark.attack

BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")
SLOTS = 16  # devices of a region
uuids = st.sampled_from((A, B, M1)) | st.text(min_size=1, max_size=10)
shares = st.lists(st.builds(share, gpu=uuids, memory=st.integers(0, 2**60)), max_size=20)
migs = st.lists(
    st.builds(
        MigAllocation,
        container_index=st.integers(0, 3),
        device_index=st.integers(0, 10**9),
        gpu=uuids,
        profile=st.text(max_size=8),
        mig=uuids,
        gpu_instance=st.integers(-9, 10**9),
        compute_instance=st.integers(-9, 10**9),
    ),
    max_size=20,
    unique_by=lambda one: (one.container_index, one.device_index),
)
devices = st.lists(uuids | st.none(), max_size=SLOTS)
tenants = st.lists(st.tuples(shares, migs, devices), max_size=3)


def node(found, *, driver=True, **more):
    """Two GPUs, one of them cut, and tenants that write their annotations and regions as they like."""
    cut = make_gpu(uuid=B, index=1, mig_enabled=True, processes=None, instances=(instance(M1, gi=1),))
    pods = [pod(f"p{i}", shares=shares, migs=tuple(migs)) for i, (shares, migs, _) in enumerate(found)]
    regions = [forged(f"p{i}", named) for i, (_, _, named) in enumerate(found)]
    return sample(*((make_gpu(used=9 * GIB), cut) if driver else ()), pods=pods, regions=regions, **more)


def forged(name, named):
    made = region(name, slot(0, GIB, 0.5, devices=SLOTS))
    devices = tuple(RegionDevice(index=i, uuid=uuid, memory_limit=GIB, sm_limit=1.0) for i, uuid in enumerate(named))
    return structs.replace(made, region=structs.replace(made.region, devices=devices))


def page(snapshot):
    made = Renderer(m.METRICS, FAMILIES).render(node_samples(snapshot, build=BUILD, self_use=SelfUse()))
    return [line for line in made.text().decode().splitlines() if not line.startswith("#")]


def bound(containers):
    """The largest number of series, by the devices and containers that exist."""
    per = {
        scope: series_per(scope, m.METRICS, FAMILIES)
        for scope in ("gpu", "mig", "container", "pod", "vgpu", "holding", "node")
    }
    of_node = 2 * per["gpu"] + per["mig"] + per["node"] + 2  # reasons of refused regions and corrections
    of_container = 3 * (per["container"] + per["pod"]) + SLOTS * per["vgpu"] + 128 * per["holding"] + 1
    return of_node + containers * of_container


@example([([share(gpu="GPU-x")], [], ["GPU-x"] * SLOTS)])  # annotation and region agree on what does not exist
@example([([share()], [], [A] * SLOTS)])
@given(tenants)
def test_no_region_or_annotation_makes_more_series_than_devices_and_containers_allow(found):
    lines = page(node(found))
    assert len(lines) <= bound(len(found))
    labels = {part for line in lines for part in line.replace("}", ",").split(",")}
    named = {part.split('"')[1] for part in labels if part.lstrip("{").startswith(("gpu_uuid=", "mig_uuid=", "UUID="))}
    assert named <= {A, B, M1}


@given(tenants)
def test_without_a_driver_the_number_of_devices_is_limited_too(found):
    shown = {row.gpu for row in node(found, driver=False).containers}
    assert len(shown) <= 128


@given(st.lists(st.sampled_from((A, B)), max_size=4))
def test_honest_tenants_lose_nothing(held):
    whole = [make_gpu(used=9 * GIB), make_gpu(uuid=B, index=1, used=9 * GIB)]
    pods = [pod(f"p{i}", shares=[share(gpu=gpu)]) for i, gpu in enumerate(held)]
    seen = sample(*whole, pods=pods, regions=[region(f"p{i}", slot(0, GIB), uuid=gpu) for i, gpu in enumerate(held)])
    lines = page(seen)
    for name in ("vgpuscope_container_info", "vgpuscope_vgpu_memory_used_bytes", "hami_vgpu_memory_used_bytes"):
        assert sum(line.startswith(f"{name}{{") for line in lines) == len(held)
    assert without(lines) == {"unknown-device": 0, "container-limit": 0, "node-limit": 0}
    assert (seen.unknown_devices, seen.disputes) == ((), ())


def without(lines):
    """How many things have no series, by reason."""
    told = [line for line in lines if line.startswith(f"{m.WITHOUT_SERIES.name}{{")]
    return {line.split('reason="')[1].split('"')[0]: int(line.rsplit(" ", 1)[1]) for line in told}


def test_beyond_the_limit_containers_are_counted_and_have_no_series():
    seen = sample(make_gpu(), pods=[pod("a", shares=[share()])], regions=[region("a", slot(0, GIB))])
    many = structs.replace(
        seen,
        containers=seen.containers * (NODE_CONTAINERS.most + 3),
        vgpus=seen.vgpus * (NODE_VGPUS.most + 2),
    )
    samples = list(node_samples(many, build=BUILD, self_use=SelfUse()))
    assert sum(one.metric is m.CONTAINER_INFO for one in samples) == NODE_CONTAINERS.most
    assert [one.value for one in samples if one.metric is m.WITHOUT_SERIES] == [0, 0, 5]


def test_a_mig_instance_with_a_number_beyond_the_limit_is_counted():
    given = MigAllocation(
        container_index=0, device_index=10**6, gpu=B, profile="x", mig=M1, gpu_instance=1, compute_instance=0
    )
    lines = page(node([([], [given], [])]))
    assert without(lines)["container-limit"] == 1
    assert not [line for line in lines if line.startswith("hami_mig_device_info")]


def test_an_annotation_with_devices_that_the_node_does_not_have_is_named_below_the_table():
    seen = sample(make_gpu(), pods=[pod("a", shares=[share(gpu="GPU-x"), share(gpu="GPU-y"), share()])])
    (unknown,) = seen.unknown_devices
    assert (unknown.key.pod, unknown.devices, unknown.example) == ("a", 2, "GPU-x")
    (line,) = [text.plain for text in notices(seen)]
    assert line == " ! ml/a/main: an annotation names 2 devices that this node does not have (GPU-x); ignored"
