"""What panels show, over series whose every number is known: a real Prometheus, fed by remote write.

Two clusters, two replicas of each exporter. East has the nodes n1 (GPUs A and B) and n2 (C), west has n1 (D). A is
shared by two pods. B has two infos, as after a reboot that changed its index. Nothing is known of C's utilisation.
"""

import time

import pytest

from tests.contract.promworld import prometheus, write
from tests.dashboards.boards import panels
from tests.dashboards.engine import Engine
from vgpuscope.catalog import agent as n
from vgpuscope.catalog import analyzer as a
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import scheduling as s

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("dashboards")]
GIB = 1024.0**3
EVERY, SECONDS = 15, 1200
REPLICAS = ("a", "b")
# Panels that are rightly empty while nothing fails, or in the first minutes, and what they show otherwise.
EMPTY_ON_A_HEALTHY_DEMO = {
    "vgpuscope-health/GPUs that are not healthy": [{"node": "n1", "gpu_uuid": "GPU-b", "health": "lost"}],
    "vgpuscope-health/Sources that fail": [{"node": "n2", "source": "kubelet"}],
    "vgpuscope-health/Regions that are refused": [{"node": "n1", "reason": "version"}],
    "vgpuscope-health/Faults of the last analysis": [{"code": "QUERY_FAILED"}],
    "vgpuscope-utilisation/Success rate of the AI analysis": [{"provider": "openai"}],
    "vgpuscope-utilisation/Opinions of the language model": [{"ai_status": "active"}],
    "vgpuscope-workload/No kernel for more than five minutes": [
        {"node": "n1", "namespace": "ml", "pod": "notebook", "container": "main", "gpu_uuid": "GPU-a"}
    ],
}
EMPTY_QUERIES = {("vgpuscope-utilisation/No verdict", "B")}  # coverage is known only of a signal that is there


