"""GPUs and tenants whose truth is known for every second: what is said of them."""

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.fleet.test_assembly import fleet as judged_fleet
from tests.logic.fleet.test_assembly import fleets
from tests.logic.fleet.truth import BEGIN, GIB, analysed, gpu, own, pod, the
from vgpuscope.logic.fleet.assembly import remembered
from vgpuscope.logic.fleet.scoring import believable
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import SIGNALS, STATUSES, VERDICTS, Fault, GpuUse
from vgpuscope.views.fleet.evidence import sentences

# ── status never says more than verdict ──


def test_a_pod_that_encodes_video_is_not_listed_as_idle():
    use = the(gpu(util=0.0, copy=0.0, memory=2, total=80, watts=60, limit=400, encoder=0.6, tenant=pod("video")))
    assert (use.verdict, use.status) == ("in_use", "low")


def test_one_burst_in_the_window_keeps_a_gpu_from_the_status_idle():
    use = the(gpu(util=lambda t: 0.9 if 300 <= t < 330 else 0.0, copy=0.0, memory=1, total=80, watts=60, limit=400))
    assert use.score.value < 10
    assert (use.verdict, use.status) == ("in_use", "low")


def test_a_gpu_that_cannot_be_judged_is_not_listed_as_idle_or_low():
    use = the(gpu(begin=400, util=0.0, copy=0.0, memory=1, total=80, watts=60, limit=400))
    assert use.score.value < 10
    assert (use.verdict, use.status) == ("unknown", "unknown")


@pytest.mark.parametrize(("found", "verdict"), list(product(STATUSES, VERDICTS)))
def test_the_status_that_may_be_shown(found, verdict):
    expected = {
        ("idle", "in_use"): "low",
        ("idle", "unknown"): "unknown",
        ("low", "unknown"): "unknown",
    }
    assert believable(found, verdict) == expected.get((found, verdict), found)


@given(fleets)
def test_no_status_says_more_than_its_verdict(some):
    for use in judged_fleet(*some):
        for one in (use, *use.tenants):
            if one.status == "idle":
                assert one.verdict == "idle"
            if one.verdict == "unknown":
                assert one.status not in {"idle", "low"}


# ── power that contradicts ──


def quiet(**more):
    given = {"util": 0.0, "copy": 0.0, "memory": 20, "total": 80, **more}
    return gpu(tenant=pod("a"), **given)


@pytest.mark.parametrize(
    ("model", "watts", "limit", "source"),
    [
        ("NVIDIA A100-SXM4-80GB", 360, None, "400 W (table: NVIDIA A100-SXM4-80GB)"),
        ("NVIDIA A100-SXM4-80GB", 210, None, "400 W (table: NVIDIA A100-SXM4-80GB)"),
        ("NVIDIA A100-SXM4-80GB", 160, 300, "limit 300 W (metric)"),
        ("a model of tomorrow", 360, None, "250 W (default)"),
    ],
)
def test_a_gpu_that_shows_no_work_and_draws_much_power_is_unknown(model, watts, limit, source):
    use = the(quiet(model=model, watts=watts, **({"limit": limit} if limit else {})))
    assert (use.verdict, use.use_class, use.evidence.reasons[0]) == ("unknown", "unknown", "VERDICT_POWER_DISAGREES")
    assert source in sentences(use.evidence, "en")[0]
    assert source in sentences(use.evidence, "zh")[0]


@pytest.mark.parametrize(("model", "watts"), [("NVIDIA A100-SXM4-80GB", 200), ("NVIDIA H100 80GB HBM3", 130), ("", 90)])
def test_power_up_to_half_the_limit_contradicts_nothing(model, watts):
    assert the(quiet(model=model, watts=watts)).use_class == "idle-held"


def test_where_doubt_begins_is_a_setting():
    assert the(quiet(watts=120), rules=VerdictRules(power_contradiction=0.25)).verdict == "unknown"


# ── stalled ──


