"""Where the API server has no admission policies, the webhook is asked who writes that a pod has a GPU."""

import json

import pytest

from tests.attack.test_admission import KEYS
from vgpuscope.config import Config
from vgpuscope.formats.kube.admission import decode_review
from vgpuscope.http.peers import Peers
from vgpuscope.services.extender.counters import ExtenderCounters
from vgpuscope.services.extender.process import Extender
from vgpuscope.services.extender.protocol import ExtenderPaths

pytestmark = pytest.mark.attack
EXTENDER = "system:serviceaccount:gpu:scope-vgpuscope-extender"


def review(user, after, before=None, *, labels=None, resource="Pod", sub=None):
    def item(notes, more):
        return {"metadata": {"name": "p", "namespace": "ml", "annotations": notes, "labels": more}, "spec": {}}

    asked = {
        "uid": "r",
        "operation": "CREATE" if before is None else "UPDATE",
        "kind": {"kind": resource},
        "userInfo": {"username": user},
        "object": item(after, labels),
        "oldObject": None if before is None else item(before, {}),
    } | ({"subResource": sub} if sub else {})
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return decode_review(json.dumps(body).encode())


def judged(one, *writers):
    config = Config().extender
    extender = Extender(type(config)(writers=writers))
    paths = ExtenderPaths(extender, peers=Peers(None, ()), tally=ExtenderCounters(), failed=lambda _: None)
    return paths._judged(one).code


@pytest.mark.parametrize("key", KEYS)
def test_who_is_not_named_writes_no_key_of_an_assignment(key):
    notes = {key: "n1"}
    for one in (
        review("mallory", notes),
        review("mallory", notes, {}),
        review("mallory", {}, notes),
        review("mallory", notes, {key: "n2"}),
        review("mallory", notes, {}, sub="status"),
        review("mallory", notes, resource="Binding", sub="binding"),
        review("mallory", notes | {"x": "y"}, labels={"hami.io/webhook": "ignore"}),
    ):
        assert judged(one, EXTENDER) == "SCHED_ADMISSION_DENIED"
    assert judged(review(EXTENDER, notes), EXTENDER) == ""


def test_a_label_that_names_a_node_is_one_of_them():
    assert judged(review("mallory", {}, labels={"hami.io/vgpu-node": "n1"}), EXTENDER) == "SCHED_ADMISSION_DENIED"


def test_everything_else_of_a_pod_is_its_tenants():
    same = dict.fromkeys(KEYS, "n1")
    policy = {"hami.io/gpu-scheduler-policy": "spread"}
    assert judged(review("mallory", same | policy, same), EXTENDER) == ""
    assert judged(review("mallory", policy, labels={"app": "x"}), EXTENDER) == ""
    assert judged(review("mallory", same)) == ""  # nobody is named: as with HAMi
