"""The agent's page: each series stands on it once, in every family, whatever the node looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.logic.node.builders import (
    GIB,
    M1,
    M2,
    A,
    B,
    grant,
    instance,
    make_gpu,
    owner,
    pod,
    process,
    region,
    sample,
    share,
    slot,
)
from vgpuscope.catalog import agent as catalog
from vgpuscope.catalog.metric import FAMILIES
from vgpuscope.model.device import Memory, XidCount
from vgpuscope.model.quantity import MIB
from vgpuscope.model.usage import (
    MODES,
    STATES,
    ContainerKey,
    ContainerUsage,
    GpuUsage,
    MigHolding,
    NodeSnapshot,
    PodUsage,
    Vgpu,
)
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Renderer
from vgpuscope.views.node.metrics import SelfUse, node_samples

BUILD = Build(version="1", revision="r", build_date="d", python_version="3", compiler="c", platform="p")


def text(snapshot, families=FAMILIES):
    return Renderer(catalog.METRICS, families).render(node_samples(snapshot, build=BUILD, self_use=SelfUse())).text()


def series(page):
    """Every line as (name, labels, value), in the words of Prometheus' own parser."""
    return [(s.name, tuple(sorted(s.labels.items())), s.value) for f in parse(page.decode()) for s in f.samples]


def values(snapshot, name, **labels):
    """The values of all series of a name whose labels include these."""
    return [v for n, have, v in series(text(snapshot)) if n == name and labels.items() <= dict(have).items()]


# ── any node at all ──────────────────────────────────────────────────────────────────────────────────────────────
# Few names and many things, so that nearly all of them collide in a family that leaves out a label.
names = st.sampled_from(("a", "b"))
uids = st.sampled_from(("", "uid-1", "uid-2"))
keys = st.builds(
    ContainerKey, namespace=st.just("ml"), pod=st.sampled_from(("", "a", "b")), pod_uid=uids, container=names
)
gpus = st.sampled_from((A, B))
maybe_mig = st.sampled_from((None, M1, M2))
numbers = st.none() | st.integers(0, 9)
bytes_ = st.integers(0, 9)

containers = st.builds(
    ContainerUsage,
    key=keys,
    gpu=gpus,
    mig=maybe_mig,
    mode=st.sampled_from(MODES),
    state=st.sampled_from(STATES),
    allocated=st.booleans(),
    processes=numbers,
    memory=numbers,
    memory_method=st.just("mig"),
    memory_total=numbers,
    sm=numbers,
    sm_seconds=numbers,
    energy=numbers,
    power=numbers,
)
pods = st.builds(
    PodUsage,
    namespace=st.just("ml"),
    pod=names,
    pod_uid=uids,
    gpu=gpus,
    gpu_index=st.integers(0, 1),
    memory=numbers,
    memory_total=numbers,
    sm=numbers,
)
vgpus = st.builds(
    Vgpu,
    key=keys,
    index=st.integers(0, 1),
    gpu=gpus,
    used=bytes_,
    limit=bytes_,
    context=bytes_,
    module=bytes_,
    buffer=bytes_,
    offset=bytes_,
    sm=st.floats(0, 1),
    sm_limit=st.sampled_from((0.3, 1.0)),
    priority=st.integers(0, 1),
    blocked=st.booleans(),
    last_kernel=st.integers(0, 999),
)
holdings = st.builds(
    MigHolding,
    key=keys,
    index=st.integers(0, 1),
    gpu=gpus,
    mig=maybe_mig,
    profile=st.just("1g.10gb"),
    gpu_instance=st.integers(1, 2),
    compute_instance=st.integers(0, 1),
)


@st.composite
def all_gpus(draw, uuid):
    instances = [
        instance(mig, gi=draw(st.integers(1, 2)), ci=ci, index=ci, profile=f"{ci + 1}c.3g.40gb")
        for ci, mig in enumerate((M1, M2))
    ]
    mig = draw(st.booleans())
    gpu = make_gpu(
        uuid, draw(st.integers(0, 1)), mig_enabled=mig, energy=7.0, power=9.0, instances=instances if mig else ()
    )
    return GpuUsage(gpu=gpu, mode="mig" if mig else "hami", holder=draw(st.none() | keys), energy=3.0)


