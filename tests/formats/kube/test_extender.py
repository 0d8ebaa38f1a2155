"""The extender protocol, with the bodies that a real kube-scheduler sent."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import REPOSITORY
from vgpuscope.formats.kube import extender as protocol
from vgpuscope.model.errors import BodyInvalid

RECORDED = REPOSITORY / "tests" / "fixtures" / "extender" / "v1.35"


def recorded(name):
    return (RECORDED / f"extender-{name}-request.json").read_bytes()


def test_names_of_nodes_are_read_if_the_scheduler_trusts_our_cache():
    args = protocol.decode_args(recorded("filter"))
    assert args.node_names == tuple(f"gpu-node-{number}" for number in range(5))
    assert args.nodes is None
    assert (args.head.namespace, args.head.name, args.head.version) == ("default", "gp5", "263")
    assert args.head.uid == "f743ac10-6864-4dab-93b0-41c3d91f0105"


def test_whole_nodes_are_read_if_it_does_not():
    args = protocol.decode_args(recorded("nocache-filter"))
    sent = json.loads(recorded("nocache-filter"))["Nodes"]["items"]
    assert args.node_names is None
    assert [protocol.node_name(one) for one in args.nodes] == [one["metadata"]["name"] for one in sent]


def test_a_binding_is_read():
    args = protocol.decode_binding_args(recorded("bind"))
    assert (args.name, args.namespace, args.node) == ("gp5", "default", "gpu-node-0")


def test_keys_are_read_in_any_case_as_go_does():
    body = {key.lower(): value for key, value in json.loads(recorded("filter")).items()}
    assert protocol.decode_args(json.dumps(body).encode()) is not None
    assert protocol.decode_binding_args(recorded("bind").lower()).name == "gp5"


def test_nodes_that_pass_are_answered_in_the_form_in_which_they_were_sent():
    args = protocol.decode_args(recorded("nocache-filter"))
    sent = json.loads(recorded("nocache-filter"))["Nodes"]
    every = json.loads(protocol.filter_result(args, None))
    assert (every["Nodes"], every["NodeNames"]) == (sent, None)
    one = json.loads(protocol.filter_result(args, ("gpu-node-1",), failed={"gpu-node-0": "2/2 CardNotHealth"}))
    assert [node["metadata"]["name"] for node in one["Nodes"]["items"]] == ["gpu-node-1"]
    assert one["FailedNodes"] == {"gpu-node-0": "2/2 CardNotHealth"}


def test_the_answers_have_exactly_the_keys_of_gos_structs():
    args = protocol.decode_args(recorded("filter"))
    keys = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    assert set(json.loads(protocol.filter_result(args, ("gpu-node-0",)))) == keys
    assert set(json.loads(protocol.filter_error("NOT: now"))) == keys
    assert json.loads(protocol.filter_error("NOT: now"))["Error"] == "NOT: now"
    assert json.loads(protocol.priorities([("a", 3)])) == [{"Host": "a", "Score": 3}]
    assert json.loads(protocol.binding_result("no")) == {"Error": "no"}


def test_an_earlier_assignment_is_told_from_a_later_one():
    pod = json.loads(recorded("filter"))["Pod"]
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1794767070",
        "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,8,30:;",
    }
    first = protocol.decode_pod_head(json.dumps(pod).encode())
    pod["metadata"]["annotations"]["hami.io/vgpu-time"] = "1794767071"
    second = protocol.decode_pod_head(json.dumps(pod).encode())
    assert first.assigned == second.assigned
    assert first.assignment != second.assignment


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"Pod": null, "NodeNames": []}',
        b'{"Pod": {"metadata": {}}, "NodeNames": []}',
        b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["n"]}',
        b'{"Pod": {"metadata": {"name": "p", "uid": "u"}}}',
        b'{"Pod": {"metadata": {"name": "p", "uid": "u"}}, "NodeNames": [1]}',
        b'{"Pod": {"metadata": {"name": "p", "uid": "u"}}, "Nodes": {"items": 3}}',
        b'{"Pod": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe",
    ],
)
def test_anything_else_is_refused_by_name(body):
    with pytest.raises(BodyInvalid):
        protocol.decode_args(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body):
    for decode in (protocol.decode_args, protocol.decode_binding_args):
        with suppress(BodyInvalid):
            decode(body)
