"""A tenant who may do everything in its own namespace tries at random; nothing is said of, or given to, others by that.

A real API server, our extender and our exporter. The test plays kube-scheduler, the device plugins and the kubelets for
honest pods, and writes down what each of them was given. That account is the oracle: it shares no code with what it
judges. ATTACK_STEPS says how many steps are taken, and ATTACK_SECONDS for how long at most: 20,000 steps take an hour.
A failure shows the seed, and ATTACK_SEED repeats a run.
"""

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.attack.policies import BOTH, EXTENDER, Caller, policies, tenant
from tests.contract.clusterrun import exporter, registered
from tests.contract.extenderrun import RIGHTS, SCHEDULER, extender, gpu_pod, read_shares
from tests.controlplane import ApiError, ControlPlane, Object, pod
from tests.fuzz import SECONDS

pytestmark = [pytest.mark.attack, pytest.mark.real]

STEPS = int(os.environ.get("ATTACK_STEPS") or (150 if not SECONDS else 20_000))
NODES, SIZE, WITHIN = ("gpu-0", "gpu-1"), 100_000, 60.0  # MiB of each GPU; seconds until a watch has reported
HONEST, STRANGER = "ml", "evil"
KEYS = ("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate", "4pd.io/vgpu-ids-new")
DECISION = (KEYS[0], "hami.io/vgpu-node", "hami.io/vgpu-time", "vgpuscope.io/assignment-seal")
READS = {"nodes": ["list", "watch"], "pods": ["list", "watch"], "resourcequotas": ["list", "watch"]}
READS |= {f"{kind}.resource.k8s.io": ["list", "watch"] for kind in ("resourceslices", "resourceclaims")}
READS |= {"leases.coordination.k8s.io": ["list", "watch"], "events": ["list", "watch"]}
EVERYTHING = {
    "pods": ["create", "get", "patch", "update", "delete"],
    "pods/status": ["patch"],
    "pods/binding": ["create"],
    "leases.coordination.k8s.io": ["create", "patch", "get"],
}

Given = dict[str, int]  # MiB of each GPU


