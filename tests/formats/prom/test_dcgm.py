"""Pages of dcgm-exporter; lines and labels as in NVIDIA/dcgm-exporter#512 (4.2, H100 in MIG mode) and 4.9."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.prom.dcgm import DcgmPages
from vgpuscope.model.activity import Activity

A = "GPU-58e8f5ea-13cc-013a-d88f-2bcf5ae8bc77"
MIG = (
    'gpu="0",UUID="{uuid}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
    'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{gi}",Hostname="node-7",DCGM_FI_DRIVER_VERSION="535.129.03"'
)
WHOLE = f'gpu="0",UUID="{A}",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="node-7"'


def page(*lines: tuple[str, str, object]) -> bytes:
    head = "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.\n"
    return (head + "".join(f"{name}{{{labels}}} {value}\n" for name, labels, value in lines)).encode()


def on(gi: int) -> str:
    return MIG.format(uuid=A, gi=gi)


def test_each_gpu_instance_has_its_own_values():
    found = DcgmPages().read(
        page(
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", on(7) + ',container="c",namespace="ml",pod="p"', "0.400000"),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", on(8), "0.000000"),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", on(7), "0.25"),
            ("DCGM_FI_DEV_FB_USED", on(7), "1234"),
        )
    )
    assert found.places == {(A, 7): Activity(engine=0.4, tensor=0.25), (A, 8): Activity(engine=0.0)}
    assert found.dropped == {}


def test_a_whole_gpu_has_links_in_bytes_per_second():
    found = DcgmPages().read(
        page(("DCGM_FI_PROF_SM_ACTIVE", WHOLE, 0.5), ("DCGM_FI_PROF_PCIE_RX_BYTES", WHOLE, 97863601))
    )
    assert found.places == {(A, None): Activity(sm=0.5, pcie_received=97863601.0)}


def test_the_names_of_dcgm_4_7_mean_the_same():
    found = DcgmPages().read(
        page(("DCGM_FI_PROF_SM_UTIL_RATIO", WHOLE, 0.5), ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", WHOLE, 0.25))
    )
    assert found.places == {(A, None): Activity(sm=0.5, tensor=0.25)}


def test_a_ratio_of_4_7_that_is_in_percent_is_converted_for_all_gpus_of_the_page():
    other = WHOLE.replace(A, "GPU-other")
    found = DcgmPages().read(
        page(("DCGM_FI_PROF_SM_UTIL_RATIO", WHOLE, 50), ("DCGM_FI_PROF_SM_UTIL_RATIO", other, 0.5))
    )
    assert found.places == {(A, None): Activity(sm=0.5), ("GPU-other", None): Activity(sm=0.005)}


@pytest.mark.parametrize("value", [93, -0.1, "NaN", "+Inf", 2147483632, 9223372036854775792, 140737488355328])
def test_a_field_in_another_unit_or_blank_is_absent_and_counted_never_0(value):
    found = DcgmPages().read(page(("DCGM_FI_PROF_SM_ACTIVE", on(7), value), ("DCGM_FI_PROF_DRAM_ACTIVE", on(7), 0.1)))
    assert found.places == {(A, 7): Activity(dram=0.1)}
    assert sum(found.dropped.values()) == 1


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ('gpu="0",device="nvidia0"', "dcgm-no-uuid"),
        ('gpu="0",UUID="0"', "dcgm-no-uuid"),
        (f'UUID="{A}",GPU_I_ID="GI-7"', "dcgm-bad-instance"),
    ],
)
def test_other_labels_are_refused_with_a_reason(labels, reason):
    found = DcgmPages().read(page(("DCGM_FI_PROF_SM_ACTIVE", labels, 0.5)))
    assert (found.places, found.dropped) == ({}, {reason: 1})


def test_what_is_refused_is_counted_on_every_page():
    pages = DcgmPages()
    for _ in range(3):
        found = pages.read(page(("DCGM_FI_PROF_SM_ACTIVE", on(7), 93)))
    assert found.dropped == {"dcgm-over-1": 3}


def test_of_one_gpu_under_several_pods_the_higher_value_is_kept():
    lines = [("DCGM_FI_PROF_SM_ACTIVE", f'{WHOLE},pod="{pod}"', value) for pod, value in (("a", 0.7), ("b", 0.6))]
    assert DcgmPages().read(page(*lines)).places == {(A, None): Activity(sm=0.7)}


def test_a_value_with_an_old_time_of_its_own_is_not_current():
    text = f"DCGM_FI_PROF_SM_ACTIVE{{{WHOLE}}} 0.5 1000000\n".encode()
    assert DcgmPages().read(text, at=1001.0).places == {(A, None): Activity(sm=0.5)}
    assert DcgmPages().read(text, at=9999.0).places == {}


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_page_is_read_or_refused(junk):
    body = b"DCGM_FI_PROF_SM_ACTIVE{" + junk + b"} 0.5\n" + junk
    for activity in DcgmPages().read(body).places.values():
        assert activity.sm is None or 0.0 <= activity.sm <= 1.0