def hung(**more):
    given = {"util": 1.0, "copy": 0.01, "memory": 60, "total": 80, "watts": 90, "limit": 400, **more}
    return gpu(tenant=pod("train"), **given)


@pytest.mark.parametrize("more", [{}, {"sm_active": 0.02}, {"util": lambda t: 0.0 if t < 15 else 1.0}])
def test_a_job_that_hangs_in_a_collective_is_stalled_and_in_use(more):
    use = the(hung(**more))
    assert (use.verdict, use.use_class) == ("in_use", "stalled")
    assert "VERDICT_STALLED" in use.evidence.reasons
    said = " ".join(sentences(use.evidence, "en"))
    assert "22.5 %" in said
    assert "limit 400 W (metric)" in said


def test_the_tables_limit_is_good_enough_to_call_a_gpu_stalled_and_a_guess_is_not():
    terms = {"util": 1.0, "copy": 0.01, "watts": 55, "tenant": pod("a")}
    assert the(gpu(**terms)).use_class == "stalled"
    assert the(gpu(**terms, model="a small card of tomorrow")).use_class == "busy"


@pytest.mark.parametrize(
    "more",
    [
        {"watts": 110},  # more than a quarter of the limit
        {"util": 0.9},
        {"copy": 0.3},
        {"sm_active": 0.4},
        {"encoder": 0.5},
        {"util": lambda t: 1.0 if t < 540 else 0.0},  # it ended
    ],
)
def test_a_gpu_that_does_something_is_not_stalled(more):
    assert the(hung(**more)).use_class != "stalled"


def test_a_gpu_that_was_seen_for_half_the_window_is_not_stalled():
    assert the(hung(begin=300)).use_class == "unknown"


def test_the_only_tenant_of_a_stalled_gpu_is_the_one_that_stalls():
    device = {"schema": "vgpuscope", "util": 1.0, "copy": 0.01, "memory": 60, "total": 80, "watts": 90, "limit": 400}
    (alone,) = the(gpu(**device), own("train", sm=1.0, memory=60)).tenants
    assert (alone.verdict, alone.use_class) == ("in_use", "stalled")
    assert "22.5 %" in sentences(alone.evidence, "en")[-1]
    beside = the(gpu(**device), own("train", sm=1.0, memory=60), own("idle", sm=0.0, memory=0)).tenants
    assert [(one.tenant.pod, one.use_class) for one in beside] == [("idle", "idle"), ("train", "busy")]


# ── GPUs that cannot be used, tenants that have not begun ──


@pytest.mark.parametrize("health", ["lost", "unresponsive", "reset-required"])
def test_a_lost_gpu_is_unknown_whatever_it_did_before(health):
    before = gpu(end=30, schema="vgpuscope", util=1.0, copy=0.8, memory=70, total=80, watts=390, limit=400)
    use = the(replace(before, health=health, xids=(79,), target="node-1:9394"), own("train", end=30, sm=1.0, memory=70))
    assert (use.verdict, use.use_class, use.status, use.score.value) == ("unknown", "unknown", "unknown", None)
    assert (use.health, use.xids, use.target) == (health, (79,), "node-1:9394")
    assert use.evidence.reasons[0] == "VERDICT_GPU_LOST"


def test_no_tenant_of_a_lost_gpu_is_judged():
    device = replace(gpu(schema="vgpuscope", util=0.0, copy=0.0, memory=1, total=80), health="lost")
    use = the(device, own("a", sm=0.0, memory=1), own("b", sm=0.4, memory=1), gpu(tenant=pod("c"), util=0.0))
    assert {(one.verdict, one.status, one.use_class) for one in use.tenants} == {("unknown", "unknown", "unknown")}
    assert {one.evidence.reasons[0] for one in use.tenants} == {"VERDICT_GPU_LOST"}


