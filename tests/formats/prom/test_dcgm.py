"""Pages of dcgm-exporter; lines and labels as in NVIDIA/dcgm-exporter#512 (4.2, H100 in MIG mode) and 4.9."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.prom.dcgm import DcgmPages
from vgpuscope.model.activity import DcgmSeries

A = "GPU-58e8f5ea-13cc-013a-d88f-2bcf5ae8bc77"


def decoded(name: str, labels: str, value: object) -> list[tuple[DcgmSeries, float]]:
    return DcgmPages().read(f"{name}{{{labels}}} {value}\n".encode())


def test_a_sample_keeps_its_value_and_says_which_gpu_instance_and_field_it_is_about():
    found = decoded("DCGM_FI_PROF_SM_ACTIVE", f'gpu="0",UUID="{A}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"', 93)
    assert found == [(DcgmSeries((A, 9), "sm", 1.0), 93.0)]


def test_a_name_of_dcgm_4_7_does_not_say_its_scale():
    [(series, value)] = decoded("DCGM_FI_PROF_SM_UTIL_RATIO", f'UUID="{A}"', 50)
    assert (series.field, series.by_values, value) == ("sm", True, 50.0)


def test_links_are_bytes_per_second_and_nvlink_is_faster_than_pcie():
    [(pcie, _)] = decoded("DCGM_FI_PROF_PCIE_RX_BYTES", f'UUID="{A}"', 1)
    [(nvlink, _)] = decoded("DCGM_FI_PROF_NVLINK_RX_BYTES", f'UUID="{A}"', 1)
    assert not pcie.is_ratio
    assert pcie.high < nvlink.high


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ('gpu="0",device="nvidia0"', "dcgm-no-uuid"),
        ('gpu="0",UUID="0"', "dcgm-no-uuid"),
        (f'UUID="{A}",GPU_I_ID="GI-7"', "dcgm-bad-instance"),
    ],
)
def test_other_labels_have_a_reason_to_be_refused(labels, reason):
    assert [series.reason for series, _ in decoded("DCGM_FI_PROF_SM_ACTIVE", labels, 0.5)] == [reason]


def test_a_value_with_an_old_time_of_its_own_is_not_current():
    text = f'DCGM_FI_PROF_SM_ACTIVE{{UUID="{A}"}} 0.5 1000000\n'.encode()
    assert [value for _, value in DcgmPages().read(text, at=1001.0)] == [0.5]
    assert [math.isnan(value) for _, value in DcgmPages().read(text, at=9999.0)] == [True]


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_page_is_decoded(junk):
    for series, _ in DcgmPages().read(b"DCGM_FI_PROF_SM_ACTIVE{" + junk + b"} 0.5\n" + junk):
        assert series.field == "sm" or series.by_values or series.high > 1
