"""Verdicts on MIG instances and their tenants, from pages that an agent with profiling values shows."""

import pytest

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.logic.console.gpus import gpu_row
from vgpuscope.logic.console.overview import power as fleet_power
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.scrape_window import WANTED, Pages
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Reading, Window

GPU = 'node="n1",gpu_uuid="GPU-1"'


def mig(name: str = "MIG-1") -> str:
    return f'{GPU},mig_uuid="{name}"'


def tenant(pod: str, name: str = "MIG-1") -> str:
    return f'namespace="ml",pod="{pod}",pod_uid="u-{pod}",container="main",{mig(name)}'


def instance(engine: float, *, pod: str = "p", name: str = "MIG-1", share: float = 1 / 7, **more: float) -> list[str]:
    """What the agent shows of an instance whose only tenant computes that share of the time."""
    own = {
        m.CONTAINER_PROCESSES: 1,
        m.CONTAINER_SM: engine * share,
        m.CONTAINER_SM_MEAN: engine * share,
        m.CONTAINER_SM_MAX: engine * share,
        m.CONTAINER_INSTANCE_SM: engine,
        m.CONTAINER_INSTANCE_SM_MEAN: engine,
        m.CONTAINER_INSTANCE_SM_MAX: engine,
        m.CONTAINER_SM_ERROR: more.get("error", 0.0),
    }
    shown = {
        m.MIG_MEMORY_USED: 1e9,
        m.MIG_MEMORY_TOTAL: 10e9,
        m.MIG_ENGINE_ACTIVE: engine,
        m.MIG_ENGINE_ACTIVE_MEAN: engine,
        m.MIG_ENGINE_ACTIVE_MAX: max(engine, more.get("burst", 0.0)),
        m.MIG_SM_ACTIVE: engine / 2,
        m.MIG_SM_ACTIVE_MEAN: engine / 2,
        m.MIG_SM_ACTIVE_MAX: engine / 2,
        m.MIG_DECODER: more.get("decoder", 0.0),
        m.MIG_DRAM_ACTIVE: more.get("dram", 0.0),
    }
    lines = [f"{metric.name}{{{tenant(pod, name)}}} {value}" for metric, value in own.items()]
    return lines + [f"{metric.name}{{{mig(name)}}} {value}" for metric, value in shown.items()]


def without(lines: list[str], *parts: str) -> list[str]:
    return [line for line in lines if not any(part in line.partition("{")[0] for part in parts)]


def judged(*lines: str):
    pages = Pages(instance="n1:9394")
    reader = PageReader(wanted=WANTED, meaning=pages.meaning)
    body = "".join(f"{line}\n" for line in lines).encode()
    for at in range(10, 310, 10):
        pages.take(float(at), reader.read(body))
    window = Window(begin=0.0, end=300.0, interval=10.0)
    tracks = tuple(pages.tracks(begin=0.0, end=300.0, interval=10.0))
    reading = Reading(window=window, tracks=tracks, schemas=("vgpuscope",), source="own", own=True)
    uses = assemble(
        reading, previous={}, weights=ScoreWeights(), thresholds=Thresholds(), rules=VerdictRules(), owners={}
    )
    return {use.mig: use for use in uses}


def verdicts(use):
    return use.verdict, [one.verdict for one in use.tenants]


def test_an_instance_and_its_tenant_are_idle_where_nothing_computed():
    use = judged(*instance(0.0))["MIG-1"]
    assert verdicts(use) == ("idle", ["idle"])
    assert use.evidence.signal == "sm_active"
    assert use.evidence.coverage == 1.0


def test_a_busy_instance_beside_an_idle_one_is_in_use_and_the_other_is_not():
    found = judged(*instance(0.8, pod="a"), *instance(0.0, pod="b", name="MIG-2"))
    assert verdicts(found["MIG-1"]) == ("in_use", ["in_use"])
    assert verdicts(found["MIG-2"]) == ("idle", ["idle"])


@pytest.mark.parametrize("engine", [0.06, 0.2, 0.34])
def test_a_seventh_of_a_gpu_that_works_a_little_is_in_use_though_that_is_little_of_the_gpu(engine):
    assert engine / 7 < VerdictRules().idle_enter
    assert verdicts(judged(*instance(engine))["MIG-1"]) == ("in_use", ["in_use"])


def test_a_burst_between_two_scrapes_is_in_the_agents_maximum():
    assert judged(*instance(0.0, burst=0.5))["MIG-1"].verdict == "in_use"


