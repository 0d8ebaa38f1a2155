"""GPUs that NVIDIA's own device plugin offers by number, with the labels of NVIDIA's GPU feature discovery.

The labels and amounts are those of NVIDIA's documentation of the plugin, of MIG and of sharing.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube.objects import decode_nodes
from vgpuscope.formats.kube.offers import offered_resources
from vgpuscope.model.quantity import MIB

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"
REGISTER = "hami.io/node-nvidia-register"


def labels(resource=GPU, **values):
    return {f"{resource}.{name.replace('_', '-')}": str(value) for name, value in values.items()}


def node(*resources, **more):
    return node_state(*resources, **more).offers


def node_state(amounts, labels=None, annotations=None, allocatable=None):
    item = {
        "metadata": {"name": "n1", "uid": "u", "labels": labels, "annotations": annotations},
        "status": {"capacity": amounts, "allocatable": amounts if allocatable is None else allocatable},
    }
    page = decode_nodes(json.dumps({"kind": "NodeList", "metadata": {}, "items": [item]}).encode())
    assert page.faults == ()
    (found,) = page.items
    return found


def shown(*offers):
    return [(one.resource, one.mode, one.capacity, one.allocatable, one.replicas) for one in offers]


def test_whole_gpus_are_counted_with_the_model_and_memory_that_labels_tell():
    told = labels(product="NVIDIA-H100-80GB-HBM3", memory=81559, count=4, replicas=1, sharing_strategy="none")
    (one,) = node({"cpu": "64", GPU: "4"}, told)
    assert shown(one) == [(GPU, "whole", 4, 4, 1)]
    assert (one.type, one.profile, one.memory) == ("NVIDIA-H100-80GB-HBM3", "", 81559 * MIB)


def test_without_labels_the_number_is_known_and_nothing_else():
    (one,) = node({GPU: "4"})
    assert shown(one) == [(GPU, "whole", 4, 4, 1)]
    assert (one.type, one.memory) == ("", None)


@pytest.mark.parametrize("strategy", ["mps", "time-slicing"])
def test_shared_gpus_keep_their_name_or_are_renamed_as_the_plugin_is_set_up(strategy):
    told = labels(product="Tesla-T4-SHARED", count=4, replicas=4, sharing_strategy=strategy)
    (one,) = node({GPU: "16"}, told)
    assert (shown(one), one.type) == ([(GPU, strategy, 16, 16, 4)], "Tesla-T4")
    renamed = labels(product="Tesla-T4", count=4, replicas=4, sharing_strategy=strategy)
    assert shown(*node({GPU: "0", SHARED: "16"}, renamed)) == [(SHARED, strategy, 16, 16, 4)]


@pytest.mark.parametrize("told", [{}, labels(SHARED, replicas=4), labels(product="Tesla-T4")])
def test_how_many_share_a_gpu_is_not_guessed(told):
    assert shown(*node({SHARED: "16"}, told)) == [(SHARED, "shared", 16, 16, None)]


def test_a_model_that_is_called_shared_is_shared():
    assert shown(*node({GPU: "8"}, labels(product="Tesla-T4-SHARED"))) == [(GPU, "shared", 8, 8, None)]


def test_mig_instances_of_a_profile_each_are_resources_of_their_own():
    told = labels(MIG, product="A100-SXM4-40GB-MIG-3g.20gb", memory=19968, count=2, replicas=1)
    whole, mig = node({GPU: "1", MIG: "2", "nvidia.com/mig-1g.5gb": "0"}, told | labels(product="A100-SXM4-40GB"))
    assert shown(whole, mig) == [(GPU, "whole", 1, 1, 1), (MIG, "mig", 2, 2, 1)]
    assert (mig.type, mig.profile, mig.memory) == ("A100-SXM4-40GB", "3g.20gb", 19968 * MIB)


def test_the_label_counts_all_gpus_of_the_model_also_those_that_mig_divides():
    def counted(**values):
        return node_state({GPU: "1", MIG: "2"}, labels(product="A100-SXM4-40GB", **values)).labelled_gpus

    assert counted(count=3) == 3
    assert counted() is None
    assert counted(count="many") is None
    single = labels(product="A100-SXM4-40GB-MIG-1g.5gb", count=56)
    assert node_state({GPU: "56"}, single).labelled_gpus is None  # these are instances


def test_with_one_profile_for_all_the_common_resource_counts_mig_instances():
    told = labels(product="A100-SXM4-40GB-MIG-1g.5gb", count=56, memory=5120) | {"nvidia.com/mig.strategy": "single"}
    (one,) = node({GPU: "56"}, told)
    assert (shown(one), one.type, one.profile) == ([(GPU, "mig", 56, 56, 1)], "A100-SXM4-40GB", "1g.5gb")


def test_mig_instances_may_be_shared_too():
    told = labels(MIG, product="A100-SXM4-40GB-MIG-3g.20gb-SHARED", replicas=3, sharing_strategy="time-slicing")
    (one,) = node({f"{MIG}.shared": "6"}, told)
    assert (shown(one), one.profile) == ([(f"{MIG}.shared", "mig", 6, 6, 3)], "3g.20gb")


def test_unhealthy_gpus_are_in_the_capacity_only():
    assert shown(*node({GPU: "8"}, allocatable={GPU: "7"})) == [(GPU, "whole", 8, 7, 1)]


@pytest.mark.parametrize("text", ['[{"id":"GPU-a","count":10}]', "not readable", "[]"])
@pytest.mark.parametrize("key", [REGISTER, "4pd.io/node-nvidia-register"])
def test_a_node_with_a_hami_register_offers_slots_and_no_gpus(text, key):
    item = {
        "metadata": {"name": "n1", "uid": "u", "annotations": {key: text}},
        "status": {"capacity": {GPU: "40"}, "allocatable": {GPU: "40"}},
    }
    (found,) = decode_nodes(json.dumps({"kind": "NodeList", "metadata": {}, "items": [item]}).encode()).items
    assert found.offers == ()


def test_resources_that_are_no_gpus_are_not_counted():
    amounts = {"cpu": "8", "nvidia.com/gpumem": "81920", "nvidia.com/gpucores": "100", "amd.com/gpu": "2"}
    assert node(amounts) == ()


@given(
    st.dictionaries(
        st.sampled_from([f"{GPU}.{x}" for x in ("product", "memory", "replicas", "sharing-strategy")]),
        st.one_of(st.text(max_size=80), st.none(), st.integers()),
    )
)
def test_no_label_makes_fewer_or_more_of_them(told):
    (one,) = offered_resources(told, {GPU: 8}, {GPU: 8})
    assert (one.capacity, one.allocatable) == (8, 8)
    assert one.replicas is None or one.replicas >= 1
    assert one.memory is None or one.memory > 0
