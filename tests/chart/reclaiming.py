"""Taking GPUs back in a real cluster, under the service account that Helm installed: workloads, and who frees them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.chart.cluster import Cluster, Object, definition
from tests.controlplane import until
from tests.logic.reclaim.test_machine import analysis, gpu, tenant
from vgpuscope.config import AnalyzerConfig, Config
from vgpuscope.config.kube import KubeConfig
from vgpuscope.config.reclaim import ControlConfig, ReclaimConfig
from vgpuscope.formats.kube.changes import ChangeAnnotation
from vgpuscope.model.analysis import Tenant
from vgpuscope.model.errors import CallFailed
from vgpuscope.model.reclaim import Case, ReclaimTarget
from vgpuscope.services.analyzer.reclaim.dependencies import ReclaimDependencies
from vgpuscope.services.analyzer.reclaim.kube import ReclaimKube
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.sinks.kube.reclaimer import ChangeReason
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.reclaim import ReclaimStore

GPU = "nvidia.com/gpu"
NODE = "gpu-idle"
SCALE: Object = {"config": {"reclaim": {"action": "scale"}, "control": {"enabled": True, "dry_run": False}}}
CUSTOM = [
    ("kubeflow.org", "v1", "Notebook", "notebooks"),
    ("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
]
WINDOW = 600.0


class Lease:
    def may_act(self, *, lasting: float = 0.0) -> bool:
        del lasting
        return True

    async def lasts(self, seconds: float) -> bool:
        return seconds < 15.0


class Workloads:
    """Objects of one namespace, as their owners make them."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, cluster.namespace(namespace)

    def template(self, labels: dict[str, str], *, devices: int = 1, **spec: object) -> Object:
        limits = {"limits": {GPU: str(devices)}} if devices else {}
        container = {"name": "c", "image": "i", "resources": limits}
        return {"metadata": {"labels": labels}, "spec": {"nodeName": NODE, "containers": [container], **spec}}

    def make(
        self,
        kind: str,
        name: str,
        spec: Object,
        *,
        api_version: str = "apps/v1",
        by: Object | None = None,
        **meta: Any,
    ) -> Object:
        owner = [reference(by)] if by else []
        about = {"name": name, "namespace": self.namespace, "ownerReferences": owner, **meta}
        return self.cluster.create({"apiVersion": api_version, "kind": kind, "metadata": about, "spec": spec})

    def deployment(self, name: str, *, replicas: int = 1, by: Object | None = None, **meta: Any) -> Object:
        labels = {"app": name}
        if by is not None:
            labels["serving.kserve.io/inferenceservice"] = by["metadata"]["name"]
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": self.template(labels)}
        return self.make("Deployment", name, spec, by=by, **meta)

    def stateful(self, name: str, *, replicas: int = 1, by: Object | None = None) -> Object:
        labels = {"app": name} | ({"notebook-name": by["metadata"]["name"]} if by else {})
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "serviceName": name,
            "template": self.template(labels),
            "podManagementPolicy": "Parallel",
        }
        return self.make("StatefulSet", name, spec, by=by)

    def job(self, name: str, *, parallelism: int = 1, **meta: Any) -> Object:
        spec = {"parallelism": parallelism, "template": self.template({}, restartPolicy="Never")}
        return self.make("Job", name, spec, api_version="batch/v1", **meta)

    def pod(self, name: str, **meta: Any) -> Object:
        template = self.template({"app": name})
        about = {"name": name, "namespace": self.namespace, "labels": {"app": name}, **meta}
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}
        return self.cluster.create(item)

    def now(self, item: Object) -> Object:
        found = self.cluster.get(item)
        assert found is not None, item["metadata"]["name"]
        return found

    def patch(self, item: Object, change: Object) -> Object:
        return self.cluster.call("PATCH", f"{self.cluster.path(item)}/{item['metadata']['name']}", change)

    def pods(self) -> list[Object]:
        """Those that are there to stay."""
        found = self.cluster.all("v1/pods", self.namespace)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def until_pods(self, number: int) -> list[Object]:
        until(lambda: len(self.pods()) == number)
        return self.pods()

    def events(self) -> list[Object]:
        found = self.cluster.all("events.k8s.io/v1/events", self.namespace)
        return [one for one in found if one.get("reportingController") == "vgpuscope"]


def reference(owner: Object) -> Object:
    meta = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return {**found, "name": meta["name"], "uid": meta["uid"]}


