import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.knowledge.device_ids import DeviceRef, DraName, dra_profile, parse_device_id, parse_dra_name

UUID = "a1000000-1111-4222-8333-0123456789a0"
GPU, MIG = f"GPU-{UUID}", f"MIG-{UUID}"
OLD_MIG = f"MIG-GPU-{UUID}/7/0"

KNOWN = {
    GPU: DeviceRef(uuid=GPU),
    MIG: DeviceRef(mig=MIG),
    OLD_MIG: DeviceRef(uuid=GPU, mig=OLD_MIG, gpu_instance=7, compute_instance=0),
    "0": DeviceRef(index=0),
    "15": DeviceRef(index=15),
    "nvidia0": DeviceRef(index=0),
    "nvidia0/gi3": DeviceRef(index=0, gpu_instance=3),
    "nvidia0/vgpu2": DeviceRef(index=0, replica=True),
    "nvidia0/gi3/vgpu1": DeviceRef(index=0, gpu_instance=3, replica=True),
    f"{GPU}::3": DeviceRef(uuid=GPU, replica=True),
    f"{MIG}::7": DeviceRef(mig=MIG, replica=True),
    f"{OLD_MIG}::0": DeviceRef(uuid=GPU, mig=OLD_MIG, gpu_instance=7, compute_instance=0, replica=True),
    "0::1": DeviceRef(index=0, replica=True),
    f"{GPU}-0": DeviceRef(uuid=GPU, share=0),
    f"{GPU}-9": DeviceRef(uuid=GPU, share=9),
    f"{MIG}-1": DeviceRef(mig=MIG, share=1),
}


@pytest.mark.parametrize("text", KNOWN)
def test_every_known_shape_names_its_device(text):
    assert parse_device_id(text) == KNOWN[text]


@pytest.mark.parametrize(
    "text",
    ["", "gpu-0", "GPU-", f"{GPU} ", f"{GPU}\n", f"{GPU}::", f"{GPU}-x", "nvidia", "nvidia0/gi", "٣", "-1", "0:1"],
)
def test_an_unknown_shape_names_nothing(text):
    assert parse_device_id(text) == DeviceRef()


@given(st.text())
def test_no_text_is_an_error(text):
    assert isinstance(parse_device_id(text), DeviceRef)


@given(st.sampled_from([GPU, MIG, OLD_MIG, "3", "nvidia1", "nvidia1/gi2"]), st.integers(0, 999_999_999))
def test_a_replica_is_the_device_it_is_cut_from(text, number):
    whole, part = parse_device_id(text), parse_device_id(f"{text}::{number}")
    assert part.replica
    assert (part.uuid, part.mig, part.index, part.gpu_instance) == (
        whole.uuid,
        whole.mig,
        whole.index,
        whole.gpu_instance,
    )


# Names that the drivers' own CanonicalName functions make, and what stands in them.
DRA = {
    "gpu-0": DraName(minor=0),
    "gpu-12": DraName(minor=12),
    "hami-gpu-3": DraName(minor=3, hami=True),
    "gpu-2-mig-1g10gb-19-4": DraName(minor=2, profile="1g10gb", profile_id=19, start=4),
    "gpu-2-mig-1g10gb-me-20-6": DraName(minor=2, profile="1g10gb-me", profile_id=20, start=6),
    "gpu-2-mig-19-4-1": DraName(minor=2, profile_id=19, start=4),
}


@pytest.mark.parametrize("text", DRA)
def test_every_known_name_of_a_dra_driver_names_its_device(text):
    assert parse_dra_name(text) == DRA[text]


@pytest.mark.parametrize(
    "text", ["", "gpu-", "gpu-x", "gpu-vfio-0", "gpu-1-129", "hami-gpu-0-mig-1g10gb-19-4", "npu-0"]
)
def test_other_names_of_dra_drivers_name_nothing(text):
    assert parse_dra_name(text) is None


@pytest.mark.parametrize(
    ("profile", "named"), [("1g.10gb", "1g10gb"), ("1g.10gb+me", "1g10gb-me"), ("7g.80gb", "7g80gb")]
)
def test_a_profile_in_a_name_is_written_without_dots(profile, named):
    assert dra_profile(profile) == named
