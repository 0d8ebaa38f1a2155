"""The labels of the trust bench: what is called busy could be known, and the judge counts as it says."""

from typing import Any

import pytest

from bench.trust_case import BUSY, IDLE, PREPARING, UNPROVEN, Case, Subject
from bench.trust_feed import own_world, world
from bench.trust_judge import Claim, Judged, claims, judged, oour_score, score
from bench.trust_kinds import KINDS
from bench.trust_scrapes import Setup, Target, recorded
from bench.trust_world import Gpu, Tenant, flat
from tests.paths import TESTS
from tests.services.analyzer.promstub import is_stale

WORLDS = {"long": 1800.0}
SHARES = ("_UTIL", "GR_ENGINE_ACTIVE", "SM_UTIL_RATIO", "GPU_UTIL_RATIO")
COUNTERS = {"busy_seconds_total": 1.0, "sm_seconds_total": 1.0, "pcie_received_bytes_total": 1e9}


def busy_cases():
    names = dict.fromkeys(kind.world for kind in KINDS)
    found = [case for name in names if name != "own" for case in world(name, window=WORLDS.get(name, 600.0)).cases]
    return [case for case in found if BUSY in case.truth.values()]


def kept(case: Case):
    """Samples of the window, by name of the series and by uuid."""
    for target in case.targets:
        for labels, samples in recorded(target, now=0.0, begin=case.begin, end=0.0):
            uuid = labels.get("UUID") or labels.get("gpu_uuid")
            inside = [value for at, value in samples if at >= -case.window and not is_stale(value)]
            if uuid and inside:
                yield uuid, labels, inside


def instance(labels):
    """The number of the GPU instance: dcgm-exporter's label, or a part of the UUID that the bench gives."""
    mig = labels.get("mig_uuid", "")
    return str(int(mig.split("-")[2], 16)) if mig else labels.get("GPU_I_ID", "")


def shows_work(name, values, limit_watts):
    if any(name.endswith(part) for part in SHARES):
        return max(values) >= (5 if name.endswith("_UTIL") else 0.05)
    if name.startswith("vgpuscope_") and name.endswith("_ratio") and "limit" not in name:
        return max(values) >= 0.05
    if "PROF_PCIE" in name:
        return max(values) >= 1e9
    if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":  # mJ, a sample a minute
        return (values[-1] - values[0]) / 1000 / (60 * (len(values) - 1)) > 0.5 * limit_watts
    return any(name.endswith(part) and values[-1] - values[0] >= least for part, least in COUNTERS.items())


def test_work_that_is_called_busy_is_on_some_page_that_was_scraped():
    unseen = []
    for case in busy_cases():
        shown: dict = {}
        for uuid, labels, values in kept(case):
            limit = next(gpu.model.limit for gpu in case.gpus if gpu.uuid == uuid)
            if len(values) > 1 and shows_work(labels["__name__"], values, limit):
                pod = labels.get("exported_pod") or labels.get("pod", "")
                pod = "" if labels["__name__"].startswith("vgpuscope_mig_") else pod  # an instance has one tenant here
                shown.setdefault(uuid, set()).add((instance(labels), pod))
        for subject, truth in case.truth.items():
            seen = shown.get(subject.uuid, set())
            matching = [
                one for one in seen if one[0] == subject.instance and (not subject.pod or one[1] in (subject.pod, ""))
            ]
            if truth == BUSY and not matching:
                unseen.append((case.kind.name, case.setup.name, subject))
    assert unseen == []


def test_there_are_enough_kinds_of_every_truth():
    assert len(KINDS) >= 100
    assert {truth: sum(kind.truth == truth for kind in KINDS) >= 20 for truth in (BUSY, IDLE, UNPROVEN)} == {
        BUSY: True,
        IDLE: True,
        UNPROVEN: True,
    }


def test_own_scrapes_meet_every_kind_that_needs_no_prometheus():
    assert {case.kind.name for case in own_world().cases} == {kind.name for kind in KINDS if kind.own}


def scraped(**more):
    gpu = Gpu(number=1, node="n", tenants=(Tenant(pod="p", memory=flat(100)),))
    usual: dict[str, Any] = {"setup": Setup(schema="dcgm", interval=15), "gpus": (gpu,), "job": "j", "instance": "i"}
    target = Target(**(usual | more))
    series = recorded(target, now=0.0, begin=-150.0, end=0.0)
    return {labels["__name__"]: [value for _, value in samples] for labels, samples in series}


