"""The StatefulSets of simulated pods at the API: who scales one to 0, or evicts a pod, ends pods of the nodes."""

from collections import defaultdict
from collections.abc import Iterable

from vgpuscope.sim.jobs import Job
from vgpuscope.sim.kubeapi import Json, ObjectKey, Objects
from vgpuscope.sim.pods import container, stateful_set, uid_of
from vgpuscope.sim.world import World


def publish(objects: Objects, worlds: Iterable[World]) -> None:
    """Passes the StatefulSets to the API; what clients changed in them stays."""
    jobs = [job for world in worlds for job in world.plan.jobs]
    objects.replace("statefulsets", [_stateful_set(key, own) for key, own in _by_set(jobs).items()])


def ended(objects: Objects, worlds: Iterable[World]) -> frozenset[str]:
    """NAMESPACE/NAME of the jobs whose StatefulSet has no replicas, and of those whose pod was evicted."""
    sets = _by_set(job for world in worlds for job in world.plan.jobs)
    at_rest = [one["metadata"] for one in objects.contents("statefulsets") if one["spec"]["replicas"] == 0]
    jobs = [job for one in at_rest for job in sets[one["namespace"], one["name"]]]
    return frozenset({*(f"{job.namespace}/{job.name}" for job in jobs), *map("/".join, objects.evicted)})


def _by_set(jobs: Iterable[Job]) -> dict[ObjectKey, list[Job]]:
    """The jobs of each StatefulSet. Pods of a job that comes again have names of their own, and no set."""
    found: defaultdict[ObjectKey, list[Job]] = defaultdict(list)
    for job in jobs:
        if not (job.host or job.static or job.restarts) and stateful_set(job.name):
            found[job.namespace, stateful_set(job.name)].append(job)
    return dict(found)


def _stateful_set(key: ObjectKey, jobs: list[Job]) -> Json:
    namespace, name = key
    labels = {"app": name}
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": uid_of("StatefulSet", namespace, name)},
        "spec": {
            "replicas": len(jobs),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container(jobs[0])]}},
        },
    }
