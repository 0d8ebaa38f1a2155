import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.device_id import DeviceRef, parse_device_id

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
    f"{GPU}-0": DeviceRef(uuid=GPU, hami=True),
    f"{GPU}-9": DeviceRef(uuid=GPU, hami=True),
    f"{MIG}-1": DeviceRef(mig=MIG, hami=True),
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
