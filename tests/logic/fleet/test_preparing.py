"""A GPU that is idle while the CPUs of its tenant are busy: idle-preparing, and only if the CPUs were measured."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.fleet.test_assembly import A, B, fleet, only, own, terms, track
from tests.logic.fleet.test_verdict import ACTIVITY, IDLE, circumstances, found, readings, seen
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Stat
from vgpuscope.views.fleet.evidence import sentences

GIB = 2**30
LEAST = VerdictRules().preparing_cpu
HELD = {"mem_used": Stat(mean=9.0 * GIB, samples=20), "mem_total": Stat(mean=80.0 * GIB, samples=20)}


def using(cores, base, most=None):
    """The track of a tenant that uses so many CPU cores."""
    return replace(base, terms={**base.terms, "cpu": Stat(mean=cores, max=most, samples=20)})


@given(readings, circumstances, st.none() | st.floats(0, 1000), st.none() | st.floats(0, 1000))
def test_cpu_use_never_changes_a_verdict(terms, around, cores, most):
    without, with_it = found(terms, **around), found(terms, **around, cpu=cores, cpu_max=most)
    assert with_it[0] == without[0]
    assert with_it[1] == without[1] or (without[0] == "idle" and with_it[1] == "idle-preparing")


@given(readings, circumstances)
def test_without_cpu_metrics_nothing_is_preparing(terms, around):
    assert found(terms, **around)[1] != "idle-preparing"


@given(st.floats(0, 1000))
def test_a_tenant_prepares_from_the_threshold_on(cores):
    use_class = found(IDLE, cpu=cores)[1]
    assert use_class == ("idle-preparing" if cores >= LEAST else "idle")


@pytest.mark.parametrize("term", ACTIVITY)
def test_a_gpu_that_works_is_in_use_whatever_its_cpus_do(term):
    assert found({**IDLE, term: seen(0.5)}, cpu=50.0)[0] == "in_use"


def test_busy_cpus_say_more_than_memory_that_is_held_and_both_are_told():
    verdict, use_class, evidence = found({**IDLE, **HELD}, cpu=3.0)
    assert (verdict, use_class) == ("idle", "idle-preparing")
    assert evidence.reasons == ("VERDICT_IDLE_NO_WORK", "VERDICT_IDLE_CPU_BUSY", "VERDICT_IDLE_MEMORY_HELD")
    assert evidence.cpu == 3.0


@pytest.mark.parametrize(("lang", "words"), [("en", "used 3.2 CPU cores"), ("zh", "3.2 个 CPU 核")])
def test_the_evidence_says_how_busy_the_cpus_were(lang, words):
    assert words in sentences(found(IDLE, cpu=3.2)[2], lang)[1]


@pytest.mark.parametrize(
    ("lang", "words"),
    [("en", "used up to 2 CPU cores (0.2 on average)"), ("zh", "最多使用了 2 个 CPU 核（平均 0.2 个）")],
)
def test_a_loader_that_has_just_begun_prepares_though_the_mean_of_the_window_is_low(lang, words):
    use = only(track(0.0, schema="vgpuscope"), using(0.2, own(0.0, A), most=2.0))
    (tenant,) = use.tenants
    assert (use.use_class, tenant.use_class) == ("idle-preparing", "idle-preparing")
    assert (tenant.evidence.cpu, tenant.evidence.cpu_max) == (0.2, 2.0)
    assert words in sentences(tenant.evidence, lang)[1]


def test_of_tenants_that_prepare_the_gpu_names_the_one_with_the_most_cores():
    use = only(track(0.0, schema="vgpuscope"), using(1.0, own(0.0, A), most=1.5), using(0.3, own(0.0, B), most=4.0))
    assert (use.evidence.cpu, use.evidence.cpu_max) == (0.3, 4.0)


@pytest.mark.parametrize("nonsense", [nan, inf, -1.0])
def test_a_highest_value_that_is_nonsense_leaves_the_mean_to_decide(nonsense):
    use = only(track(0.0, schema="vgpuscope"), using(3.0, own(0.0, A), most=nonsense))
    assert (use.tenants[0].use_class, use.tenants[0].evidence.cpu_max) == ("idle-preparing", None)


def test_a_tenant_with_its_own_numbers_prepares_by_its_own_cpus():
    use = only(track(0.0, schema="vgpuscope"), using(4.0, own(0.0, A)), using(0.01, own(0.0, B)))
    assert [(one.tenant.pod, one.use_class) for one in use.tenants] == [("a", "idle-preparing"), ("b", "idle")]
    assert (use.verdict, use.use_class) == ("idle", "idle-preparing")


def test_a_lone_tenant_that_the_driver_does_not_tell_apart_prepares_by_its_cpus():
    mute = replace(own(0.0, A), terms={})
    use = only(track(0.0, schema="vgpuscope"), using(4.0, mute))
    assert (use.use_class, use.tenants[0].use_class) == ("idle-preparing", "idle-preparing")


def test_of_several_tenants_that_the_driver_does_not_tell_apart_each_prepares_by_its_own_cpus():
    mute, quiet = replace(own(0.0, A), terms={}), replace(own(0.0, B), terms={})
    use = only(track(0.0, schema="vgpuscope"), using(4.0, mute), using(0.0, quiet))
    assert [(one.tenant.pod, one.use_class) for one in use.tenants] == [("a", "idle-preparing"), ("b", "idle")]
    assert [one.evidence.cpu for one in use.tenants] == [4.0, 0.0]
    assert "VERDICT_IDLE_CPU_BUSY" not in use.tenants[1].evidence.reasons


def test_a_tenant_known_by_dcgm_and_by_the_agent_prepares_by_the_agent_s_word():
    use = only(track(0.0, tenant=A), using(4.0, own(0.0, A)))
    assert [one.use_class for one in use.tenants] == ["idle-preparing"]


def test_a_gpu_without_a_tenant_never_prepares():
    assert only(track(0.0, schema="vgpuscope")).use_class == "idle"


@pytest.mark.parametrize("nonsense", [nan, inf, -1.0, None])
def test_nonsense_is_not_measured(nonsense):
    use = only(track(0.0, schema="vgpuscope"), using(nonsense, own(0.0, A)))
    assert (use.use_class, use.tenants[0].use_class, use.tenants[0].evidence.cpu) == ("idle", "idle", None)


def test_the_threshold_is_a_setting():
    (use,) = fleet(track(0.0, schema="vgpuscope"), using(1.0, own(0.0, A)), rules=VerdictRules(preparing_cpu=2.0))
    assert use.tenants[0].use_class == "idle"
    with pytest.raises(ValueError, match="preparing_cpu"):
        VerdictRules(preparing_cpu=0.0)


def test_a_tenant_that_has_not_started_cuda_has_not_started_whatever_its_cpus_do():
    fresh = replace(using(8.0, own(0.0, A)), state="not-started")
    assert only(track(0.0, schema="vgpuscope", terms=terms(0.0)), fresh).tenants[0].use_class == "not-started"
