"""A stranger has a page that Prometheus scrapes, and writes on it what it likes of GPUs and pods of others."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.attack.apiserver import Cluster, Object
from tests.attack.test_reclaim import CONFIG, deployment
from tests.logic.fleet.truth import gpu, pod, the
from tests.services.analyzer.promstub import END, STEP
from tests.services.analyzer.test_prometheus_reading import FULL, SIX, add, engine, read, server
from vgpuscope.catalog import agent as m
from vgpuscope.config import load
from vgpuscope.config.reclaim import ReclaimConfig
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.logic.reclaim.brakes import Brakes, TickFacts, WorkloadFacts
from vgpuscope.model.analysis import GpuUse
from vgpuscope.model.errors import ConfigInvalid, DcgmNotFound
from vgpuscope.model.pod import Pod
from vgpuscope.model.reclaim import Case, Policy, Share, Workload
from vgpuscope.services.analyzer.reclaim.kube import ReclaimKube
from vgpuscope.sources.node.dcgm import exporter_url

__all__ = ["engine", "server"]  # fixtures

pytestmark = pytest.mark.attack
MINE, OTHERS = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
ASSIGNED = "hami.io/vgpu-devices-allocated"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def kube(cluster):
    reads = ReclaimKube(lambda: CONFIG, connect=cluster.client, clock=lambda: 1000.0)
    yield reads
    await reads.close()


def on(pod: Object, gpu_id: str = MINE, hostname: str = "a") -> Workload:
    meta = pod["metadata"]
    return Workload(
        uid=meta["uid"], namespace="ml", pod=meta["name"], shares=(Share(gpu_id=gpu_id, hostname=hostname),)
    )


async def may_act(kube: ReclaimKube, workload: Workload) -> bool:
    await kube.learn([workload], fresh=True, seen=[workload.uid])
    facts = kube.known(workload).pod
    assert facts.read is (facts.target is not None)
    return facts.read


async def test_what_the_api_shows_a_pod_to_hold_may_be_taken(cluster, kube):
    [pod] = deployment(cluster, "web")
    assert await may_act(kube, on(pod))
    assert await may_act(kube, on(pod, hostname="A.example.internal"))
    pod["metadata"]["annotations"] = {ASSIGNED: f"{MINE},NVIDIA,1000,10:;"}
    assert await may_act(kube, on(pod))


PAGES = {
    "a GPU of another node": {"hostname": "b"},
    "a node that begins with the name of its node": {"hostname": "a2"},
    "no node": {"hostname": ""},
    "control characters for a node": {"hostname": "\x1b[2Ja"},
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("owned", [True, False])
async def test_a_page_that_names_a_pod_on_another_node_takes_nothing_from_it(cluster, kube, page, owned):
    pod = deployment(cluster, "web")[0] if owned else cluster.pod("bare")
    assert not await may_act(kube, on(pod, **page))
    [signal] = kube.known(on(pod)).signals
    assert signal.detail.isprintable()


@pytest.mark.parametrize(
    "assigned", [f"{OTHERS},NVIDIA,1000,10:;", ",,0,0:;", "", "nonsense", f"{OTHERS},NVIDIA,x,10:;"]
)
async def test_a_page_that_names_a_pod_on_a_gpu_that_it_was_not_assigned_takes_nothing_from_it(cluster, kube, assigned):
    [pod] = deployment(cluster, "web")
    pod["metadata"]["annotations"] = {ASSIGNED: assigned}
    assert not await may_act(kube, on(pod))


@pytest.mark.parametrize("node", ["a", ""])
async def test_a_bare_pod_that_has_no_gpu_or_no_node_is_not_evicted(cluster, kube, node):
    pod = cluster.pod("bare", gpus=0 if node else 1)
    pod["spec"]["nodeName"] = node
    assert not await may_act(kube, on(pod))


async def test_one_share_that_is_not_the_pods_keeps_it_from_all(cluster, kube):
    [pod] = deployment(cluster, "web")
    both = replace(on(pod), shares=(Share(gpu_id=MINE, hostname="a"), Share(gpu_id=OTHERS, hostname="b")))
    assert not await may_act(kube, both)


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def uses(server: Any) -> dict[str, GpuUse]:
    found = assemble(
        await read(server),
        previous={},
        weights=ScoreWeights(),
        thresholds=Thresholds(),
        rules=VerdictRules(),
        owners={},
    )
    return {use.gpu_id[-1]: use for use in found}


DCGM = {"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}
PAGE = {"job": "kubernetes-pods", "instance": "10.9.9.9:8000"}
AT_REST = {"gpu_util": 0.0, "mem_copy_util": 0.0, "fb_used": 100.0, "power_usage": 60.0, "sm_clock": 200.0}


@pytest.mark.parametrize("more_often", [1, 3])
async def test_a_page_that_calls_a_busy_gpu_idle_makes_it_neither_idle_nor_low(engine, server, more_often):
    add(engine, more=DCGM)
    for number in range(more_often):  # the page may have any number of series of the GPU
        add(engine, more=PAGE | {"container": "main", "extra": str(number)}, **AT_REST)
    use = (await uses(server))["0"]
    assert (use.verdict, use.status, use.score.value) == ("unknown", "unknown", None)
    assert use.evidence.reasons[0] == "VERDICT_TARGETS_DISAGREE"
    assert [one.verdict for one in use.tenants] == ["unknown"]
    assert use.jobs == ("dcgm-exporter", "kubernetes-pods")


async def test_a_page_in_the_shape_of_our_agent_does_not_displace_dcgm_exporter(engine, server):
    add(engine, more=DCGM)
    forged = {"gpu_uuid": "GPU-00000000", "node": "node-1", **PAGE}
    for metric, value in ((m.GPU_UTILIZATION, 0.0), (m.GPU_UTILIZATION_MEAN, 0.0), (m.GPU_UTILIZATION_MAX, 0.0)):
        engine.add(metric.name, [value] * FULL, **forged)
    engine.add(m.GPU_MEMORY_USED.name, [1e8] * FULL, **forged)
    use = (await uses(server))["0"]
    assert (use.verdict, use.status, use.score.value) == ("unknown", "unknown", None)


@pytest.mark.parametrize("busy", [30.0, 45.0])
async def test_a_page_that_lowers_a_gpu_by_less_lowers_nothing(engine, server, busy):
    add(engine, more=DCGM, gpu_util=busy)
    honest = (await uses(server))["0"]
    add(engine, more=PAGE, **AT_REST | {"fb_used": SIX["DCGM_FI_DEV_FB_USED"]})
    use = (await uses(server))["0"]
    assert use.verdict == "in_use"
    assert use.score.value >= honest.score.value - 1


async def test_two_exporters_of_one_node_that_agree_are_believed(engine, server):
    add(engine, more=DCGM)
    add(engine, more=DCGM | {"instance": "10.0.0.1:9401"}, gpu_util=[80.0, 100.0] * (FULL // 2))
    assert (await uses(server))["0"].verdict == "in_use"


async def test_an_exporter_that_restarted_does_not_contradict_itself(engine, server):
    half = FULL // 2
    add(engine, more=DCGM, count=half, until=END - half * STEP)
    add(engine, more=DCGM | {"instance": "10.0.0.7:9400"}, count=half, **AT_REST)
    assert (await uses(server))["0"].evidence.reasons[0] != "VERDICT_TARGETS_DISAGREE"


def test_the_numbers_of_a_new_tenant_do_not_contradict_those_of_the_window():
    whole = gpu(util=lambda t: 1.0 if t >= 540 else 0.0, copy=0.0, memory=1, total=80, schema="vgpuscope")
    late = gpu(util=1.0, copy=0.1, memory=1, total=80, begin=540, tenant=pod("a"))
    use = the(replace(whole, target="agent:9394"), replace(late, target="dcgm:9400"))
    assert "VERDICT_TARGETS_DISAGREE" not in use.evidence.reasons


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def holds_back(jobs: tuple[str, ...], policy: Policy) -> bool:
    share = Share(gpu_id=MINE, verdict="idle", jobs=jobs)
    case = Case(id="u", uid="u", namespace="ml", pod="p", since=0.0, first_idle=0.0, shares=(share,))
    return "job_untrusted" in Brakes(policy, TickFacts(now=1e9, leads=True, stored=True)).early(case, WorkloadFacts())


@pytest.mark.parametrize("job", ["kubernetes-pods", "", "node", "dcg", "my-app", "DCGM", "vgp", "my-app-2"])
def test_nothing_is_taken_by_the_series_of_another_job(job):
    policy = Policy(evidence_jobs=ReclaimConfig().evidence_jobs)
    assert holds_back((job,), policy)
    assert holds_back(("dcgm-exporter", "kubernetes-pods"), policy)
    assert not holds_back(("dcgm-exporter", "vgpuscope-agent"), policy)
    assert not holds_back((), policy)  # the analyzer's own scrapes


async def test_own_numbers_that_a_page_adds_for_a_pod_name_its_job(engine, server):
    """Of a shared GPU a page says that the victim's processes do nothing, and that another pod's do the work."""
    add(engine, more=DCGM | {"pod": "victim"})
    for name, sm in (("victim", 0.0), ("nobody", 0.95)):
        who = {"namespace": "ml", "pod": name, "container": "main", "gpu_uuid": "GPU-00000000", **PAGE}
        engine.add(m.CONTAINER_SM.name, [sm] * FULL, **who)
        engine.add(m.CONTAINER_SM_MAX.name, [sm] * FULL, **who)
        engine.add(m.CONTAINER_PROCESSES.name, [1.0] * FULL, **who)
    use = (await uses(server))["0"]
    assert "kubernetes-pods" in use.jobs
    [victim] = [one for one in use.tenants if one.tenant.pod == "victim"]
    assert victim.verdict == "idle"  # what a page says is shown
    assert holds_back(use.jobs, Policy(evidence_jobs=ReclaimConfig().evidence_jobs))


def test_a_pod_whose_image_a_tenant_named_dcgm_exporter_is_not_read_where_the_namespace_is_given():
    """Beside the real one it only made the choice impossible; without a real one it was believed."""

    def exporter(namespace: str, address: str) -> Pod:
        return Pod(uid=address, namespace=namespace, name="dcgm-exporter", phase="Running", dcgm=address)

    real, forged = exporter("gpu-operator", "10.1.2.3:9400"), exporter("team", "10.9.9.9:9400")
    assert exporter_url((forged, real), namespace="gpu-operator") == "http://10.1.2.3:9400/metrics"
    with pytest.raises(DcgmNotFound, match="gpu-operator"):
        exporter_url((forged,), namespace="gpu-operator")


@pytest.mark.parametrize("setting", ["auto:gpu-operator", "auto", "none", "http://10.1.2.3:9400"])
def test_the_setting_takes_a_namespace(setting):
    assert load(flags={"agent.dcgm": setting}, environ={}).config.agent.dcgm == setting


@pytest.mark.parametrize("setting", ["auto:", "auto:GPU Operator", "auto:a/b", "automatic"])
def test_the_setting_takes_nothing_like_a_namespace(setting):
    with pytest.raises(ConfigInvalid):
        load(flags={"agent.dcgm": setting}, environ={})
