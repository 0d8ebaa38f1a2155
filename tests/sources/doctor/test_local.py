"""What doctor sees on a node: regions as files, and a driver that is not there."""

from pathlib import Path
from typing import Any, get_args

from msgspec.structs import replace

from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import DoctorFacts, DriverFacts, FactName, Missing, RegionFacts
from vgpuscope.sources.doctor.local import LocalPlaces, is_gpu_node, nothing_here, read_local


def places(path: Path) -> LocalPlaces:
    return LocalPlaces(str(path / "vgpu"), str(path / "proc"), str(path / "kubelet.sock"))


def facts(**known: object) -> DoctorFacts:
    local = nothing_here()
    names: dict[str, FactName] = {"agents": "agent"}
    names |= {name: name for name in get_args(FactName) if name in DoctorFacts.__struct_fields__}
    absent: dict[str, Any] = {
        name: Missing(fact=fact, reason="not-given") for name, fact in names.items() if name not in local._fields
    }
    made = DoctorFacts(at=0.0, place="node", **local._asdict(), **absent)
    return replace(made, **known)


def statuses(found: DoctorFacts) -> dict[str, str]:
    return {check.code: check.judgement.status for check in judged(found)}


async def test_a_node_with_regions_and_without_a_driver(tmp_path: Path):
    containers = tmp_path / "vgpu" / "containers"
    (containers / "uid-1_main").mkdir(parents=True)
    broken = containers / "uid-2_main"
    broken.mkdir()
    (broken / "abc.cache").write_bytes(b"\x01\x02\x03\x04" * 100)
    assert is_gpu_node(places(tmp_path))
    found = await read_local(places(tmp_path), within=5.0)
    assert isinstance(found.driver, Missing)
    assert found.driver.code == "DRIVER_ABSENT"
    assert isinstance(found.regions, RegionFacts)
    assert found.regions.without_file == ("uid-1/main",)
    assert len(found.regions.refused) == 1
    seen = statuses(facts(driver=found.driver, regions=found.regions, podresources=found.podresources))
    assert seen["DRIVER_LIBRARY_MISSING"] == "fail"
    assert seen["REGION_LAYOUT_UNKNOWN"] == "fail"
    assert seen["REGION_NOT_MADE"] == "warn"
    assert seen["REGIONS_UNREADABLE"] == "pass"
    assert seen["NO_GPU"] == "skipped"


def test_a_driver_that_lists_no_gpu_is_named():
    assert statuses(facts(driver=DriverFacts(gpus=0, version="580.1")))["NO_GPU"] == "fail"
    assert statuses(facts(driver=DriverFacts(gpus=8, version="580.1")))["NO_GPU"] == "pass"


def test_of_a_machine_without_gpus_nothing_is_passed(tmp_path: Path):
    assert set(statuses(facts()).values()) == {"skipped"}