def test_the_instances_of_a_lost_gpu_are_lost_with_it():
    device = replace(gpu(schema="vgpuscope", watts=60), health="lost", xids=(79,))
    use = the(device, gpu(schema="vgpuscope", mig="MIG-1", engine=0.5, memory=1, total=10))
    assert (use.mig, use.verdict, use.health, use.xids) == ("MIG-1", "unknown", "lost", (79,))


def test_a_gpu_that_is_well_says_so_and_is_judged():
    use = the(replace(gpu(util=0.0, copy=0.0, total=80, memory=1), health="ok", xids=(13,)))
    assert (use.verdict, use.health, use.xids) == ("idle", "ok", (13,))


def test_a_tenant_that_has_not_started_cuda_is_not_called_idle():
    device = gpu(schema="vgpuscope", util=0.7, copy=0.2, memory=20, total=80)
    use = the(device, own("busy", sm=0.7, memory=20), own("new", sm=0.0, memory=0, state="not-started"))
    new = use.tenants[1]
    assert (new.verdict, new.use_class, new.status) == ("unknown", "not-started", "unknown")
    assert new.evidence.reasons[0] == "VERDICT_NOT_STARTED"


def test_a_gpu_whose_only_tenant_has_not_started_is_not_idle_either():
    device = gpu(schema="vgpuscope", util=0.0, copy=0.0, memory=0, total=80)
    use = the(device, own("new", sm=0.0, memory=0, state="not-started"))
    assert (use.verdict, use.use_class, use.status) == ("unknown", "not-started", "unknown")


@pytest.mark.parametrize("state", ["", "idle", "unknown", "active"])
def test_little_memory_is_not_a_sign_of_not_having_started(state):
    device = gpu(schema="vgpuscope", util=0.7, copy=0.2, memory=20, total=80)
    use = the(device, own("busy", sm=0.7, memory=20), own("empty", sm=0.0, memory=0, state=state))
    assert (use.tenants[1].verdict, use.tenants[1].use_class) == ("idle", "idle")


# ── the same score from every source ──

LEVELS = {"util": 0.6, "copy": 0.3, "memory": 40, "total": 80, "watts": 240, "limit": 400}


def whole_gpu_as_seen():
    """One GPU, used by one pod and then by two, as exporters and conditions let it be seen."""
    theirs = {"schema": "dcgm", **LEVELS}
    ours = {"schema": "vgpuscope", **LEVELS}
    a, b = own("a", sm=0.4, memory=30), own("b", sm=0.2, memory=10)
    return {
        "dcgm, the pod": [gpu(tenant=pod("a"), **theirs)],
        "dcgm, no pod": [gpu(**theirs)],
        "dcgm, both pods": [gpu(tenant=pod("a"), **theirs), gpu(tenant=pod("b"), **theirs)],
        "dcgm, a condition leaves one": [gpu(tenant=pod("b"), **theirs)],
        "agent": [gpu(**ours), a, b],
        "agent, a condition leaves one": [gpu(**ours), b],
        "agent, a condition leaves none": [gpu(**ours)],
        "agent and dcgm": [gpu(**ours), a, b, gpu(tenant=pod("a"), **theirs), gpu(tenant=pod("b"), **theirs)],
        "agent with its own dcgm names": [
            gpu(**ours),
            a,
            b,
            gpu(schema="dcgm", tenant=pod("a"), util=0.4, memory=30, watts=160),
            gpu(schema="dcgm", tenant=pod("b"), util=0.2, memory=10, watts=80),
        ],
        "two replicas": [gpu(tenant=pod("a"), **theirs)] * 2,
    }


def test_a_gpu_has_the_same_score_from_every_source_and_with_every_condition():
    scores = {how: the(*tracks).score.value for how, tracks in whole_gpu_as_seen().items()}
    expected = 100 * (0.5 * 0.6 + 0.2 * 0.3 + 0.2 * 0.5 + 0.1 * 0.6)
    assert scores == dict.fromkeys(scores, pytest.approx(expected))


