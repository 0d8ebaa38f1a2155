"""Who owns a pod: the top of its controllers, or as far up as is known."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.cluster.owners import OwnerIndex as Owners
from vgpuscope.logic.cluster.owners import OwnerStep
from vgpuscope.model.allocation import Controller, PodState


class OwnerIndex(Owners):
    """With the pods, which the cluster's state keeps otherwise."""

    def __init__(self) -> None:
        self.pods: dict[str, PodState] = {}
        super().__init__(self.pods)

    def set_pod(self, pod: PodState) -> None:
        self.pods[pod.uid] = pod
        super().set_pod(pod)

    def forget(self, uid: str) -> None:
        del self.pods[uid]
        self.drop_pod()


def made(kind: str, name: str, api_version: str = "apps/v1") -> Controller:
    return Controller(api_version, kind, name, f"uid-{kind}-{name}")


def pod(controller: Controller | None, owner: str = "", name: str = "p-0") -> PodState:
    return PodState(uid=f"uid-{name}", namespace="ml", name=name, owner=owner, controller=controller)


def answered(book: OwnerIndex, above: dict[Controller, Controller]) -> dict[str, str]:
    """What the book says once everything that it asks for is answered."""
    for _ in range(20):
        for one in book.unknown():
            book.learn(one, above.get(one.controller))
    assert book.unknown() == []
    return dict(book.owners())


def test_a_notebooks_pod_is_the_notebooks():
    book, notebook = OwnerIndex(), made("Notebook", "carol", "kubeflow.org/v1")
    book.set_pod(pod(made("StatefulSet", "carol"), "StatefulSet/carol"))
    assert answered(book, {made("StatefulSet", "carol"): notebook}) == {"ml/p-0": "Notebook/carol"}
    assert book.owner("uid-p-0") == "Notebook/carol"


def test_the_way_goes_to_the_top_however_long_it_is():
    kinds = ("ReplicaSet", "Deployment", "Revision", "Configuration", "Service", "InferenceService")
    chain = [made(kind, "llama") for kind in kinds]
    book = OwnerIndex()
    book.set_pod(pod(chain[0], "Deployment/llama"))
    assert answered(book, dict(pairwise(chain))) == {"ml/p-0": "InferenceService/llama"}


def test_what_is_not_known_yet_is_the_pods_own_controller():
    book = OwnerIndex()
    book.set_pod(pod(made("ReplicaSet", "web-7d9f8b6c5"), "Deployment/web"))
    assert dict(book.owners()) == {"ml/p-0": "Deployment/web"}
    assert [one.controller.name for one in book.unknown()] == ["web-7d9f8b6c5"]


def test_a_controller_that_nothing_controls_keeps_what_the_labels_say():
    book = OwnerIndex()
    book.set_pod(pod(made("ReplicaSet", "web-7d9f8b6c5"), "Deployment/web"))
    assert answered(book, {}) == {"ml/p-0": "Deployment/web"}


def test_a_pod_that_nobody_made_has_no_owner():
    book = OwnerIndex()
    book.set_pod(pod(None))
    assert (dict(book.owners()), book.unknown(), book.owner("uid-p-0"), book.owner("other")) == ({}, [], "", "")


def test_nothing_is_asked_about_nodes():
    book = OwnerIndex()
    book.set_pod(pod(made("Node", "n1", "v1"), "Node/n1"))
    assert book.unknown() == []


def test_controllers_that_control_each_other_are_no_way_without_end():
    one, two = made("A", "a"), made("B", "b")
    book = OwnerIndex()
    book.set_pod(pod(one, "A/a"))
    assert answered(book, {one: two, two: one})["ml/p-0"] in {"A/a", "B/b"}


def test_pods_that_are_gone_are_forgotten_with_their_controllers():
    book = OwnerIndex()
    for number in range(5000):
        book.set_pod(pod(made("Job", f"j{number}"), name=f"p{number}"))
        book.learn(OwnerStep("ml", made("Job", f"j{number}")), made("CronJob", "nightly"))
        book.forget(f"uid-p{number}")
    assert len(book._above) + len(book._asked_for) < 2000
    assert dict(book.owners()) == {}


names = st.sampled_from("abcd")


@given(st.dictionaries(names, names), st.lists(names, max_size=5))
def test_the_owner_is_the_last_of_the_way_whatever_the_order_of_answers(links, pods):
    above = {made("K", low): made("K", high) for low, high in links.items()}
    book = OwnerIndex()
    for number, name in enumerate(pods):
        book.set_pod(pod(made("K", name), f"K/{name}", name=f"p{number}"))
    found = answered(book, above)
    for number, name in enumerate(pods):
        seen = [name]
        while seen[-1] in links and len(seen) < 8:
            seen.append(links[seen[-1]])
        assert found[f"ml/p{number}"] == f"K/{seen[-1]}"


@pytest.mark.attack
def test_a_pod_that_names_anothers_uid_does_not_end_its_chain():
    """The author of a pod writes its ownerReferences; the UID there can be another object's."""
    real, book = made("StatefulSet", "carol"), OwnerIndex()
    book.set_pod(pod(Controller("apps/v1", "StatefulSet", "no-such-object", real.uid), name="forged"))
    book.set_pod(pod(real, name="p-0"))
    found = answered(book, {real: made("Notebook", "carol")})
    assert found["ml/p-0"] == "Notebook/carol"