@dataclass
class Hand:
    """The machine with its store and the Kubernetes API; a test says which pods are idle."""

    workloads: Workloads
    kubeconfig: str
    engine: Engine
    config: Config = field(init=False)
    now: float = field(default=0.0)
    busy: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.config = Config(
            analyzer=AnalyzerConfig(kubeconfig=self.kubeconfig),
            kube=KubeConfig(enabled=True),
            control=ControlConfig(enabled=True, dry_run=False),
            reclaim=ReclaimConfig(
                action="scale",
                confirmations=1,
                grace=0.0,
                min_pod_age=0.0,
                max_fleet_share=1.0,
                max_per_hour=1000,
                max_per_namespace=1000,
            ),
        )
        self.store = ReclaimStore(self.engine)
        self.restart()

    def restart(self) -> None:
        """The process dies, and another one begins."""
        self.kube = ReclaimKube(lambda: self.config, clock=lambda: self.now)
        given = ReclaimDependencies(
            config=lambda: self.config,
            store=self.store,
            lead=Lease(),
            send={"scale": self.kube.scale, "restore": self.kube.restore},
            look_again=self.look,
            facts=self.kube.known,
            learn=(self.kube.learn,),
            kube=lambda: self.kube.state,
            clock=lambda: self.now,
        )
        self.machine = Reclaim(given)

    def change(self, **settings: Any) -> None:
        self.config = replace(self.config, reclaim=replace(self.config.reclaim, **settings))

    async def look(self) -> None:
        """An analysis of the pods that are there; each has a GPU of its own."""
        self.now += 1
        pods = await asyncio.to_thread(self.workloads.cluster.all, "v1/pods", self.workloads.namespace)
        gpus = [replace(gpu(number, self._use(pod)), hostname=NODE) for number, pod in enumerate(pods)]
        spare = [gpu(number) for number in range(len(pods), 20)]  # GPUs without a pod show that one is gone
        await self.machine.ticks.follow(analysis(self.now, *gpus, *spare))

    def _use(self, pod: Object) -> Any:
        meta = pod["metadata"]
        verdict = "in_use" if meta["name"] in self.busy else "idle"
        who = Tenant(namespace=meta["namespace"], pod=meta["name"], pod_uid=meta["uid"])
        return replace(tenant(meta["name"], verdict), tenant=who)

    async def window(self) -> None:
        self.now += WINDOW
        await self.look()

    async def decided(self) -> None:
        """Two windows: the first one shows the workload, the second one is based on what was read of it."""
        for _ in range(3):
            await self.window()

    async def stopped(self, why: ChangeReason) -> tuple[ReclaimTarget, ChangeAnnotation]:
        """The change itself, without the machine; again after a fresh look while a controller writes the object."""
        workload = self.case().workload
        while True:
            await self.kube.learn([workload], fresh=True, seen=())
            target = self.kube.known(workload).pod.target
            assert target is not None
            try:
                return target, await self.kube._reclaimer().stop(target, why, now=self.now)
            except CallFailed as e:
                if "(409)" not in str(e):
                    raise

    async def delivered(self) -> None:
        """A controller may write an object's status just then: the server refuses the change, and it is tried again."""
        await self.decided()
        await self.machine.deliveries.due()
        while any(call.status == "waiting" and "(409)" in call.error for call in await self.calls()):
            self.now += 400  # longer than any pause between two attempts
            await self.look()
            await self.machine.deliveries.due()

    def case(self, pod: Object | str = "") -> Case:
        name = pod if isinstance(pod, str) else pod["metadata"]["name"]
        found = [one for one in self.machine.cases.values() if not name or one.pod == name]
        [case] = found if name else found[:1]
        return case

    async def calls(self) -> list[Any]:
        return [call for case in self.machine.cases.values() for call in await self.store.calls_of(case.id)]


@asynccontextmanager
async def hand(workloads: Workloads, kubeconfig: str, engine: Engine, *, now: float) -> AsyncIterator[Hand]:
    one = Hand(workloads, kubeconfig, engine, now=now)
    try:
        yield one
    finally:
        await one.kube.close()


def prepared(cluster: Cluster) -> None:
    """The custom resources and the node of these tests."""
    cluster.define(definition(*one) for one in CUSTOM)
    cluster.add_node(NODE, {})


def mark(item: Object, name: str = "vgpuscope.io/reclaimed") -> Any:
    text = item["metadata"].get("annotations", {}).get(name)
    return None if text is None else msgspec.json.decode(text)