def instance_as_seen(**profiling):
    """A MIG instance with 7.7 of 10 GiB in use; the GPU draws 250 W, of which somebody gives the pod 60."""
    mine = {"memory": 7.7, "total": 10, "tenant": pod("a"), **profiling}
    ours = gpu(schema="vgpuscope", mig="MIG-1", memory=7.7, total=10)
    agent = [gpu(schema="vgpuscope", util=0.9, watts=250, limit=400), ours, own("a", mig="MIG-1", memory=7, total=10)]
    return {
        "dcgm": [gpu(mig="GI-1", **mine)],
        "dcgm, utilisation said to be 0": [gpu(mig="GI-1", util=0.0, copy=0.0, **mine)],
        "dcgm, power of the card": [gpu(mig="GI-1", watts=250, limit=400, **mine)],
        "dcgm, power of the pod": [gpu(mig="GI-1", watts=60, **mine)],
        **({} if profiling else {"agent": agent}),
        "agent and dcgm names": [*agent, gpu(mig="GI-1", watts=60, util=0.0, **mine)],
        "agent and dcgm names, the card filtered": [*agent[1:], gpu(mig="GI-1", watts=60, **mine)],
    }


def test_memory_alone_gives_a_mig_instance_no_score_whoever_reports_it():
    for how, tracks in instance_as_seen().items():
        use = the(*tracks)
        assert (how, use.score.value, use.status, use.verdict) == (how, None, "unknown", "unknown")
        assert use.evidence.reasons[0] == "VERDICT_MIG_NO_SIGNAL"
        assert next(term.value for term in use.score.terms if term.name == "mem_used") == pytest.approx(0.77)
        for text in (*sentences(use.evidence, "en"), *sentences(use.evidence, "zh")):
            assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in text


def test_a_mig_instance_has_one_score_by_its_profiling_metrics_whoever_reports_it():
    expected = 100 * (0.5 * 0.4 + 0.2 * 0.77) / 0.7
    for how, tracks in instance_as_seen(engine=0.4).items():
        use = the(*tracks)
        assert (how, use.score.value) == (how, pytest.approx(expected))
        assert (use.verdict, use.tenants[0].verdict) == ("in_use", "in_use")
        assert use.tenants[0].score.value == use.score.value


@pytest.mark.parametrize("watts", [60, 250, 390])
def test_power_of_a_mig_instance_neither_contradicts_nor_makes_it_stalled(watts):
    quiet_one = gpu(mig="GI-1", engine=0.0, memory=1, total=10, watts=watts, limit=400, tenant=pod("a"))
    assert the(quiet_one).verdict == "idle"
    busy = gpu(mig="GI-1", util=1.0, engine=1.0, watts=watts, limit=400, tenant=pod("a"))
    assert the(busy).use_class == "busy"


def test_utilisation_of_a_mig_instance_shows_work_and_never_idleness():
    some = the(gpu(mig="GI-1", util=lambda t: 0.5 if t == 300 else 0.0, memory=1, total=10, tenant=pod("a")))
    assert (some.verdict, some.evidence.reasons[0]) == ("in_use", "VERDICT_IN_USE")
    for level in (0.0, 0.02):
        use = the(gpu(mig="GI-1", util=level, copy=0.0, memory=1, total=10, tenant=pod("a")))
        assert (use.verdict, use.status) == ("unknown", "unknown")


def test_utilisation_does_not_make_up_for_profiling_metrics_that_were_hardly_seen():
    thin = gpu(begin=450, mig="GI-1", engine=0.0, tenant=pod("a"))
    full = gpu(mig="GI-1", util=0.01, memory=1, total=10, tenant=pod("a"))
    assert the(replace(full, terms={**full.terms, **thin.terms})).verdict == "unknown"


# ── tenants ──


def shared(**more):
    """A worker at 70 %, a notebook that holds 20 GiB and does nothing, and an empty pod."""
    given = {"util": 0.7, "copy": 0.3, "memory": 51, "total": 80, "watts": 280, "limit": 400, **more}
    return [
        gpu(schema="vgpuscope", **given),
        own("worker", sm=0.7, memory=30, total=40),
        own("notebook", sm=0.0, memory=20, total=20),
        own("empty", sm=0.0, memory=0.3, total=80),
    ]


