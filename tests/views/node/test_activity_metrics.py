"""Profiling values on the agent's page and in `top`: our names in base units, dcgm-exporter's with its labels."""

from msgspec.structs import replace

from tests.logic.node.builders import GIB, M1, M2, A, B, grant, instance, make_gpu, owner, pod, process, sample
from tests.views.node.test_metrics import series, text, values
from vgpuscope.logic.node.profiling import Measured, Profile
from vgpuscope.model.activity import Activity
from vgpuscope.views.node.top.state import rows

ALL = Activity(
    engine=0.8,
    sm=0.5,
    occupancy=0.25,
    tensor=0.125,
    fp64=0.01,
    fp32=0.02,
    fp16=0.03,
    dram=0.4,
    pcie_sent=1.0,
    pcie_received=2.0,
    nvlink_sent=3.0,
    nvlink_received=4.0,
)
DCGM = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.8,
    "DCGM_FI_PROF_SM_ACTIVE": 0.5,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.25,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.125,
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.01,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.02,
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.03,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.4,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1.0,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 2.0,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 3.0,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 4.0,
}


def whole(profile=None):
    return sample(make_gpu(A), profile=profile or Profile(places={(A, None): Measured(ALL, "gpm")}))


def cut(activity=ALL, **more):
    gpu = make_gpu(
        A,
        mig_enabled=True,
        utilization=None,
        processes=None,
        instances=(
            instance(M1, gi=3, processes=(process(1, GIB),), used=GIB, index=0),
            instance(M2, gi=5, index=1),
        ),
    )
    places = {(A, None): Measured(ALL, "gpm"), (A, 3): Measured(activity, "gpm")}
    who = {"owners": [owner(1, "a")], "pods": [pod("a")], "grants": [grant("a", M1, resource="nvidia.com/mig-1g.10gb")]}
    return sample(gpu, profile=Profile(places=places), **who, **more)


def test_a_gpu_has_every_field_under_dcgms_name_once():
    found = {name: value for name, _, value in series(text(whole())) if name.startswith("DCGM_FI_PROF_")}
    assert found == DCGM


def test_of_a_mig_gpu_dcgms_names_are_those_of_the_instances_and_name_their_pod():
    found = [(name, dict(labels)) for name, labels, _ in series(text(cut())) if name.startswith("DCGM_FI_PROF_")]
    assert {(labels["GPU_I_ID"], labels["GPU_I_PROFILE"], labels["pod"]) for _, labels in found} == {
        ("3", "1g.10gb", "a")
    }
    assert len(found) == 8  # links belong to no instance


def test_a_field_that_was_not_measured_has_no_series():
    names = {name for name, _, _ in series(text(cut(Activity(engine=0.0))))}
    assert "vgpuscope_mig_engine_active_ratio" in names
    assert not {name for name in names if name.startswith("vgpuscope_mig_sm_active")}


def test_the_page_says_where_the_values_come_from_or_why_there_are_none():
    snapshot = sample(
        make_gpu(A),
        make_gpu(B, 1),
        profile=Profile(places={(A, None): Measured(ALL, "dcgm")}, blind={B: "disturbs-memory"}),
    )
    name = "vgpuscope_gpu_profiling_info"
    assert values(snapshot, name, gpu_uuid=A, source="dcgm") == [1]
    assert values(snapshot, name, gpu_uuid=B, source="none", reason="disturbs-memory") == [1]


def test_every_figure_of_a_tenant_says_how_sure_it_is():
    snapshot = cut()
    name = "vgpuscope_container_method_info"
    assert values(snapshot, name, resource="sm", method="gpm", certainty="derived") == [1]
    assert values(snapshot, name, resource="memory", certainty="derived") == [1]
    assert len(values(snapshot, "vgpuscope_container_sm_error_bound_ratio", pod="a")) == 1
    assert values(snapshot, "vgpuscope_container_instance_sm_ratio", pod="a") == [0.8]


def test_top_shows_an_instances_busy_time_and_how_sure_a_tenants_figure_is():
    found = {row.kind: row for row in rows(cut()) if row.name != "mig 1 1g.10gb"}
    assert found["mig"].busy == 0.8
    assert found["container"].method == "mig/gpm derived ±2%"


def test_top_says_that_profiling_was_switched_off():
    from vgpuscope.views.node.top.notes import notices

    snapshot = sample(make_gpu(A), profile=Profile(blind={A: "hung"}))
    assert any("profiling is switched off" in line.plain for line in notices(snapshot))
    quiet = replace(snapshot, gpus=tuple(replace(one, activity_blind="unsupported") for one in snapshot.gpus))
    assert notices(quiet) == []
