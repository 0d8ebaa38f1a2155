"""StatefulSets of the simulated pods: at 0 replicas their pods end, and with what was there they come back."""

import json

from vgpuscope.sim import controllers
from vgpuscope.sim.inbox import Inbox
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.kubeapi import Objects
from vgpuscope.sim.pods import pod_list
from vgpuscope.sim.posts import Asked
from vgpuscope.sim.world import World


def worlds():
    return [World(plan, seed=1, now=0.0) for plan in PLANS]


def published(of):
    objects = Objects()
    controllers.publish(objects, of)
    return objects


def test_every_set_that_a_pod_names_is_there_and_selects_it():
    made = worlds()
    objects = published(made)
    named = 0
    for world in made:
        lasting = {job.name for job in world.plan.jobs if not job.restarts}
        world.advance(1.0)
        for pod in pod_list(world)["items"]:
            owner = next(iter(pod["metadata"].get("ownerReferences", ())), None)
            if owner is None or owner["kind"] != "StatefulSet" or pod["metadata"]["name"] not in lasting:
                continue
            namespace = pod["metadata"]["namespace"]
            found = json.loads(objects.get("statefulsets", (namespace, owner["name"])))
            assert found["metadata"]["uid"] == owner["uid"]
            assert found["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            named += 1
    assert named > 10


def test_a_set_without_replicas_ends_its_pods_until_it_has_replicas_again():
    made = worlds()
    objects = published(made)
    key = ("serving", "mps-rank")
    assert controllers.ended(objects, made) == frozenset()
    objects.patch("statefulsets", key, {"spec": {"replicas": 0}})
    assert controllers.ended(objects, made) == {"serving/mps-rank-0", "serving/mps-rank-1"}
    controllers.publish(objects, made)  # what a client changed stays
    assert controllers.ended(objects, made) == {"serving/mps-rank-0", "serving/mps-rank-1"}
    objects.patch("statefulsets", key, {"spec": {"replicas": 2}})
    assert controllers.ended(objects, made) == frozenset()


def test_a_notice_is_shown_by_its_heading_and_kept():
    shown: list[str] = []
    inbox = Inbox(shown.append)
    sent = json.dumps({"version": "1.0", "title": "Idle GPUs", "message": "ml/a", "type": "info"}).encode()
    assert inbox.answer(Asked("POST", "/", {}, sent)).status == 200
    assert inbox.answer(Asked("POST", "/", {}, b"no JSON")).status == 400
    assert shown == ["Idle GPUs"]
    assert [one.message for one in inbox.messages] == ["ml/a"]