def by_name(use):
    """The three in the order in which they were written."""
    return [next(one for one in use.tenants if one.tenant.pod == name) for name in ("worker", "notebook", "empty")]


def test_an_idle_tenant_is_found_beside_a_busy_one():
    worker, notebook, empty = by_name(the(*shared()))
    assert (worker.verdict, worker.use_class, worker.status) == ("in_use", "busy", "normal")
    assert (notebook.verdict, notebook.use_class, notebook.status) == ("idle", "idle-held", "idle")
    assert (empty.verdict, empty.use_class, empty.status) == ("idle", "idle", "idle")


def test_each_tenant_has_a_score_of_its_own_with_memory_of_the_whole_gpu():
    scores = [one.score.value for one in by_name(the(*shared()))]
    assert scores == [
        pytest.approx(100 * (0.5 * 0.7 + 0.2 * 30 / 80) / 0.7),
        pytest.approx(100 * 0.2 * 20 / 80 / 0.7),
        pytest.approx(100 * 0.2 * 0.3 / 80 / 0.7),
    ]


def test_a_tenant_has_the_limit_that_it_has_and_the_whole_gpu_is_none():
    assert [one.memory_limit for one in by_name(the(*shared()))] == [40 * GIB, 20 * GIB, None]
    scaled = the(gpu(schema="vgpuscope", util=0.0, total=80), own("a", sm=0.0, total=120))
    assert scaled.tenants[0].memory_limit == 120 * GIB


def test_the_gpu_is_judged_by_itself_and_not_by_its_idle_tenants():
    use = the(*shared())
    assert (use.verdict, use.status, use.idle_since) == ("in_use", "normal", None)


@pytest.mark.parametrize(
    "doubt",
    [
        {"begin": 300},  # the GPU's own numbers began late
        {"util": 0.0, "watts": 60},  # the GPU's utilisation does not show what the worker's processes do
    ],
)
def test_what_is_doubtful_of_the_gpu_does_not_hide_an_idle_tenant_whose_neighbour_explains_the_work(doubt):
    assert [one.verdict for one in by_name(the(*shared(**doubt)))] == ["in_use", "idle", "idle"]


def test_a_worker_that_has_just_begun_explains_the_work_too():
    late = [*shared(util=lambda t: 0.7 if t >= 400 else 0.0), own("late", begin=400, sm=0.7, memory=1)]
    del late[1]
    assert [(one.tenant.pod, one.verdict) for one in the(*late).tenants] == [
        ("empty", "idle"),
        ("late", "unknown"),
        ("notebook", "idle"),
    ]


def test_where_the_driver_gives_every_process_nothing_no_tenant_is_idle():
    for util in (0.9, lambda t: 0.9 if 300 <= t < 330 else 0.0):
        use = the(gpu(schema="vgpuscope", util=util, memory=50, total=80), own("a", sm=0.0), own("b", sm=0.0))
        assert {one.verdict for one in use.tenants} == {"unknown"}
    thin = the(gpu(schema="vgpuscope", begin=450, util=0.9, total=80), own("a", sm=0.0), own("b", sm=0.0))
    assert {one.evidence.reasons[0] for one in thin.tenants} == {"VERDICT_UNEXPLAINED_WORK"}


def test_work_of_which_the_tenants_explain_only_a_small_part_makes_none_of_them_idle():
    use = the(gpu(schema="vgpuscope", util=0.9, total=80), own("a", sm=0.1), own("b", sm=0.0))
    assert [one.verdict for one in use.tenants] == ["in_use", "unknown"]


def test_a_tenant_that_may_be_the_one_who_encodes_video_is_not_idle():
    use = the(*shared(encoder=0.4))
    assert [one.verdict for one in by_name(use)] == ["in_use", "unknown", "unknown"]