snapshots = st.builds(
    NodeSnapshot,
    at=st.just(1000.0),
    node=st.just("n1"),
    ratio=st.just(1.0),
    gpus=st.tuples(all_gpus(A), all_gpus(B)),
    containers=st.lists(containers, max_size=6).map(tuple),
    pods=st.lists(pods, max_size=4).map(tuple),
    vgpus=st.lists(vgpus, max_size=5).map(tuple),
    migs=st.lists(holdings, max_size=4).map(tuple),
    xids=st.lists(st.builds(XidCount, gpu=gpus, xid=st.just(79), count=bytes_), max_size=3).map(tuple),
)


@given(snapshots)
def test_no_page_ever_holds_the_same_series_twice(snapshot):
    found = [(name, labels) for name, labels, _ in series(text(snapshot))]
    assert len(found) == len(set(found)), sorted({one for one in found if found.count(one) > 1})


@given(snapshots)
def test_dcgm_has_one_series_of_each_gpu_or_mig_instance_whoever_shares_it(snapshot):
    found = [(name, dict(labels)) for name, labels, _ in series(text(snapshot, ["dcgm"]))]
    places = [(name, labels["UUID"], labels.get("GPU_I_ID")) for name, labels in found]
    assert len(places) == len(set(places)), sorted({one for one in places if places.count(one) > 1}, key=str)


# ── what a merged series says ────────────────────────────────────────────────────────────────────────────────────
def mig_gpu(*instances):
    used = sum({i.gpu_instance: i.memory.used for i in instances}.values())
    return make_gpu(used=used, mig_enabled=True, utilization=None, processes=None, instances=instances)


def two_instances(*second):
    """A container that was given two instances of one GPU, and its processes on the second."""
    one = instance(M1, gi=1, used=2 * GIB, processes=(process(1, 2 * GIB),))
    two = instance(M2, gi=2, used=3 * GIB if second else 0, processes=second, index=1)
    return sample(
        mig_gpu(one, two),
        owners=[owner(1, "a"), owner(2, "a")],
        pods=[pod("a")],
        grants=[grant("a", M1), grant("a", M2)],
    )


def test_the_memory_of_a_container_with_two_mig_instances_is_one_sum():
    assert values(two_instances(process(2, 3 * GIB)), "hami_vgpu_memory_usage_bytes", pod="a") == [5 * GIB]


def test_a_container_that_uses_one_of_its_two_mig_instances_shows_that():
    assert values(two_instances(), "hami_vgpu_memory_usage_bytes", pod="a") == [2 * GIB]


def test_a_sum_of_which_a_part_is_not_known_is_absent():
    one = ContainerUsage(
        key=ContainerKey(namespace="ml", pod="a", pod_uid="u", container="main"),
        gpu=A,
        mig=M1,
        mode="mig",
        state="unknown",
        allocated=True,
        memory=GIB,
    )
    snapshot = NodeSnapshot(at=1.0, node="n", ratio=1.0, containers=(one, replace(one, mig=M2, memory=None)))
    assert values(snapshot, "hami_vgpu_memory_usage_bytes") == []
    assert values(snapshot, "vgpuscope_container_memory_used_bytes", mig_uuid=M1) == [GIB]


def test_compute_instances_of_one_gpu_instance_show_its_memory_once_in_dcgm_names():
    one = instance(M1, gi=1, ci=0, used=5 * GIB)
    two = instance(M2, gi=1, ci=1, used=5 * GIB, index=1)
    assert values(sample(mig_gpu(one, two)), "DCGM_FI_DEV_FB_USED", GPU_I_ID="1") == [5 * GIB / MIB]


