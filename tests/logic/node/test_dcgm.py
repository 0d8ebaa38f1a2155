"""Profiling values from pages of dcgm-exporter, as in NVIDIA/dcgm-exporter#512 (4.2, H100 in MIG mode) and 4.9."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.prom.dcgm import DcgmPages
from vgpuscope.logic.node.dcgm import DcgmReadings, check_usable
from vgpuscope.model.activity import Activity, ActivityReading, DcgmPage
from vgpuscope.model.errors import DcgmUnusable, DcgmWithoutFields

A = "GPU-58e8f5ea-13cc-013a-d88f-2bcf5ae8bc77"
MIG = (
    'gpu="0",UUID="{uuid}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",'
    'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{gi}",Hostname="node-7",DCGM_FI_DRIVER_VERSION="535.129.03"'
)
WHOLE = f'gpu="0",UUID="{A}",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="node-7"'


class Exporter:
    """The pages of one exporter, decoded and taken one after the other."""

    def __init__(self) -> None:
        self._pages, self._readings, self._interrupted = DcgmPages(), DcgmReadings(), False

    def read(self, body: bytes, *, at: float | None = None) -> ActivityReading:
        interrupted, self._interrupted = self._interrupted, False
        return self._readings.take(DcgmPage(self._pages.read(body, at=at), at, interrupted))

    def interrupted(self) -> None:
        self._interrupted = True


def page(*lines: tuple[str, str, object]) -> bytes:
    head = "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.\n"
    return (head + "".join(f"{name}{{{labels}}} {value}\n" for name, labels, value in lines)).encode()


def on(gi: int) -> str:
    return MIG.format(uuid=A, gi=gi)


def test_each_gpu_instance_has_its_own_values():
    found = Exporter().read(
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
    found = Exporter().read(
        page(("DCGM_FI_PROF_SM_ACTIVE", WHOLE, 0.5), ("DCGM_FI_PROF_PCIE_RX_BYTES", WHOLE, 97863601))
    )
    assert found.places == {(A, None): Activity(sm=0.5, pcie_received=97863601.0)}


OTHER = WHOLE.replace(A, "GPU-other")
SM_4_7, TENSOR_4_7 = "DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"


def after(*values: float | tuple[float, float], pages: Exporter | None = None):
    """The last of these pages: SM activity under its name of DCGM 4.7, of one GPU or of two."""
    pages = pages or Exporter()
    for one in values:
        some = one if isinstance(one, tuple) else (one,)
        found = pages.read(page(*((SM_4_7, gpu, value) for gpu, value in zip((WHOLE, OTHER), some, strict=False))))
    return found


def sm(reading) -> list[float | None]:
    return [reading.places.get((gpu, None), Activity()).sm for gpu in (A, "GPU-other")]


def test_the_names_of_dcgm_4_7_mean_the_same_once_pages_agree_that_they_are_ratios():
    pages = Exporter()
    lines = (SM_4_7, WHOLE, 0.7), (TENSOR_4_7, WHOLE, 0.25)
    first, _, third = [pages.read(page(*lines)) for _ in range(3)]
    assert (dict(first.places), set(first.rejected)) == ({}, {"dcgm-scale-unclear"})
    assert third.places == {(A, None): Activity(sm=0.7, tensor=0.25)}
    assert third.dropped == {"dcgm-scale-unclear": 4}


def test_a_ratio_of_4_7_that_is_in_percent_is_converted_once_pages_agree():
    assert sm(after(50, 60)) == [None, None]
    assert sm(after(50, 60, 40)) == [0.4, None]
    assert sm(after((50, 40), (50, 40), (50, 40), (50, 0.5))) == [0.5, 0.005]


def test_garbage_on_one_gpu_does_not_make_percent_of_anothers_ratio():
    assert sm(after((0.95, 1.4))) == [None, None]
    assert sm(after(*[(0.95, 1.4)] * 20)) == [None, None]
    known = after(0.95, 0.9, 0.95, (0.95, 1.4))
    assert sm(known) == [0.95, None]
    assert known.dropped["dcgm-over-1"] == 1
    assert sm(after(0.95, 0.9, 0.95, *[(0.95, 50)] * 20)) == [0.95, None]


def test_percent_below_1_is_not_taken_for_a_ratio():
    found = after(*[(0.4, 0.02)] * 100)
    assert (sm(found), found.dropped) == ([None, None], {"dcgm-scale-unclear": 200})
    assert sm(after(50, 50, 50, 0.95)) == [None, None]  # a new release of the exporter looks the same
    assert sm(after(50, 50, 50, 0.95, 0.0)) == [0.0, None]


def test_a_field_without_evidence_of_its_own_is_unclear_beside_one_in_percent():
    pages = Exporter()
    for _ in range(5):
        found = pages.read(page((SM_4_7, WHOLE, 60), (TENSOR_4_7, WHOLE, 0.7)))
    assert found.places == {(A, None): Activity(sm=0.6)}


@pytest.mark.parametrize("before", [0.9, 50.0])
def test_pages_that_contradict_what_was_known_are_not_used_until_they_have_done_so_for_long(before):
    now = 50.9 - before
    pages = Exporter()
    after(*[before] * 3, pages=pages)
    used = [sm(after(now, pages=pages))[0] for _ in range(40)]
    right = now if now < 1 else now / 100
    assert used == [None] * (used.count(None)) + [pytest.approx(right)] * (40 - used.count(None))
    assert used.count(None) in range(9, 25)


def test_zero_is_no_evidence_and_stays_absent_while_the_scale_is_unclear():
    assert sm(after(*[(0.0, 0.0)] * 50)) == [None, None]
    assert sm(after(0.9, 0.0, 0.9, 0.0, 0.9, 0.0)) == [0.0, None]


def test_the_same_page_read_again_is_no_further_evidence():
    pages, text = Exporter(), page((SM_4_7, WHOLE, 50))
    reads = [pages.read(text, at=at).places for at in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)]
    assert reads == [{}] * 6
    assert pages.read(text, at=60.0).places == {(A, None): Activity(sm=0.5)}


def test_after_an_interruption_the_scale_is_not_known_any_more():
    pages = Exporter()
    after(50, 50, 50, pages=pages)
    pages.interrupted()
    assert sm(after(0.9, pages=pages)) == [None, None]
    assert sm(after(0.9, 0.9, pages=pages)) == [0.9, None]


def test_a_field_that_also_has_its_old_name_needs_no_scale():
    found = Exporter().read(page((SM_4_7, WHOLE, 70), ("DCGM_FI_PROF_SM_ACTIVE", WHOLE, 0.7)))
    assert (found.places, found.dropped) == ({(A, None): Activity(sm=0.7)}, {})


@given(st.lists(st.floats(0, 1), max_size=40), st.sampled_from([1.0, 100.0]))
def test_a_value_is_right_or_absent_whatever_work_comes_first(work, scale):
    """Of work that passes 2 % whenever it is not 0: below that, nothing shows the scale."""
    pages = Exporter()
    for busy in (one if one > 0.02 else 0.0 for one in work):
        assert sm(after(busy * scale, pages=pages))[0] in (None, pytest.approx(busy))


@pytest.mark.parametrize("value", [93, -0.1, "NaN", "+Inf", 2147483632, 9223372036854775792, 140737488355328])
def test_a_field_in_another_unit_or_blank_is_absent_and_counted_never_0(value):
    found = Exporter().read(page(("DCGM_FI_PROF_SM_ACTIVE", on(7), value), ("DCGM_FI_PROF_DRAM_ACTIVE", on(7), 0.1)))
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
    found = Exporter().read(page(("DCGM_FI_PROF_SM_ACTIVE", labels, 0.5)))
    assert (found.places, found.dropped) == ({}, {reason: 1})


def test_a_value_with_an_old_time_of_its_own_is_not_current():
    text = f"DCGM_FI_PROF_SM_ACTIVE{{{WHOLE}}} 0.5 1000000\n".encode()
    assert Exporter().read(text, at=1001.0).places == {(A, None): Activity(sm=0.5)}
    assert Exporter().read(text, at=9999.0).places == {}


def test_what_is_refused_is_counted_on_every_page():
    pages = Exporter()
    for _ in range(3):
        found = pages.read(page(("DCGM_FI_PROF_SM_ACTIVE", on(7), 93)))
    assert found.dropped == {"dcgm-over-1": 3}


def test_of_one_gpu_under_several_pods_the_higher_value_is_kept():
    lines = [("DCGM_FI_PROF_SM_ACTIVE", f'{WHOLE},pod="{pod}"', value) for pod, value in (("a", 0.7), ("b", 0.6))]
    assert Exporter().read(page(*lines)).places == {(A, None): Activity(sm=0.7)}


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_page_is_read_or_refused(junk):
    body = b"DCGM_FI_PROF_SM_ACTIVE{" + junk + b"} 0.5\n" + junk
    for activity in Exporter().read(body).places.values():
        assert activity.sm is None or 0.0 <= activity.sm <= 1.0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0.5\n', "dcgm-no-uuid"),
        (b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a"} 55\n', "dcgm-over-1"),
        (b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-b"} 0.5\n', "runs on another one"),
    ],
)
def test_a_page_with_other_labels_units_or_gpus_is_unusable_and_says_why(body, says):
    with pytest.raises(DcgmUnusable, match=says):
        check_usable(Exporter().read(body), {"GPU-a"})


def test_a_page_without_profiling_fields_says_so_even_after_one_with_other_labels():
    pages = Exporter()
    pages.read(b'DCGM_FI_PROF_SM_ACTIVE{gpu="0"} 0.5\n')
    with pytest.raises(DcgmWithoutFields):
        check_usable(pages.read(b"up 1\n"), {"GPU-a"})


def test_a_page_of_this_nodes_gpus_is_usable():
    found = Exporter().read(b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_ID="3"} 0.5\n')
    check_usable(found, {"GPU-a", "GPU-b"})
    check_usable(found, set())


@pytest.mark.parametrize(("link", "rate"), [("PCIE_RX", 128e9), ("NVLINK_RX", 1.8e12)])
def test_the_fastest_link_there_is_stays_below_its_bound(link, rate):
    assert Exporter().read(page((f"DCGM_FI_PROF_{link}_BYTES", WHOLE, rate))).dropped == {}
    assert Exporter().read(page((f"DCGM_FI_PROF_{link}_BYTES", WHOLE, 140737488355328))).dropped == {
        "dcgm-traffic-implausible": 1
    }