@pytest.mark.parametrize("level", [0.0, 0.7])
def test_where_video_could_not_be_read_nobody_is_called_idle_who_may_do_it(level):
    fault = Fault(part="encoder", code="TIMEOUT", message="", terms=("encoder",), schema="vgpuscope", own=False)
    tracks = gpu(schema="vgpuscope", util=level, total=80), own("a", sm=level), own("b", sm=0.0)
    assert the(*tracks, faults=(fault,)).tenants[1].verdict == "unknown"
    assert the(*tracks).tenants[1].verdict == "idle"


def test_power_that_nobody_explains_makes_no_tenant_idle_however_little_was_seen_of_the_gpu():
    for begin in (0, 450):
        device = gpu(schema="vgpuscope", begin=begin, util=0.0, copy=0.0, total=80, watts=330, limit=400)
        use = the(device, own("a", sm=0.0), own("b", sm=0.0))
        assert {one.evidence.reasons[0] for one in use.tenants} == {"VERDICT_UNEXPLAINED_WORK"}


def test_tenants_without_numbers_of_their_own_on_a_busy_gpu_are_unknown_without_a_score():
    use = the(*(gpu(tenant=pod(name), util=0.7, memory=40, total=80) for name in "ab"))
    assert {(one.verdict, one.status, one.score.value) for one in use.tenants} == {("unknown", "unknown", None)}


def test_tenants_of_a_gpu_that_did_nothing_did_nothing_and_nobody_knows_whose_memory_it_is():
    use = the(*(gpu(tenant=pod(name), util=0.0, copy=0.0, memory=40, total=80) for name in "ab"))
    assert use.use_class == "idle-held"
    assert {(one.verdict, one.use_class, one.score.value) for one in use.tenants} == {("idle", "idle", None)}


def test_the_only_tenant_of_a_gpu_has_the_gpus_numbers():
    use = the(gpu(tenant=pod("a"), **LEVELS))
    (one,) = use.tenants
    assert (one.score.value, one.status, one.verdict) == (use.score.value, use.status, use.verdict)


# ── since when ──


def idle_for(*, windows, step=300.0, broken=None, restart=False):
    """idle_since of GPU and tenants over some analyses of one idle shared GPU, the first of which ends at BEGIN."""
    previous: dict = {}
    found: list = []
    for number in range(windows):
        at = BEGIN + step * number
        level = 0.5 if number == broken else 0.0
        tracks = (
            gpu(at=at, schema="vgpuscope", util=level, total=80),
            own("a", at=at, sm=level),
            own("b", at=at, sm=0.0),
        )
        uses = analysed(*tracks, at=at, previous=previous)
        if restart:
            uses = msgspec.json.decode(msgspec.json.encode(uses), type=tuple[GpuUse, ...])
        previous = remembered(uses)
        found.append((uses[0].idle_since, *(one.idle_since for one in uses[0].tenants)))
    return found


@pytest.mark.parametrize("restart", [False, True])
def test_idleness_goes_on_from_one_analysis_to_the_next_and_over_a_restart(restart):
    assert idle_for(windows=5, restart=restart) == [(BEGIN, BEGIN, BEGIN)] * 5


def test_work_ends_idleness_of_whoever_did_it():
    found = idle_for(windows=5, broken=2)
    assert found[2] == (None, None, BEGIN)
    assert found[3:] == [(BEGIN + 900, BEGIN + 900, BEGIN)] * 2


def test_time_that_no_window_saw_breaks_idleness():
    assert [gpu for gpu, *_ in idle_for(windows=3, step=1200.0)] == [BEGIN, BEGIN + 1200, BEGIN + 2400]