class World:
    """The cluster, and what the oracle knows of it."""

    def __init__(self, plane: ControlPlane, scheduler: str, shown: str, evil: Caller, seed: int) -> None:
        self.plane, self.scheduler, self.shown, self.evil = plane, scheduler, shown, evil
        self.random = random.Random(seed)
        self.http = httpx2.Client(timeout=30.0)
        self.given: dict[tuple[str, str], tuple[str, Given]] = {}  # pod → its node, and what it was honestly given
        self.notes: dict[tuple[str, str], dict[str, str]] = {}  # pod → what the scheduler wrote on it
        self.decisions: dict[tuple[str, str], list[list[str | None]]] = {}  # pod → all that was decided for it
        self.waiting: dict[tuple[str, str], tuple[str, Given]] = {}  # unbound pods that have such a decision now
        self.evils: list[str] = []
        self.number = self.refused = self.done = 0
        self.trail: list[str] = []  # what the tenant did

    # --- honest ---------------------------------------------------------------------------------------------------

    def name(self, word: str) -> str:
        self.number += 1
        return f"{word}-{self.number}"

    def call(self, verb: str, body: Object) -> Object:
        answer = self.http.post(f"{self.scheduler}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def filtered(self, name: str, namespace: str) -> Object | None:
        """The pod as the extender has assigned it, asked as kube-scheduler asks; None if it fits nowhere."""
        body = {"Pod": self.plane.get("pods", name, namespace=namespace), "NodeNames": list(NODES)}
        if not self.call("filter", body)["NodeNames"]:
            return None
        found = self.plane.get("pods", name, namespace=namespace)
        self.decisions.setdefault((namespace, name), []).append(decided(found))
        return found

    def bind(self, found: Object) -> str:
        meta = found["metadata"]
        node = meta["annotations"]["hami.io/vgpu-node"]
        body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return self.call("bind", body)["Error"]

    def schedule(self, name: str, namespace: str) -> None:
        """What kube-scheduler and the device plugin do; what the pod was given is written down."""
        found = self.filtered(name, namespace)
        if found is None:
            return
        notes = found["metadata"]["annotations"]
        error = self.bind(found)
        assert not error, error
        node = notes["hami.io/vgpu-node"]
        self.given[namespace, name], self.notes[namespace, name] = (node, shares_of(notes[KEYS[0]])), notes
        self.served(name, namespace, node)
        self.waiting = {}
        for gpu, used in self.used().items():
            assert used <= SIZE, f"{gpu} was given {used} MiB"

    def served(self, name: str, namespace: str, node: str) -> None:
        done = {"metadata": {"annotations": {"hami.io/bind-phase": "success", KEYS[1]: ";"}}}
        self.plane.patch("pods", name, done, namespace=namespace)
        self.plane.patch("nodes", node, {"metadata": {"annotations": {"hami.io/mutex.lock": None}}})

    def honest(self) -> None:
        pods = [name for space, name in self.given if space == HONEST]
        if len(pods) > 5 and self.random.random() < 0.6:
            name = self.random.choice(pods)
            self.plane.delete("pods", name, namespace=HONEST)
            del self.given[HONEST, name]
            return
        name = self.name("honest")
        self.plane.create(gpu_pod(name, memory=self.random.randrange(1000, 30000), cores=1))
        self.schedule(name, HONEST)

    def used(self) -> Given:
        used = {f"GPU-{node[-1]}-{gpu}": 0 for node in NODES for gpu in "ab"}
        for _, shares in (*self.given.values(), *self.waiting.values()):
            for gpu, memory in shares.items():
                used[gpu] += memory
        return used

    # --- the tenant -----------------------------------------------------------------------------------------------

    def forged(self) -> dict[str, str]:
        """Annotations: of a GPU or all of them, in a namespace's own words or copied from those of an honest pod."""
        if self.notes and self.random.random() < 0.4:
            notes = dict(self.random.choice(list(self.notes.values())))
        else:
            node = self.random.choice([*NODES, "nowhere"])
            gpus = self.random.sample(sorted(self.used()), self.random.randrange(1, 4))
            text = "".join(f"{gpu},NVIDIA,{self.random.choice((1, 5000, SIZE))},10:" for gpu in gpus) + ";"
            notes = {
                "hami.io/vgpu-node": node,
                self.random.choice(KEYS): text,
                "hami.io/vgpu-time": str(int(time.time())),
            }
        notes |= {"hami.io/bind-phase": self.random.choice(("allocating", "success", "failed"))}
        if self.random.random() < 0.3:
            notes["vgpuscope.io/assignment-seal"] = self.random.choice(("", "x", "a1b2c3d4.AAAA", "\u00e9.\u00e9"))
        return notes

    def create(self) -> None:
        limits = self.random.choice(({}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "10"}))
        node = self.random.choice((None, None, *NODES))
        item = pod(self.name("evil"), namespace=STRANGER, node=node, limits=limits, annotations=self.forged())
        item["spec"]["schedulerName"] = self.random.choice((SCHEDULER, "default-scheduler", "mine"))
        item["metadata"]["labels"] = {"hami.io/webhook": "ignore", "hami.io/vgpu-node": self.random.choice(NODES)}
        if self.random.random() < 0.3:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": True}
            item["metadata"]["ownerReferences"] = [owner]
        self.evil.create(item)
        self.evils.append(item["metadata"]["name"])

    def honestly(self) -> None:
        """Its own pods may be scheduled, too: then they are given what they request, and nothing else."""
        name = self.name("own")
        self.evil.create(gpu_pod(name, memory=self.random.randrange(1000, 20000), namespace=STRANGER))
        self.evils.append(name)
        before = None if self.random.random() < 0.5 else self.filtered(name, STRANGER)
        if before is None:
            self.schedule(name, STRANGER)
            return
        try:  # between the decision and the binding it takes more
            self.evil.annotate(f"namespaces/{STRANGER}/pods/{name}", **self.forged())
        except ApiError:
            self.schedule(name, STRANGER)
            raise
        found = self.plane.get("pods", name, namespace=STRANGER)
        if decided(found) == decided(before):
            self.schedule(name, STRANGER)
            return
        assert self.bind(found), "an assignment that the scheduler did not make was bound"
        assert not self.plane.get("pods", name, namespace=STRANGER)["spec"].get("nodeName")

    def change(self) -> None:
        name = self.random.choice(self.evils)
        where = f"namespaces/{STRANGER}/pods/{name}{self.random.choice(('', '', '/status'))}"
        notes: Mapping[str, str | None] = self.forged()
        if self.random.random() < 0.3:
            notes = dict.fromkeys((*KEYS, "hami.io/vgpu-node", "vgpuscope.io/assignment-seal"))
        self.evil.annotate(where, **notes)

    def back(self) -> None:
        """It puts back what the scheduler once wrote on one of its pods, and binds that by itself."""
        pods = [name for space, name in self.decisions if space == STRANGER and name in self.evils]
        if not pods:
            return self.bound()
        name = self.random.choice(pods)
        notes = dict(zip(DECISION, self.random.choice(self.decisions[STRANGER, name]), strict=True))
        self.evil.annotate(f"namespaces/{STRANGER}/pods/{name}", **notes, **{KEYS[1]: notes[KEYS[0]]})
        if self.random.random() < 0.5:
            self.binds(name, str(notes["hami.io/vgpu-node"]), {"hami.io/bind-phase": "allocating"})
        return None

    def bound(self) -> None:
        self.binds(self.random.choice(self.evils), self.random.choice(NODES), self.forged())

    def binds(self, name: str, node: str, notes: Mapping[str, str]) -> None:
        meta = {"name": name, "namespace": STRANGER, "annotations": dict(notes)}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        path = f"/api/v1/namespaces/{STRANGER}/pods/{name}/binding"
        self.plane.call("POST", path, body, token=self.evil.token)

    def remove(self) -> None:
        name = self.evils.pop(self.random.randrange(len(self.evils)))
        self.given.pop((STRANGER, name), None)
        self.evil.delete(f"namespaces/{STRANGER}/pods/{name}")

    def lease(self) -> None:
        meta = {"name": "vgpuscope-extender", "namespace": STRANGER}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        body["spec"] = {"holderIdentity": "evil", "leaseDurationSeconds": 1000}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{STRANGER}/leases"
        self.plane.call("POST", path, body, token=self.evil.token)

    def step(self) -> None:
        few, many = len(self.evils) < 3, len(self.evils) > 25
        often, seldom = (
            (self.create, self.change, self.change, self.bound),
            (self.honestly, self.remove, self.lease, self.back),
        )
        tenants = [*often, *often, *often, *seldom]
        does: Callable[[], None] = self.random.choice(tenants)
        if few and does in {self.change, self.bound, self.back, self.remove}:
            does = self.create
        if many and does in {self.create, self.honestly}:
            does = self.remove
        self.trail.append(does.__name__)
        try:
            does()
            self.done += 1
        except ApiError as e:
            if e.status not in {400, 403, 404, 409, 422}:
                raise
            self.refused += 1

    # --- what is said -----------------------------------------------------------------------------------------------

    def said(self) -> dict[str, dict[tuple[str, str], int]]:
        """MiB of each pod on each GPU, as the exporter says."""
        found: dict[str, dict[tuple[str, str], int]] = {}
        for node in self.http.get(f"{self.shown}/api/v1/nodes").json():
            for one in node["holders"]:
                gpu = found.setdefault(one["device"], {})
                key = (one["namespace"], one["pod"])
                gpu[key] = gpu.get(key, 0) + one["memory"] // 2**20
        return found

    def truth(self) -> dict[str, dict[tuple[str, str], int]]:
        found: dict[str, dict[tuple[str, str], int]] = {}
        for key, (_, shares) in (self.given | self.waiting).items():
            for gpu, memory in shares.items():
                found.setdefault(gpu, {})[key] = memory
        return found

    def fits(self, memory: int) -> bool:
        """Whether the extender has room for one GPU with so much memory."""
        manifest = {"apiVersion": "v1", **gpu_pod("probe", memory=memory, cores=0)}
        answer = self.http.post(f"{self.scheduler}/api/v1/fit", json={"pod": manifest})
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["fitting"])

    def agrees(self) -> bool:
        free = SIZE - min(self.used().values())
        return self.said() == self.truth() and self.fits(free) and not self.fits(free + 1)

    def look_at_waiting(self) -> None:
        """A pod that waits holds what the scheduler has decided for it, also if its tenant puts that back."""
        self.waiting = {}
        for key, decisions in self.decisions.items():
            space, name = key
            found = self.plane.list("pods", namespace=space, fieldSelector=f"metadata.name={name}")
            if key not in self.given and found and not found[0]["spec"].get("nodeName"):
                notes = decided(found[0])
                if notes in decisions and notes[0]:
                    self.waiting[key] = (str(notes[1]), shares_of(notes[0]))

    def differences(self) -> str:
        """Which pods are said to hold something else than they were given, as the API server has them."""
        said = {(key, gpu): memory for gpu, found in self.said().items() for key, memory in found.items()}
        truth = {(key, gpu): memory for gpu, found in self.truth().items() for key, memory in found.items()}
        odd = sorted({key for (key, _), _ in said.items() ^ truth.items()})
        there = [
            one
            for space, name in odd
            for one in self.plane.list("pods", namespace=space)
            if one["metadata"]["name"] == name
        ]
        for one in there:
            one["metadata"].pop("managedFields", None)
        return f"{odd}: {json.dumps(there)}; {self.trail[-12:]}"

    def check(self) -> None:
        """Both say what the oracle knows, once their watches have reported."""
        end = time.monotonic() + WITHIN
        while not self.agrees():
            self.look_at_waiting()
            assert time.monotonic() < end, self.differences()
            time.sleep(0.02)  # between two looks, not in place of one