class World:
    """Series with the labels of a scrape, doubled as two replicas."""

    def __init__(self, now: float) -> None:
        self.times = [now - SECONDS + step * EVERY for step in range(SECONDS // EVERY + 1)]
        self.series: list = []

    def put(self, metric, value, *, cluster="east", since=0, **labels):
        """A constant, or a function of the seconds since the beginning; from `since` on."""
        for replica in REPLICAS:
            own = {"cluster": cluster, "job": "vgpuscope", "instance": f"{cluster}-{labels.get('node', '')}-{replica}"}
            at = [
                (when, float(value(when - self.times[0]) if callable(value) else value))
                for when in self.times
                if when - self.times[0] >= since
            ]
            self.series.append(({"__name__": metric.name, **own, **labels}, at))


def known(now: float) -> World:
    world = World(now)
    for cluster, node, gpu, index, used, utilisation in (
        ("east", "n1", "GPU-a", "0", 40, 0.6),
        ("east", "n1", "GPU-b", "1", 20, 0.0),
        ("east", "n2", "GPU-c", "0", 0, None),
        ("west", "n1", "GPU-d", "0", 80, 0.9),
    ):
        here = {"cluster": cluster, "node": node, "gpu_uuid": gpu}
        world.put(n.GPU_INFO, 1, **here, gpu_index=index, model="A100")
        world.put(n.GPU_MEMORY_TOTAL, 80 * GIB, **here)
        world.put(n.GPU_MEMORY_USED, used * GIB, **here)
        world.put(n.GPU_POWER, 100, **here)
        if utilisation is not None:
            world.put(n.GPU_UTILIZATION, utilisation, **here)
        for health in ("ok", "lost"):
            world.put(n.GPU_HEALTH, (health == "lost") == (gpu == "GPU-b"), **here, health=health)
    world.put(n.GPU_INFO, 1, node="n1", gpu_uuid="GPU-b", gpu_index="7", model="A100")
    tenants(world, now)
    services(world, now)
    scheduler(world)
    return world


def tenants(world: World, now: float) -> None:
    for pod, used, limit, sm in (("train", 30, 40, 0.5), ("notebook", 10, 40, 0.1)):
        held = {"node": "n1", "namespace": "ml", "pod": pod, "pod_uid": pod, "container": "main", "gpu_uuid": "GPU-a"}
        world.put(n.CONTAINER_INFO, 1, **held, mode="hami", allocated="true")
        world.put(n.CONTAINER_MEMORY_USED, used * GIB, **held)
        world.put(n.CONTAINER_SM, sm, **held)
        world.put(n.VGPU_MEMORY_USED, used * GIB, **held, vdevice_index="0")
        world.put(n.VGPU_MEMORY_LIMIT, limit * GIB, **held, vdevice_index="0")
        world.put(n.VGPU_LAST_KERNEL, now - (900 if pod == "notebook" else 5), **held, vdevice_index="0")
    free = {"node": "n1", "namespace": "ml", "pod": "free", "pod_uid": "f", "container": "main", "gpu_uuid": "GPU-b"}
    world.put(n.VGPU_MEMORY_USED, 5 * GIB, **free, vdevice_index="0")  # has no limit


def services(world: World, now: float) -> None:
    for cluster, node in (("east", "n1"), ("east", "n2"), ("west", "n1")):
        world.put(n.SAMPLE_TIME, now - 2, cluster=cluster, node=node)
        world.put(n.SAMPLES, lambda seconds: seconds, cluster=cluster, node=node)
        world.put(n.BUILD_INFO, 1, cluster=cluster, node=node, version="1")
    for source, up, absent in (("nvml", 1, 0), ("kubelet", 0, 0), ("ratio", 0, 1)):
        world.put(n.SOURCE_UP, up, node="n2", source=source)
        world.put(n.SOURCE_ABSENT, absent, node="n2", source=source)
        world.put(n.SOURCE_AGE_SECONDS, 77, node="n2", source=source)
    world.put(n.REGIONS_REFUSED, 2, node="n1", reason="version")
    world.put(a.FAULTS, 1, code="QUERY_FAILED")
    world.put(a.AI_REQUESTS, lambda seconds: 3 * seconds, provider="openai", outcome="success")
    world.put(a.AI_REQUESTS, lambda seconds: seconds, provider="openai", outcome="timeout")
    world.put(a.AI_CONFIDENCE, 0.9, gpu_id="GPU-b", pod="notebook", namespace="ml", ai_status="active")
    world.put(a.LAST_SUCCESS, now - 30)
    for verdict in ("idle", "unknown"):
        world.put(a.VERDICT, verdict == "unknown", hostname="n2", gpu_id="GPU-c", verdict=verdict)
        world.put(a.VERDICT, verdict == "idle", hostname="n1", gpu_id="GPU-b", verdict=verdict)
    for hostname, gpu in (("n1", "GPU-b"), ("n2", "GPU-c")):
        world.put(a.COVERAGE, 0.25, hostname=hostname, gpu_id=gpu)
        world.put(a.AGE, 40, hostname=hostname, gpu_id=gpu)
    xid = {"node": "n1", "gpu_uuid": "GPU-b", "action": "restart-machine", "fatal": "true"}
    world.put(n.GPU_XIDS, 1, since=SECONDS - 300, **xid, xid="79")  # its first event makes the series
    world.put(n.GPU_XIDS, 5, **xid, xid="13")  # old: none of it is new


def scheduler(world: World) -> None:
    """East has tried and always failed; west has no cluster exporter."""
    world.put(c.WATCH_UP, 1, kind="pods")
    world.put(s.BINDS, 0, scheduler="hami", result="success")
    world.put(s.BINDS, lambda seconds: seconds // 300, scheduler="hami", result="failure")
    for node, memory, allocated in (("n1", 160, 120), ("n2", 80, 0)):
        world.put(c.NODE_CAPACITY.memory, memory * GIB, node=node)
        world.put(c.NODE_CAPACITY.memory_allocated, allocated * GIB, node=node)
    world.put(c.CLUSTER_CAPACITY.memory, 240 * GIB)
    world.put(c.CLUSTER_CAPACITY.memory_allocated, 120 * GIB)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with prometheus(tmp_path_factory.mktemp("known")) as url:
        write(url, known(time.time()).series)
        yield Engine(url)


PANELS = {shown.id: shown for shown in panels("en")}


def answer(engine: Engine, name: str, **choice):
    return engine.panel(PANELS[f"vgpuscope-{name}"], choice)


def figure(engine: Engine, name: str, **choice) -> float | None:
    found = answer(engine, name, **choice)["A"]
    assert len(found) < 2, found
    return found[0].value if found else None


def test_a_shared_gpu_and_a_second_replica_count_once(engine):
    assert figure(engine, "overview/GPUs") == 4
    assert figure(engine, "overview/GPUs", cluster=["east"]) == 3
    assert figure(engine, "overview/Power") == 400
    assert figure(engine, "workload/Pods") == 2
    assert figure(engine, "workload/GPUs they are on") == 1
    assert figure(engine, "workload/Memory used") == 40 * GIB


def test_what_was_not_measured_is_not_zero(engine):
    assert figure(engine, "overview/GPU utilisation") == pytest.approx((0.6 + 0.0 + 0.9) / 3)
    rows = answer(engine, "node/GPUs of the node")
    assert {one.labels["gpu_uuid"] for one in rows["A"]} == {"GPU-a", "GPU-b", "GPU-d"}
    assert {one.labels["gpu_uuid"] for one in rows["B"]} == {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}


def test_two_infos_of_one_gpu_break_no_join(engine):
    rows = answer(engine, "node/Memory in use by GPU")["A"]
    assert sorted((one.labels["gpu_uuid"], one.value) for one in rows) == [
        ("GPU-a", 0.5),
        ("GPU-b", 0.25),
        ("GPU-c", 0.0),
        ("GPU-d", 1.0),
    ]


def test_nodes_of_one_name_in_two_clusters_stay_apart(engine):
    rows = answer(engine, "overview/Nodes")
    assert {(one.labels["cluster"], one.labels["node"], one.value) for one in rows["A"]} == {
        ("east", "n1", 2),
        ("east", "n2", 1),
        ("west", "n1", 1),
    }
    assert {(one.labels["node"], one.value) for one in rows["D"]} == {("n1", 0.75), ("n2", 0.0)}


def test_zero_is_shown_only_while_somebody_counts(engine):
    assert figure(engine, "overview/Pending pods", cluster=["east"]) == 0
    assert figure(engine, "overview/Pending pods", cluster=["west"]) is None
    assert figure(engine, "health/XID errors", cluster=["west"]) == 0
    assert figure(engine, "health/XID errors", cluster=["north"]) is None


def test_a_failure_rate_without_a_single_success_is_one(engine):
    assert figure(engine, "scheduling/Failure rate") == 1
    assert figure(engine, "scheduling/Failed attempts") == pytest.approx(4, abs=1)


def test_the_success_rate_of_the_model_counts_failures(engine):
    (found,) = answer(engine, "utilisation/Success rate of the AI analysis")["A"]
    assert found.value == pytest.approx(0.75)


def test_the_first_xid_of_a_gpu_counts_and_an_old_one_does_not(engine):
    (found,) = [one for one in answer(engine, "health/XID errors in the time range")["A"] if one.labels["xid"] == "79"]
    assert found.value == 1
    recent = engine.ask(PANELS["vgpuscope-health/XID errors"].queries[0]["expr"].replace("$__range", "600s")
                        .replace("$cluster", ".*").replace("$node", ".*"))  # fmt: skip
    assert [one.value for one in recent] == [1]


def test_a_container_without_a_limit_has_no_share_of_it(engine):
    shares = answer(engine, "workload/Memory as a share of the limit")["A"]
    assert {one.labels["pod"]: one.value for one in shares} == {"train": 0.75, "notebook": 0.25}
    unused = answer(engine, "sharing/Allocated but not used, by namespace")["A"]
    assert [(one.labels["namespace"], one.value) for one in unused] == [("ml", 40 * GIB)]


def test_the_allocation_rate_is_of_what_can_be_allocated(engine):
    assert figure(engine, "overview/Allocation rate") == 0.5


@pytest.mark.parametrize("name", EMPTY_ON_A_HEALTHY_DEMO)
def test_what_is_empty_while_all_is_well_is_not_when_something_fails(engine, name):
    (found,) = engine.panel(PANELS[name]).values()
    shown = [{k: v for k, v in one.labels.items() if k not in {"cluster", "gpu_index", "model"}} for one in found]
    assert shown == EMPTY_ON_A_HEALTHY_DEMO[name]


def test_only_gpus_without_a_verdict_are_listed_with_what_is_missing(engine):
    found = answer(engine, "utilisation/No verdict")
    assert [(one.labels["gpu_id"], one.value) for one in found["A"]] == [("GPU-c", 40)]
    assert [(one.labels["gpu_id"], one.value) for one in found["B"]] == [("GPU-c", 0.25)]


def test_the_clusters_are_offered(engine):
    (variable,) = [one for one in PANELS["vgpuscope-overview/GPUs"].variables if one["name"] == "cluster"]
    assert engine.label_values(variable, {}) == ["east", "west"]
