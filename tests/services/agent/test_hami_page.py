"""HAMi's own monitor page, recorded, is what our hami family says of the same node."""

import json

import pytest

from tests.paths import TESTS
from tests.services.agent.noderoot import NodeRoot, Samples

FIXTURES = TESTS / "fixtures"
RECORDED = FIXTURES / "monitor" / "hami_monitor_metrics_legacy_false.prom"
GPUS = (
    "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76",
    "GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838",
    "GPU-e290caca-2f0c-9582-acab-67a142b61ffa",
)
MIG = {
    "containerIndex": 0,
    "deviceIndex": 0,
    "gpuUUID": GPUS[0],
    "profile": "1g.10gb",
    "placement": {"start": 6, "size": 1},
    "migUUID": "MIG-1f2e3d4c-0000-1111-2222-333344445555",
    "gpuInstanceID": 13,
    "computeInstanceID": 0,
}


def accepted(name: str) -> bool:
    return "error" not in json.loads((FIXTURES / "regions" / f"{name}.json").read_text())["strict"]


def assignment(name: str) -> dict[str, str]:
    """HAMi's annotation for the devices that a recorded region names."""
    said = json.loads((FIXTURES / "regions" / f"{name}.json").read_text())["strict"]
    given = [device["uuid_label"] for device in said.get("devices", []) if device["uuid_valid"]]
    return (
        {"hami.io/vgpu-devices-allocated": "".join(f"{uuid},NVIDIA,4000,30:" for uuid in given) + ";"} if given else {}
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    node = NodeRoot(tmp_path_factory.mktemp("node"))
    for i, uuid in enumerate(GPUS):
        memory = {"memory_total": 80 * 2**30, "memory_used": 3145728000 + i * 2**20, "memory_reserved": 0}
        node.nvml.gpu(
            i,
            uuid=uuid,
            utilization=40 + i,
            memory_controller=10 + i,
            **(memory if i < 2 else {"memory_total": None}),
        )
    names = sorted(path.name.removesuffix(".cache.gz") for path in (FIXTURES / "regions").glob("*.gz"))
    for name in names:
        uid = name.replace("_", "-")
        node.pod(f"pod-{uid}", namespace="ns-fix", uid=uid, annotations=assignment(name))
        node.recorded_region(uid, "main", FIXTURES / "regions" / f"{name}.cache.gz")
    node.pod(
        "pod-mig",
        "mig-ctr",
        namespace="ns-fix",
        uid="mig",
        annotations={"hami.io/vgpu-mig-allocations": json.dumps([MIG])},
    )
    here = {f"pod-{name.replace('_', '-')}" for name in names if accepted(name)} | {"pod-mig"}
    ours = Samples.of(node.once("--families", "hami"))
    # The recorded driver had no MIG instance. Ours must have it: an annotation alone does not show an instance.
    node.nvml.mig(0, 0, gi=13, uuid="MIG-1f2e3d4c-0000-1111-2222-333344445555")
    cut = Samples.of(node.once("--families", "hami"))
    ours.update({key: value for key, value in cut.items() if key[0] == "hami_mig_device_info"})
    return Samples.of(RECORDED.read_text()), ours, here


def comparable(page, here):
    """Series of the pods whose regions we have; ages depend on the time of the run."""
    return {
        (key[0], tuple(label for label in key[1] if label[0] != "instance_id")): (  # a label of v2.9
            value if "last_kernel" not in key[0] else None
        )
        for key, value in page.items()
        if dict(key[1]).get("pod", "pod-mig") in here and key[0] != "hami_build_info"
    }


def test_every_series_and_value_of_hamis_monitor_is_ours(pages):
    recorded, ours, here = pages
    assert len(comparable(recorded, here)) > 100
    assert comparable(ours, here) == comparable(recorded, here)


def test_regions_that_must_be_refused_have_no_series(pages):
    _, ours, here = pages
    assert {dict(key[1])["pod"] for key in ours if "pod" in dict(key[1])} <= here


def test_an_age_is_what_the_clock_says_and_never_negative(pages):
    recorded, ours, here = pages
    ages = {key: value for key, value in ours.items() if "last_kernel" in key[0] and dict(key[1])["pod"] in here}
    assert ages
    assert all(value >= recorded[key] for key, value in ages.items())