def test_video_that_an_instance_decodes_is_work():
    assert judged(*instance(0.0, decoder=0.4))["MIG-1"].verdict == "in_use"


def test_a_tenant_that_only_copies_is_not_idle_though_no_sm_is_busy():
    use = judged(*instance(0.0, dram=0.3))["MIG-1"]
    assert verdicts(use) == ("in_use", ["unknown"])  # the driver does not say whose copies these are
    assert (use.evidence.reasons[0], use.evidence.other_max) == ("VERDICT_MEMORY_TRAFFIC", 0.3)


def dcgm(**fields: float) -> list[str]:
    """What a dcgm-exporter shows of an instance of an A100, with the zeros that it writes for fields of whole GPUs."""
    labels = 'UUID="GPU-1",gpu="0",Hostname="n1",GPU_I_ID="7",GPU_I_PROFILE="1g.5gb",namespace="ml",pod="p"'
    idle = {"PROF_GR_ENGINE_ACTIVE": 0.0, "DEV_MEM_COPY_UTIL": 0.0, "DEV_FB_USED": 4000.0, "DEV_FB_FREE": 800.0}
    return [f"DCGM_FI_{name}{{{labels}}} {value}" for name, value in (idle | fields).items()]


@pytest.mark.parametrize("name", ["PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"])
def test_the_same_where_only_a_dcgm_exporter_sees_the_instance(name):
    busy, idle = (judged(*dcgm(**{name: value}))["GI-7"] for value in (0.3, 0.004))
    assert (verdicts(idle), idle.use_class) == (("idle", ["idle"]), "idle-held")
    assert verdicts(busy) == ("in_use", ["in_use"])
    assert (busy.evidence.reasons[0], busy.evidence.other_max) == ("VERDICT_MEMORY_TRAFFIC", 0.3)


@pytest.mark.parametrize("lines", [instance(0.0), dcgm(), without(instance(0.0), "_active", "_sm_", "decoder")])
@pytest.mark.parametrize("dram", [0.0, 0.01, 0.04, 0.06, 1.0])
def test_memory_bandwidth_never_makes_an_instance_idle_and_never_lowers_its_score(lines, dram):
    plain = without(lines, "dram")
    shown = [f"{m.MIG_DRAM_ACTIVE.name}{{{mig()}}} {dram}"] if "MIG-1" in lines[0] else dcgm(PROF_DRAM_ACTIVE=dram)[-1:]
    ((before,), (after,)) = (judged(*given).values() for given in (plain, [*plain, *shown]))
    assert after.verdict in {before.verdict, "in_use"}
    assert (after.score, after.tenants[0].score) == (before.score, before.tenants[0].score)


def test_without_a_value_that_shows_computing_the_instance_and_its_tenant_are_unknown():
    blind = without(instance(0.0), "_active", "_sm_", "decoder")
    use = judged(*blind)["MIG-1"]
    assert verdicts(use) == ("unknown", ["unknown"])
    assert use.evidence.reasons[0] == "VERDICT_MIG_NO_SIGNAL"


def test_the_best_signal_that_is_there_decides():
    only_engine = without(instance(0.0), "sm_active")
    assert judged(*only_engine)["MIG-1"].evidence.signal == "engine_active"


def test_how_far_a_tenants_figure_can_be_off_lowers_its_confidence_by_the_weight_of_the_term():
    sure, unsure = (judged(*instance(0.5, error=error))["MIG-1"].tenants[0].score for error in (0.0, 0.1))
    assert sure.value == unsure.value
    assert unsure.confidence == pytest.approx(sure.confidence - 0.5 * 0.1)


def test_instances_show_the_power_of_their_gpu_and_are_judged_without_it():
    """Our agent measures power for whole GPUs only; each instance shows it, as those of other exporters do."""
    lines = [*instance(0.0), *instance(0.5, pod="q", name="MIG-2")]
    power = [f"{m.GPU_POWER.name}{{{GPU}}} 212.5", f"{m.GPU_POWER_LIMIT.name}{{{GPU}}} 400"]
    before, after = judged(*lines), judged(*lines, *power)
    assert {name: use.terms["power"].mean for name, use in after.items()} == {"MIG-1": 212.5, "MIG-2": 212.5}
    for name, use in after.items():
        assert (use.verdict, use.use_class, use.score) == (
            before[name].verdict,
            before[name].use_class,
            before[name].score,
        )
    shown = [gpu_row(use, stale=False, cluster=None, facts=None) for use in after.values()]
    assert fleet_power(shown) == 212.5  # of the GPU once