def test_a_target_that_dies_ends_its_series_with_one_stale_marker():
    found = scraped(down=((-60, 1),))
    assert [is_stale(value) for value in found["DCGM_FI_DEV_GPU_UTIL"]] == [False] * 6 + [True]
    assert found["up"] == [1.0] * 6 + [0.0] * 5


def test_a_prometheus_that_is_down_writes_nothing_at_all():
    found = scraped(unseen=((-100, -40),))
    assert len(found["up"]) == len(found["DCGM_FI_DEV_GPU_UTIL"]) == 7
    assert not any(is_stale(value) for value in found["DCGM_FI_DEV_GPU_UTIL"])


def test_gpu_oour_calls_what_it_cannot_read_idle():
    assert oour_score(0, 0, used=0, free=0, power=0) == 0.0
    assert oour_score(95, 60, used=72_000, free=8_000, power=372) == 87.5
    assert oour_score(0, 0, used=0, free=80_000, power=250) == 10.0  # an idle H100 is not idle to it


def one_judged(**more):
    usual: dict[str, Any] = {"kind": "k", "setup": "s", "run": "r", "tenant": False, "named": True}
    return Judged(**(usual | {"truth": IDLE, "verdict": IDLE, "status": IDLE} | more))


@pytest.mark.parametrize("truth", [BUSY, UNPROVEN])
def test_idle_is_wrong_for_a_busy_and_for_an_unproven_gpu(truth):
    said = [one_judged(), one_judged(truth=truth, status="low"), one_judged(truth=truth, verdict="unknown")]
    found = score(said)
    assert (found.claimed, found.wrong, found.claimed_status, found.wrong_status) == (2, 1, 2, 1)
    assert (found.precision, found.precision_status, found.recall) == (0.5, 0.5, 1.0)


def test_idle_is_wrong_for_a_tenant_that_prepares_data_unless_its_class_says_so():
    said = [one_judged(truth=PREPARING, use_class="idle-preparing"), one_judged(truth=PREPARING, use_class="idle-held")]
    assert [(one.wrong, one.missed) for one in said] == [(False, False), (True, True)]


def test_an_abandoned_gpu_that_is_said_to_prepare_data_is_a_miss_and_not_dangerous():
    said = one_judged(use_class="idle-preparing")
    assert (said.wrong, said.missed) == (False, True)


def test_the_cpus_of_a_tenant_are_busy_exactly_where_it_prepares_data():
    for case in world("usual").cases:
        for gpu in case.gpus:
            for tenant in gpu.tenants:
                truth = case.truth.get(Subject(gpu.uuid, pod=tenant.pod), case.truth[Subject(gpu.uuid)])
                if truth in (IDLE, PREPARING):
                    seconds = range(int(-case.window), 0)
                    cores = sum(tenant.cpu(t) for t in seconds) / len(seconds) if tenant.cpu else 0.0
                    assert (cores >= 0.5) == (truth == PREPARING), case.kind.name


def test_an_idle_tenant_that_is_not_shown_is_a_miss():
    tenants = [one_judged(tenant=True), one_judged(tenant=True, verdict="absent", status="absent")]
    assert score(tenants).recall_tenants == 0.5


def test_the_class_and_every_tenant_of_a_row_are_claims_too():
    case = world("usual", kinds=frozenset({"training"})).cases[0]
    tenant = {"pod": "training-1", "verdict": "idle"}
    row = {"gpu_id": case.gpus[0].uuid, "mig": "", "verdict": "unknown", "use_class": "idle-held", "status": "low"}
    said = claims([{**row, "tenants": [tenant]}], [case])
    assert said[Subject(case.gpus[0].uuid)] == Claim(verdict="idle", status="low", use_class="idle-held")
    assert [one.wrong for one in judged([case], said, "run")] == [True, True]


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/trust.md", "docs/trust.zh-CN.md"])
def test_the_documents_name_the_number_of_kinds(page):
    assert f"{len(KINDS)} " in (TESTS.parent / page).read_text()
