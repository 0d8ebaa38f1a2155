"""A pod → what it asks a scheduler extender for, and what is refused with a code."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.model.errors import RequestInvalid
from vgpuscope.model.placement import ContainerAsk, GpuWeights, PlacementRequest

GPU, MEM, PERCENT, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"


def pod(*containers, init=(), annotations=None, **meta):
    return json.dumps(
        {
            "metadata": {"name": "p", "namespace": "ml", "uid": "u", "annotations": annotations or {}, **meta},
            "spec": {"containers": list(containers), "initContainers": list(init)},
        }
    ).encode()


def container(limits=None, requests=None, name="main", **more):
    return {"name": name, "resources": {"limits": limits, "requests": requests}, **more}


def asked(limits=None, requests=None):
    """The request of a pod with one container."""
    (one,) = placement_request(pod(container(limits, requests))).asks
    return one


def selected(**annotations):
    keys = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return placement_request(pod(container({GPU: 1}), annotations=keys)).selection


# --- resources --------------------------------------------------------------------------------------------------------


def test_a_pod_without_gpus_asks_for_nothing():
    assert placement_request(pod(container({"cpu": 1}), container(None, name="b"))) is None
    assert placement_request(pod(container({GPU: 0, MEM: 100}))) is None
    assert placement_request(b'{"metadata": {}}') is None


def test_each_container_that_asks_is_named_with_its_position():
    found = placement_request(
        pod(
            container({GPU: 2, MEM: 1000, CORES: 30}, name="a"),
            container({}, name="b"),
            container({GPU: 1}, name="c"),
            init=[container({GPU: 1, MEM: 500}, name="i"), container({GPU: 1}, name="s", restartPolicy="Always")],
        )
    )
    assert found == PlacementRequest(
        uid="u",
        namespace="ml",
        name="p",
        containers=5,
        asks=(
            ContainerAsk(index=0, name="i", init=True, count=1, memory=500),
            ContainerAsk(index=1, name="s", count=1),  # a sidecar lives with the pod
            ContainerAsk(index=2, name="a", count=2, memory=1000, cores=30),
            ContainerAsk(index=4, name="c", count=1),
        ),
    )


def test_limits_take_precedence_over_requests_one_by_one():
    assert asked({GPU: 2}, {GPU: 3, MEM: 700}) == ContainerAsk(index=0, name="main", count=2, memory=700)


@pytest.mark.parametrize("limits", [{MEM: 1000}, {CORES: 10}, {PERCENT: 50}])
def test_memory_or_cores_without_a_number_of_gpus_ask_for_none(limits):
    """The webhook adds the number; without it, the kubelet would call no Allocate, and the node would stay locked."""
    assert placement_request(pod(container(limits))) is None


def test_memory_takes_precedence_over_a_percentage_and_none_of_both_is_the_whole_gpu():
    both = asked({GPU: 1, MEM: 1000, PERCENT: 50})
    assert (both.memory, both.percentage) == (1000, None)
    none = asked({GPU: 1, MEM: 0, PERCENT: 0})
    assert (none.memory, none.percentage) == (None, None)


@pytest.mark.parametrize("cores", [100, 101, "1k", 2**31 - 1])
def test_more_than_all_cores_is_all_cores(cores):
    assert asked({GPU: 1, CORES: cores}).cores == 100


def test_amounts_are_read_as_kubernetes_writes_them():
    assert asked({GPU: "1", MEM: "8k", CORES: "1e1"}) == ContainerAsk(
        index=0, name="main", count=1, memory=8000, cores=10
    )


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        (GPU, -1),
        (GPU, "0.5"),
        (GPU, "500m"),
        (GPU, 10**18),
        (GPU, 1025),
        (GPU, "many"),
        (GPU, None),
        (GPU, [1]),
        (GPU, True),
        (MEM, -1),
        (MEM, "1.5"),
        (MEM, "1E"),
        (MEM, 10**18),
        (MEM, 2**31),
        (PERCENT, 101),
        (PERCENT, -1),
        (PERCENT, "50.5"),
        (CORES, 2**31),
        (CORES, -5),
        (CORES, "1e30"),
    ],
)
def test_an_impossible_amount_is_refused_with_the_container_and_the_resource(resource, value):
    with pytest.raises(RequestInvalid) as refused:
        placement_request(pod(container({GPU: 1}, name="fine"), container({GPU: 1, resource: value}, name="worker")))
    assert refused.value.code == "SCHED_REQUEST_INVALID"
    assert "'worker'" in str(refused.value)
    assert resource in str(refused.value)


def test_a_pod_asks_for_no_more_gpus_than_an_assignment_can_hold():
    with pytest.raises(RequestInvalid, match="2048"):
        placement_request(pod(container({GPU: 1024}, name="a"), container({GPU: 1024}, name="b")))


# --- annotations ------------------------------------------------------------------------------------------------------


def test_types_are_compared_in_lower_case_and_blank_entries_are_no_constraint():
    found = selected(nvidia_com__use_gputype="")
    assert found.use_types == ()
    chosen = placement_request(
        pod(
            container({GPU: 1}),
            annotations={
                "nvidia.com/use-gputype": "A100, ,T4,",
                "nvidia.com/nouse-gputype": " V100 ",
                "nvidia.com/use-gpuuuid": "GPU-A,GPU-B",
                "nvidia.com/nouse-gpuuuid": " , ",
                "nvidia.com/vgpu-mode": " mig ",
                "nvidia.com/numa-bind": "True",
                "hami.io/node-scheduler-policy": " spread ",
                "hami.io/gpu-scheduler-policy": "binpack, numa",
                "hami.io/device-scoring-weights": "memory=3,slot=0, core=1",
            },
        )
    ).selection
    assert chosen.use_types == ("a100", "t4")
    assert chosen.avoid_types == ("v100",)
    assert chosen.use_uuids == ("GPU-A", "GPU-B")
    assert chosen.avoid_uuids == ()
    assert (chosen.mode, chosen.numa_bind, chosen.node_policy) == ("mig", True, "spread")
    assert chosen.gpu_policy == ("binpack", "numa")
    assert chosen.weights == GpuWeights(slot=0, core=1, memory=3)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fast", ("spread",)),
        ("", ("spread",)),
        ("binpack,fast", ("binpack", "spread")),
        ("binpack,", ("binpack", "spread")),
        ("fast,mutex", ("mutex", "spread")),
        ("numa,fast", ("numa",)),
        ("binpack,binpack", ("binpack", "spread")),
        (",", ("spread", "spread")),
    ],
)
def test_of_a_chain_of_policies_those_that_hami_knows_are_used(text, policy):
    """Project-HAMi/HAMi v2.10.0 pkg/scheduler/policy/gpu_policy.go: gpuSortKeyChain, lessByChain and Less.

    An annotation that is there replaces the default, and what is no policy sorts as `spread`. In a chain GPUs of equal
    rank are ordered by their index. The second policy here keeps it a chain.
    """
    chosen = placement_request(pod(container({GPU: 1}), annotations={"hami.io/gpu-scheduler-policy": text}))
    assert chosen.selection.gpu_policy == policy


@pytest.mark.parametrize(
    ("annotations", "policy"),
    [
        ({}, None),
        ({"hami.io/node-scheduler-policy": ""}, "binpack"),
        ({"hami.io/node-scheduler-policy": "x"}, "binpack"),
    ],
)
def test_an_unknown_node_policy_packs_whatever_the_default_is(annotations, policy):
    """Project-HAMi/HAMi v2.10.0 pkg/scheduler/policy/node_policy.go NodeScoreList.Less: only `spread` spreads."""
    assert placement_request(pod(container({GPU: 1}), annotations=annotations)).selection.node_policy == policy


@pytest.mark.parametrize(
    "text",
    [
        "slot=1,core=1",
        "slot=0,core=0,memory=0",
        "slot=1,core=1,memory=-1",
        "slot=1,core=1,memory=1.5",
        "slot=1,slot=1,core=1",
        "slot=1,core=1,memory=1,memory=1",
        "slot=1,core=1,memory=9223372036854775808",
        "slot=1,core=1,memory=1_0",
        "slot=1,core=1,memory=",
        "slot=1,core=1,speed=1",
        "1,1,1",
        "x",
        "",
    ],
)
def test_invalid_weights_are_refused(text):
    with pytest.raises(RequestInvalid, match="device-scoring-weights"):
        placement_request(pod(container({GPU: 1}), annotations={"hami.io/device-scoring-weights": text}))


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("slot = 1,core=+2,memory=03", GpuWeights(1, 2, 3)),
        ("slot=9223372036854775807, core=0 ,memory=-0", GpuWeights(9223372036854775807, 0, 0)),
    ],
)
def test_weights_are_read_as_go_reads_numbers(text, weights):
    """Project-HAMi/HAMi v2.10.0 pkg/util/device_scoring_weights.go ParseDeviceScoringWeights: TrimSpace, ParseInt."""
    found = placement_request(pod(container({GPU: 1}), annotations={"hami.io/device-scoring-weights": text}))
    assert found.selection.weights == weights


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_numa_bind_is_read_as_go_reads_booleans(text):
    assert placement_request(pod(container({GPU: 1}), annotations={"nvidia.com/numa-bind": text})).selection.numa_bind


@pytest.mark.parametrize("text", ["yes", "on", "0", "", "tRUE", " true"])
def test_any_other_text_binds_to_no_numa_node(text):
    chosen = placement_request(pod(container({GPU: 1}), annotations={"nvidia.com/numa-bind": text})).selection
    assert not chosen.numa_bind


# --- strangers --------------------------------------------------------------------------------------------------------

values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.just([1]))


@given(
    st.dictionaries(st.sampled_from((GPU, MEM, PERCENT, CORES)), values),
    st.dictionaries(
        st.sampled_from(
            (
                "nvidia.com/use-gputype",
                "nvidia.com/numa-bind",
                "hami.io/gpu-scheduler-policy",
                "hami.io/device-scoring-weights",
            )
        ),
        st.text(),
    ),
)
def test_any_amounts_and_annotations_are_read_or_refused(limits, annotations):
    try:
        found = placement_request(pod(container(limits), annotations=annotations))
    except RequestInvalid as refused:
        assert str(refused)  # noqa: PT017 either outcome is right
    else:
        for one in found.asks if found else ():
            assert 1 <= one.count <= 1024
            assert 0 <= one.cores <= 100
            assert one.memory is None or 1 <= one.memory < 2**31


@given(st.binary())
def test_any_bytes_are_read_or_refused(data):
    with suppress(RequestInvalid):
        assert placement_request(data) is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"spec": {}}', b'{"metadata": {"annotations": {"a": 1}}}', b"\xff"])
def test_what_is_no_pod_is_refused(data):
    with pytest.raises(RequestInvalid, match="cannot be decoded"):
        placement_request(data)
