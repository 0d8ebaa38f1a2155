"""The rows of GPUs: what a part knows is there, what none knows is null, and old values lead to no conclusion."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.logic.console.clusters import GIB, device, holder, node
from tests.store import fleets
from vgpuscope.catalog import agent as m
from vgpuscope.logic.console.facts import folded
from vgpuscope.logic.console.gpus import gpu_rows, ledgers
from vgpuscope.model.analysis import Evidence, Score, Stat
from vgpuscope.model.console.facts import LabelledValues
from vgpuscope.model.console.gpus import GpuRow

GPU = fleets.gpu(0).gpu_id
UNSEEN = fleets.gpu(9).gpu_id


def rows(*gpus, nodes=(), facts=None, stale=False):
    found = ledgers(nodes) if nodes else None
    return gpu_rows(fleets.analysis(fleets.NOON, *gpus), stale=stale, cluster=found, facts=facts)


def test_a_gpu_has_what_the_scheduler_allocated_of_it():
    alone = fleets.tenant("train", own=True)
    (row,) = rows(
        fleets.gpu(0, tenants=(alone,), gpu_index="3"),
        nodes=[node("node-0", device(GPU, allocated=100 * GIB, cores=30), holders=(holder(GPU, "train", cores=30),))],
    )
    assert (row.index, row.held, row.shared) == (3, True, False)
    assert (row.allocation.memory, row.allocation.memory_ratio, row.allocation.cores) == (100 * GIB, 1.25, 30)
    (tenant,) = row.tenants
    assert (tenant.memory_allocated, tenant.cores_allocated, tenant.pod_uid) == (GIB, 30, "uid-train")


def test_a_container_has_only_its_own_allocation_and_not_that_of_its_neighbours():
    both = (fleets.tenant("web", container="a"), fleets.tenant("web", container="b"))
    held = (holder(GPU, "web", container="a", memory=2 * GIB), holder(GPU, "web", container="b", memory=3 * GIB))
    (row,) = rows(fleets.gpu(0, tenants=both), nodes=[node("node-0", device(GPU), holders=held)])
    assert [one.memory_allocated for one in row.tenants] == [2 * GIB, 3 * GIB]


def test_a_gpu_that_only_the_scheduler_knows_has_what_the_ledger_says_of_it():
    registered = node("node-9", device(UNSEEN, type="H100", physical=80 * GIB), holders=(holder(UNSEEN, "lost"),))
    silent = fleets.gpu(
        9, hostname="node-9", unreported=True, tenants=(fleets.tenant("lost", verdict="unknown", use_class="unknown"),)
    )
    seen, unseen = rows(fleets.gpu(0, verdict="in_use"), silent, nodes=[registered])
    assert (seen.gpu_id, seen.allocation) == (GPU, None)
    assert (unseen.gpu_id, unseen.node, unseen.memory_total, unseen.held) == (UNSEEN, "node-9", 80 * GIB, True)
    assert [(one.pod, one.memory_allocated, one.verdict) for one in unseen.tenants] == [("lost", GIB, "unknown")]


def test_before_the_first_analysis_the_registered_gpus_are_listed_as_unknown():
    registered = node("node-9", device(UNSEEN, type="H100", physical=80 * GIB), holders=(holder(UNSEEN, "lost"),))
    (unseen,) = gpu_rows(None, stale=False, cluster=ledgers([registered]), facts=None)
    assert (unseen.gpu_id, unseen.node, unseen.model) == (UNSEEN, "node-9", "H100")
    assert (unseen.verdict, unseen.use_class, unseen.status) == ("unknown", "unknown", "unknown")
    assert (unseen.use.mean, unseen.memory_used, unseen.score) == (None, None, None)
    assert unseen.reasons == ("VERDICT_UNREPORTED",)
    assert [(one.pod, one.memory_allocated, one.verdict) for one in unseen.tenants] == [("lost", GIB, "unknown")]


def test_the_agent_says_how_a_gpu_is_shared_and_dra_is_known_from_the_register():
    facts = folded([LabelledValues({"gpu_uuid": GPU, "mode": "time-slicing"}, {m.GPU_MODE.name: 1.0})])
    assert rows(fleets.gpu(0), facts=facts)[0].mode == "time-slicing"
    assert rows(fleets.gpu(0), nodes=[node("n", device(GPU))])[0].mode == "hami"
    assert rows(fleets.gpu(0), nodes=[node("n", device(GPU, mode="dra"))], facts=facts)[0].mode == "dra"
    assert rows(fleets.gpu(0, mig="MIG-a"), facts=facts)[0].mode == "mig"
    assert rows(fleets.gpu(0))[0].mode is None


def test_a_tenant_has_what_its_agent_shows_of_it():
    who = {"gpu_uuid": GPU, "namespace": "ml", "pod": "train", "container": "main", "pod_uid": "u"}
    shown = {
        (m.VGPU_SM_LIMIT, ()): 0.3,
        (m.VGPU_MEMORY_LIMIT, ()): 8.0 * GIB,
        (m.VGPU_LAST_KERNEL, ()): fleets.NOON,
        (m.VGPU_BLOCKED, ()): 1.0,
        (m.VGPU_PRIORITY, ()): 1.0,
        (m.CONTAINER_STATE, (("state", "idle"),)): 1.0,
        (m.CONTAINER_STATE, (("state", "active"),)): 0.0,
        (m.CONTAINER_INFO, (("mode", "hami"), ("allocated", "false"))): 1.0,
    }
    facts = folded(
        [LabelledValues({**who, **dict(more)}, {metric.name: value}) for (metric, more), value in shown.items()]
    )
    (row,) = rows(fleets.gpu(0, tenants=(fleets.tenant("train"),)), facts=facts)
    (tenant,) = row.tenants
    assert (tenant.cores_limit, tenant.memory_limit, tenant.state, tenant.allocated) == (30, 8 * GIB, "idle", False)
    assert (tenant.blocked, tenant.priority, tenant.last_kernel) == (True, 1, "2026-09-21T12:00:00Z")


def test_labels_that_prometheus_renamed_are_the_agents():
    theirs = {"pod": "agent-x", "exported_pod": "train", "namespace": "monitoring", "exported_namespace": "ml"}
    seen = LabelledValues({**theirs, "exported_container": "main", "gpu_uuid": GPU}, {m.VGPU_BLOCKED.name: 0.0})
    (row,) = rows(fleets.gpu(0, tenants=(fleets.tenant("train"),)), facts=folded([seen]))
    assert row.tenants[0].blocked is False


def test_a_temperature_of_dcgm_exporter_counts_where_there_is_no_agent():
    theirs = LabelledValues({"UUID": GPU, "pod": "train", "namespace": "ml"}, {"DCGM_FI_DEV_GPU_TEMP": 70.0})
    own = LabelledValues({"gpu_uuid": GPU}, {m.GPU_TEMPERATURE.name: 60.0})
    for samples, shown in (([theirs], 70.0), ([theirs, own], 60.0), ([own, theirs], 60.0)):
        (row,) = rows(fleets.gpu(0), facts=folded(samples))
        assert row.temperature == shown


def test_a_tenant_that_has_the_gpu_alone_is_as_busy_as_the_gpu_and_one_of_several_is_not():
    terms = {"mem_used": Stat(mean=5.0, max=7.0)}
    verdict = {"verdict": "in_use", "use_class": "busy"}
    lone, other = fleets.tenant("a", **verdict), fleets.tenant("b", **verdict)
    (row,) = rows(fleets.gpu(0, tenants=(lone,), terms=terms, score=Score(value=50.0), **verdict))
    assert (row.tenants[0].memory_used, row.tenants[0].memory_max, row.tenants[0].score) == (5, 7, 50.0)
    (row,) = rows(fleets.gpu(0, tenants=(lone, other), terms=terms, score=Score(value=50.0), **verdict))
    assert {(one.memory_used, one.score) for one in row.tenants} == {(None, None)}


def test_a_tenant_alone_has_the_time_in_which_kernels_ran_and_not_the_activity_of_sms():
    verdict = {"verdict": "in_use", "use_class": "busy"}
    few = Evidence(signal="sm_active", signal_mean=0.1, signal_max=0.2)

    def use(**terms):
        measured = {name: Stat(mean=value, max=value) for name, value in terms.items()}
        gpu = fleets.gpu(0, tenants=(fleets.tenant("a", **verdict),), terms=measured, evidence=few, **verdict)
        return rows(gpu)[0].tenants[0].use.mean

    assert use(sm_active=0.1, gpu_util=0.9, engine_active=0.8) == 0.9
    assert use(sm_active=0.1, engine_active=0.8) == 0.8  # of a MIG instance
    assert use(sm_active=0.1) is None


@given(fleets.analyses(), st.booleans())
def test_every_gpu_and_tenant_has_one_row_and_reads_back(analysis, stale):
    made = gpu_rows(analysis, stale=stale, cluster=None, facts=None)
    assert sorted((row.gpu_id, row.mig or "") for row in made) == sorted((gpu.gpu_id, gpu.mig) for gpu in analysis.gpus)
    assert sum(len(row.tenants) for row in made) == sum(len(gpu.tenants) for gpu in analysis.gpus)
    assert msgspec.json.decode(msgspec.json.encode(made), type=tuple[GpuRow, ...]) == made


@given(fleets.analyses())
def test_nothing_is_concluded_from_what_is_old(analysis):
    for row in gpu_rows(analysis, stale=True, cluster=None, facts=None):
        assert (row.verdict, row.use_class, row.status, row.idle_since) == ("unknown", "unknown", "unknown", None)
        for one in row.tenants:
            assert (one.verdict, one.use_class, one.status, one.idle_since) == ("unknown", "unknown", "unknown", None)


@given(fleets.analyses())
def test_no_text_is_empty(analysis):
    """What is not known is null, so that a client needs one test and not two."""
    for row in gpu_rows(analysis, stale=False, cluster=None, facts=None):
        texts = {
            name: getattr(row, name) for name in ("mig", "profile", "node", "model", "mode", "health", "last_seen")
        }
        assert "" not in texts.values(), texts
        for tenant in row.tenants:
            assert "" not in {tenant.pod_uid, tenant.container, tenant.owner, tenant.state}