def shares_of(text: str) -> Given:
    shares: Given = {}
    for gpu, memory, _ in read_shares(text):
        shares[gpu] = shares.get(gpu, 0) + memory
    return shares


def decided(found: Object) -> list[str | None]:
    """What the scheduler's decision consists of."""
    notes = found["metadata"].get("annotations", {})
    return [notes.get(key) for key in DECISION]


@contextmanager
def running(plane: ControlPlane, path: Any, seed: int) -> Iterator[World]:
    for name in NODES:
        plane.create(
            registered(name, *(f"GPU-{name[-1]}-{gpu}" for gpu in "ab"), memory=SIZE, count=100, devcore=10000)
        )
    keys = path / "keys"
    keys.write_text(f"{int(time.time()) - 3600} {'k' * 40}\n")
    kubeconfig, reader = plane.user(EXTENDER, RIGHTS), plane.user("exporter", READS)
    plane.namespace(STRANGER)
    evil = tenant(plane, "evil", EVERYTHING)
    with (
        extender(kubeconfig, path, environ={"VGPUSCOPE_EXTENDER_SEAL_KEYS": str(keys)}) as decides,
        exporter(reader, path, environ={"VGPUSCOPE_CLUSTER_SEAL_KEYS": str(keys)}) as shows,
    ):
        world = World(plane, decides.url, shows.url, evil, seed)
        with world.http:
            yield world


@pytest.mark.parametrize("guarded", [False, True], ids=["seals alone", "with policies"])
def test_a_fuzzing_tenant_changes_nothing_of_others(empty_cluster, tmp_path, guarded):
    seed = int(os.environ.get("ATTACK_SEED") or random.randrange(2**32))
    with running(empty_cluster, tmp_path, seed) as world:
        force = policies(empty_cluster, BOTH) if guarded else None
        if force is not None:
            force.__enter__()
        try:
            end, number = time.monotonic() + (SECONDS or math.inf), 0
            for number in range(STEPS):
                if time.monotonic() > end:
                    break
                if number % 15 == 0:
                    world.honest()
                world.step()
                try:
                    world.check()
                except AssertionError as e:
                    raise AssertionError(f"seed {seed}, step {number}: {e}") from e
            world.honest()
            world.check()
        finally:
            if force is not None:
                force.__exit__(None, None, None)
    assert world.done > number // 20, (world.done, world.refused)
    print(json.dumps({"steps": number + 1, "done": world.done, "refused": world.refused, "seed": seed}))
