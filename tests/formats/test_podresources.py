import contextlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.kubelet_messages import pb
from vgpuscope.formats.podresources import WireInvalid, decode_grants
from vgpuscope.model.pod import Grant

words = st.text(max_size=12)
numbers = st.integers(-(2**63), 2**63 - 1)
topologies = st.builds(pb.TopologyInfo, nodes=st.lists(st.builds(pb.NUMANode, ID=numbers), max_size=2))
memories = st.builds(pb.ContainerMemory, memory_type=words, size=st.integers(0, 2**64 - 1), topology=topologies)
devices = st.builds(
    pb.ContainerDevices, resource_name=words, device_ids=st.lists(words, max_size=3), topology=st.none() | topologies
)
claim_resources = st.builds(
    pb.ClaimResource,
    cdi_devices=st.lists(st.builds(pb.CDIDevice, name=words), max_size=2),
    driver_name=words,
    pool_name=words,
    device_name=words,
    share_id=st.none() | words,
)
claims = st.builds(
    pb.DynamicResource,
    claim_name=words,
    claim_namespace=words,
    claim_resources=st.lists(claim_resources, max_size=2),
)
containers = st.builds(
    pb.ContainerResources,
    name=words,
    devices=st.lists(devices, max_size=3),
    cpu_ids=st.lists(numbers, max_size=3),
    memory=st.lists(memories, max_size=2),
    dynamic_resources=st.lists(claims, max_size=2),
)
pods = st.builds(
    pb.PodResources,
    name=words,
    namespace=words,
    containers=st.lists(containers, max_size=2),
    cpu_ids=st.lists(numbers, max_size=2),
    memory=st.lists(memories, max_size=1),
)
answers = st.builds(pb.ListPodResourcesResponse, pod_resources=st.lists(pods, max_size=3))


def by_protobuf(answer):
    grants = []
    for pod in answer.pod_resources:
        for c in pod.containers:
            at = {"namespace": pod.namespace, "pod": pod.name, "container": c.name}
            grants += [Grant(**at, resource=d.resource_name, device_id=i) for d in c.devices for i in d.device_ids]
            grants += [
                Grant(
                    **at,
                    resource=r.driver_name,
                    device_id=r.device_name,
                    claim=f"{d.claim_namespace}/{d.claim_name}",
                    pool=r.pool_name,
                )
                for d in c.dynamic_resources
                for r in d.claim_resources
            ]
    return tuple(dict.fromkeys(grants))


def one_container(**fields):
    container = pb.ContainerResources(name="main", **fields)
    return pb.ListPodResourcesResponse(pod_resources=[{"name": "p", "namespace": "ml", "containers": [container]}])


@given(answers)
def test_we_read_what_protobuf_wrote(answer):
    assert decode_grants(answer.SerializeToString()) == by_protobuf(answer)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(WireInvalid):
        decode_grants(data)


@given(answers, st.data())
def test_whatever_protobuf_accepts_we_read_the_same_way(answer, data):
    text = bytearray(answer.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        if text:
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = pb.ListPodResourcesResponse.FromString(bytes(text))
    except DecodeError:
        return
    assert decode_grants(bytes(text)) == by_protobuf(expected)


def test_a_device_on_two_numa_nodes_is_one_grant():
    entry = {"resource_name": "nvidia.com/gpu", "device_ids": ["GPU-1"]}
    answer = one_container(devices=[entry | {"topology": {"nodes": [{"ID": n}]}} for n in (0, 1)])
    assert [g.device_id for g in decode_grants(answer.SerializeToString())] == ["GPU-1"]


def test_a_claim_is_a_grant_that_names_driver_pool_device_and_claim():
    resource = {"driver_name": "gpu.nvidia.com", "pool_name": "node-a", "device_name": "gpu-0"}
    answer = one_container(
        dynamic_resources=[{"claim_name": "train", "claim_namespace": "ml", "claim_resources": [resource]}]
    )
    assert decode_grants(answer.SerializeToString()) == (
        Grant(
            namespace="ml",
            pod="p",
            container="main",
            resource="gpu.nvidia.com",
            device_id="gpu-0",
            claim="ml/train",
            pool="node-a",
        ),
    )


@pytest.mark.parametrize(
    "unknown", ["98 06 05", "a1 06 0102030405060708", "9a 06 02 6869", "9b 06 08 05 9c 06", "9d 06 01020304"]
)
def test_a_field_of_a_newer_kubelet_is_skipped(unknown):
    answer = one_container(devices=[{"resource_name": "nvidia.com/gpu", "device_ids": ["0"]}])
    later = bytes.fromhex(unknown) + answer.SerializeToString()
    assert decode_grants(later) == by_protobuf(answer)


def test_a_cut_answer_is_refused():
    whole = one_container(devices=[{"resource_name": "nvidia.com/gpu", "device_ids": ["0"]}]).SerializeToString()
    for end in range(1, len(whole)):
        with pytest.raises(WireInvalid):
            decode_grants(whole[:end])


def test_a_field_that_comes_twice_counts_by_its_last_value():
    answer = one_container(devices=[{"resource_name": "nvidia.com/gpu", "device_ids": ["0"]}])
    pod = answer.pod_resources[0].SerializeToString() + b"\x0a\x05later"
    (grant,) = decode_grants(b"\x0a" + bytes([len(pod)]) + pod)
    assert grant.pod == "later"


@pytest.mark.parametrize("cut", ["9b06", "9b06 0805", "9b06 a306 a406", "9b06 9406", "9c06", "9e06", "0200", "80" * 11])
def test_groups_that_do_not_close_and_wild_tags_are_refused(cut):
    with pytest.raises(WireInvalid):
        decode_grants(bytes.fromhex(cut))


def test_what_is_inside_an_unknown_group_is_not_ours():
    answer = one_container(devices=[{"resource_name": "nvidia.com/gpu", "device_ids": ["0"]}]).SerializeToString()
    assert decode_grants(bytes.fromhex("9b06") + answer + bytes.fromhex("9c06")) == ()