def test_two_pods_in_one_gpu_instance_do_not_make_two_series_of_it():
    one = instance(M1, gi=1, ci=0, used=5 * GIB, processes=(process(1, GIB),), profile="1c.3g.40gb")
    two = instance(M2, gi=1, ci=1, used=5 * GIB, processes=(process(2, GIB),), profile="2c.3g.40gb", index=1)
    snapshot = sample(
        mig_gpu(one, two),
        owners=[owner(1, "a"), owner(2, "b")],
        pods=[pod("a"), pod("b")],
        grants=[grant("a", M1), grant("b", M2)],
    )
    assert dcgm(snapshot, "DCGM_FI_DEV_FB_USED") == [{"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb"}]


def dcgm(snapshot, name):
    """The labels of a name of dcgm-exporter that differ between the series of a GPU."""
    differ = ("GPU_I_ID", "GPU_I_PROFILE", "namespace", "pod", "container")
    found = [dict(labels) for have, labels, _ in series(text(snapshot, ["dcgm"])) if have == name]
    return [{key: labels[key] for key in differ if key in labels} for labels in found]


def replaced_pod():
    """A pod that was deleted by force and still runs, beside the one of the same name that replaced it."""
    old = pod("web-0", shares=[share(memory=4 * GIB)])
    new = replace(old, uid="uid-new")
    gpu = make_gpu(used=3 * GIB, utilization=0.5, processes=(process(1, GIB, 0.1), process(2, 2 * GIB, 0.4)))
    regions = [
        region("web-0", slot(1, GIB, 0.1), limit=4 * GIB, last_kernel=990),
        replace(region("web-0", slot(2, 2 * GIB, 0.4), limit=4 * GIB, last_kernel=999), pod_uid="uid-new"),
    ]
    owners = [owner(1, "web-0"), replace(owner(2, "web-0"), pod_uid="uid-new", container_id=None)]
    return sample(gpu, owners=owners, pods=[old, new], regions=regions)


def test_two_pods_of_one_name_on_a_gpu_are_one_series_where_the_uid_is_not_a_label():
    snapshot = replaced_pod()
    assert values(snapshot, "pod_gpu_memory_used", pod="web-0") == [3 * GIB / MIB]
    assert values(snapshot, "pod_gpu_sm_util", pod="web-0") == [50.0]
    assert values(snapshot, "hami_vgpu_memory_used_bytes", pod="web-0") == [3 * GIB]
    assert values(snapshot, "hami_vgpu_memory_limit_bytes", pod="web-0") == [8 * GIB]
    assert values(snapshot, "hami_container_device_utilization_ratio", pod="web-0") == [50.0]
    assert values(snapshot, "Device_memory_desc_of_container", podname="web-0", data=str(3 * GIB)) == [3 * GIB]


def test_the_last_kernel_of_two_pods_of_one_name_is_the_later_one():
    assert values(replaced_pod(), "hami_container_last_kernel_elapsed_seconds", pod="web-0") == [1.0]


def test_our_own_names_keep_two_pods_of_one_name_apart():
    assert sorted(values(replaced_pod(), "vgpuscope_pod_memory_used_bytes", pod="web-0")) == [GIB, 2 * GIB]


# ── what every GPU has ──────────────────────────────────────────────────────────────────────────────────────────
MEASURED = {
    "energy": 5.0,
    "power": 100.0,
    "power_limit": 300.0,
    "power_limit_max": 350.0,
    "temperature": 40.0,
    "memory_temperature": 50.0,
    "sm_clock": 1e9,
    "memory_clock": 1e9,
    "sm_clock_max": 2e9,
    "memory_clock_max": 1.6e9,
    "fan": 0.3,
    "pcie_replays": 2,
    "encoder": 0.1,
    "decoder": 0.1,
    "memory_controller": 0.2,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "remapped_corrected": 0,
    "remapped_uncorrected": 0,
    "remap_failed": False,
}
ENGINES = ("utilization", "encoder", "decoder", "memory_controller")  # the driver reports none of them in MIG mode
OF_ENGINES = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
}
MEMORY = {"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"}
DEVICE_WIDE = {
    *MEMORY,
    *OF_ENGINES,
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MAX_SM_CLOCK",
    "DCGM_FI_DEV_MAX_MEM_CLOCK",
    "DCGM_FI_DEV_FAN_SPEED",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_XID_ERRORS",
}
BUSY = {"used": GIB, "utilization": 0.3, "processes": (process(1, GIB, 0.1),)}
TENANT = {"owners": [owner(1, "a")], "pods": [pod("a")]}
MIG_MODE = {**MEASURED, **dict.fromkeys(ENGINES), "mig_enabled": True, "processes": None}
HELD = instance(M1, gi=1, used=GIB, processes=(process(1, GIB),))