@pytest.mark.parametrize(("later", "since"), [(600.0, BEGIN), (900.0, BEGIN + 900)])
def test_idleness_that_cannot_be_said_for_a_while_goes_on_unless_time_went_unseen(later, since):
    previous: dict = {}
    found: list = []
    for at, begin in ((BEGIN, 0), (BEGIN + 300, 300), (BEGIN + later, 0)):  # the second has seen half its window
        uses = analysed(gpu(at=at, schema="vgpuscope", util=0.0, total=80, begin=begin), at=at, previous=previous)
        previous = remembered(uses, before=previous)
        found.append((uses[0].verdict, uses[0].idle_since))
    assert found == [("idle", BEGIN), ("unknown", None), ("idle", since)]


def test_a_tenant_is_not_idle_since_before_it_came():
    use = the(gpu(schema="vgpuscope", util=0.0, total=80), own("old", sm=0.0), own("new", begin=90, sm=0.0))
    assert [(one.tenant.pod, one.idle_since) for one in use.tenants] == [("new", BEGIN + 90), ("old", BEGIN)]


# ── numbers of the same time ──


def test_a_gpu_is_not_shown_with_less_memory_than_its_only_tenant():
    came = 260
    free_then_taken = {"util": lambda t: 0.78 if t >= came else 0.0, "memory": lambda t: 28 if t >= came else 0.3}
    device = gpu(schema="vgpuscope", copy=0.1, total=80, watts=200, limit=400, **free_then_taken)
    tenant = own("new", begin=came, sm=0.78, memory=27.6)
    use = the(device, tenant)
    assert set(use.terms) == {"mem_total", "power_limit"}
    assert (use.score.value, use.status) == (None, "unknown")
    assert use.evidence.reasons[-1] == "VERDICT_NUMBERS_WITHHELD"
    assert use.tenants[0].terms["mem_used"].mean == pytest.approx(27.6 * GIB)
    # a source that knows the GPU's numbers since then is asked first
    since = gpu(
        schema="dcgm", begin=came, tenant=pod("new"), copy=0.1, total=80, watts=200, limit=400, **free_then_taken
    )
    use = the(device, tenant, since)
    assert use.terms["mem_used"].mean == 28 * GIB
    assert use.terms["gpu_util"].mean == pytest.approx(0.78)
    assert use.score.value > 40


def test_a_tenant_that_joins_others_is_said_to_be_new():
    device = gpu(schema="vgpuscope", util=0.7, memory=lambda t: 50 if t >= 300 else 30, total=80)
    use = the(device, own("old", sm=0.7, memory=30), own("new", begin=300, sm=0.0, memory=20))
    assert use.terms["mem_used"].mean == 40 * GIB
    assert use.evidence.reasons[-1] == "VERDICT_TENANT_IS_NEW"
    assert "5 min" in sentences(use.evidence, "en")[-1]


@given(st.integers(0, 580), st.integers(1, 80), st.booleans())
def test_a_gpus_memory_is_never_below_its_only_tenants(came, memory, known):
    level = lambda t: memory + 0.3 if t >= came else 0.3  # noqa: E731
    tracks = [gpu(schema="vgpuscope", util=0.0, total=90, memory=level), own("a", begin=came, sm=0.0, memory=memory)]
    if known:
        tracks.append(gpu(schema="dcgm", tenant=pod("a"), begin=came, util=0.0, total=90, memory=level))
    use = the(*tracks)
    whole, (tenant,) = use.terms.get("mem_used"), use.tenants
    assert whole is None or whole.mean >= tenant.terms["mem_used"].mean


# ── laws ──


@given(fleets)
def test_what_has_no_signal_of_work_has_no_score(some):
    for use in judged_fleet(*some):
        if not any(term.mean is not None for name, term in use.terms.items() if name in SIGNALS):
            assert use.score.value is None
        for one in use.tenants:
            if not one.own and len(use.tenants) > 1:
                assert one.score.value is None


@given(fleets)
def test_only_what_is_idle_is_idle_since(some):
    for use in judged_fleet(*some):
        for one in (use, *use.tenants):
            assert (one.idle_since is not None) == (one.verdict == "idle")