WHOLE_GPUS = {
    "free": sample(make_gpu(**MEASURED)),
    "exclusive": sample(make_gpu(**MEASURED, **BUSY), **TENANT, grants=[grant("a", A)]),
    "exclusive, not started": sample(make_gpu(**MEASURED), pods=[pod("a")], grants=[grant("a", A)]),
    "hami": sample(make_gpu(**MEASURED, **BUSY), **TENANT, regions=[region("a", slot(1, GIB, 0.1))]),
    "time-slicing": sample(make_gpu(**MEASURED, **BUSY), **TENANT, grants=[grant("a", f"{A}::0")]),
    "unallocated": sample(make_gpu(**MEASURED, **BUSY), **TENANT),
}
MIG_GPUS = {
    "mig": sample(make_gpu(**MIG_MODE, instances=(HELD,)), **TENANT, grants=[grant("a", M1)]),
    "mig, free": sample(make_gpu(**MIG_MODE, instances=(instance(M1, gi=1),))),
    "mig, not cut": sample(make_gpu(**MIG_MODE)),
}


def shown(snapshot):
    """The device-wide names on the page, as they are spelled there."""
    page = text(snapshot, ["dcgm"]).decode()
    return {line.split("{")[0] for line in page.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("snapshot", WHOLE_GPUS.values(), ids=WHOLE_GPUS)
def test_every_gpu_has_every_device_wide_dcgm_field_with_or_without_a_pod(snapshot):
    assert shown(snapshot) == DEVICE_WIDE
    assert 5000.0 in values(snapshot, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", UUID=A)


@pytest.mark.parametrize("snapshot", MIG_GPUS.values(), ids=MIG_GPUS)
def test_a_gpu_in_mig_mode_lacks_only_what_the_driver_does_not_report_there(snapshot):
    assert shown(snapshot) == DEVICE_WIDE - OF_ENGINES
    assert 5000.0 in values(snapshot, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", UUID=A)


def test_dcgm_fields_have_the_units_of_dcgm_exporter():
    names = ("FAN_SPEED", "MAX_SM_CLOCK", "MAX_MEM_CLOCK", "POWER_MGMT_LIMIT_MAX", "PCIE_REPLAY_COUNTER_total")
    found = [values(WHOLE_GPUS["free"], f"DCGM_FI_DEV_{name}") for name in names]
    assert found == [[30.0], [2000.0], [1600.0], [350.0], [2.0]]


def test_all_names_of_hami_for_the_memory_in_use_on_a_gpu_count_what_the_driver_reserves():
    gpu = make_gpu(memory=Memory(total=80 * GIB, used=5 * GIB, free=74 * GIB, reserved=GIB))
    names = ("hami_host_gpu_memory_used_bytes", "HostGPUMemoryUsage", "hami_gpu_memory_used_bytes")
    assert [values(sample(gpu), name) for name in names] == [[6 * GIB]] * 3


def test_an_xid_carries_what_nvidia_advises_and_whether_it_is_fatal():
    found = replace(sample(make_gpu()), xids=tuple(XidCount(gpu=A, xid=xid, count=1) for xid in (13, 109, 999)))
    labels = [dict(have) for name, have, _ in series(text(found)) if name == "vgpuscope_gpu_xid_errors_total"]
    said = {one["xid"]: (one["action"], one.get("fatal")) for one in labels}
    assert said == {"13": ("restart-app", "false"), "109": ("reset-gpu", "true"), "999": ("unknown", None)}
