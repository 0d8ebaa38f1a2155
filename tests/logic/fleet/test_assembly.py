"""Each GPU once, with those who have it, judged by what is known of its present time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.logic.fleet.assembly import assemble, conclude, gpu_key, remembered, tenant_key
from vgpuscope.logic.fleet.scoring import DEFAULT_POWER, ScoreWeights, Thresholds
from vgpuscope.logic.fleet.sightings import AnalysisContext, units_of
from vgpuscope.logic.fleet.verdict import ACTIVITY, VerdictRules
from vgpuscope.model.analysis import Fault, Reading, Stat, Tenant, Term, Track, Window

GIB = 2**30
BEGIN, END = 1_000_000.0, 1_000_600.0
WINDOW = Window(begin=BEGIN, end=END, interval=30.0)  # 20 samples
GPU = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
OTHER = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
A, B = Tenant(namespace="ml", pod="a"), Tenant(namespace="ml", pod="b")


def terms(util=0.0, *, samples=20, **more):
    given = {"gpu_util": util, "mem_copy": util / 2, **more}
    return {name: Stat(mean=value * 0.9, max=value, p95=value, samples=samples) for name, value in given.items()}


def track(util=0.0, *, begin=BEGIN, end=END, schema="dcgm", tenant=None, **more):
    """A track with all its samples from begin to end."""
    seen = round((end - begin) / WINDOW.interval)
    given = {"gpu_id": GPU, "hostname": "n1", "gpu_index": "0", "terms": terms(util, samples=seen)}
    return Track(schema=schema, tenant=tenant, first=begin + 15, last=end - 15, **{**given, **more})


def own(sm, tenant, **more):
    """A tenant's own numbers, by our agent."""
    base = track(schema="vgpuscope", tenant=tenant, own=True, **more)
    samples = base.terms["gpu_util"].samples
    return replace(base, terms={"process_sm": Stat(mean=sm * 0.9, max=sm, samples=samples)})


def fleet(*tracks, previous=None, faults=(), **more):
    reading = Reading(window=WINDOW, tracks=tracks, source="test", faults=faults)
    given = {
        "previous": previous or {},
        "weights": ScoreWeights(),
        "thresholds": Thresholds(),
        "rules": VerdictRules(),
        "owners": {},
        **more,
    }
    return assemble(reading, **given)


def only(*tracks, **more):
    (use,) = fleet(*tracks, **more)
    return use


def pods(uses):
    return [use.tenant.pod for use in uses]


# ── one GPU is one ──


def test_a_gpu_that_pods_share_is_one_with_several_tenants():
    use = only(track(0.8, tenant=A), track(0.8, tenant=B))
    assert pods(use.tenants) == ["a", "b"]
    assert use.verdict == "in_use"
    assert {one.evidence.reasons[0] for one in use.tenants} == {"VERDICT_SHARED_CARD"}


def test_replicas_of_one_exporter_are_one_gpu_and_one_tenant():
    use = only(track(0.8, tenant=A), track(0.81, tenant=A))
    assert pods(use.tenants) == ["a"]


def test_the_better_covered_of_two_replicas_wins():
    thin = replace(track(0.0, tenant=A), terms=terms(0.0, samples=3))
    for tracks in ((thin, track(0.8, tenant=A)), (track(0.8, tenant=A), thin)):
        assert only(*tracks).evidence.samples == 20


def test_our_own_schema_goes_first_and_is_completed_by_the_other():
    ours = track(0.5, schema="vgpuscope", model="NVIDIA L4", hostname="node-1")
    theirs = track(0.6, hostname="dcgm-pod", terms=terms(0.6, sm_active=0.02))
    use = only(theirs, ours)
    assert (use.hostname, use.model, use.terms["gpu_util"].mean) == ("node-1", "NVIDIA L4", 0.45)
    assert (use.evidence.signal, use.evidence.schema) == ("sm_active", "dcgm")


def test_an_agent_that_has_just_started_leaves_the_judgement_to_the_exporter_that_saw_all():
    use = only(track(0.0, schema="vgpuscope", begin=END - 90), track(0.9))
    assert (use.verdict, use.evidence.schema) == ("in_use", "dcgm")


def test_where_two_exporters_disagree_the_one_that_saw_work_is_believed():
    assert only(track(0.0, schema="vgpuscope"), track(0.9)).verdict == "in_use"


def test_an_exporter_that_was_restarted_leaves_no_gap():
    middle = BEGIN + 300
    use = only(track(0.02, end=middle, tenant=A), track(0.0, begin=middle, tenant=A))
    assert (use.verdict, use.evidence.samples, use.evidence.signal_max) == ("idle", 20, 0.02)
    assert use.former == ()


def test_a_track_is_held_to_its_own_interval():
    slow = replace(track(0.0, tenant=A), interval=60.0, terms=terms(0.0, samples=10), last=END - 150)
    assert (only(slow).verdict, only(slow).evidence.expected) == ("idle", 10)
    assert only(replace(slow, interval=None, last=END - 15)).verdict == "unknown"


def test_a_signal_from_a_slower_exporter_is_held_to_that_exporters_interval():
    ours = track(schema="vgpuscope", terms={"mem_used": Stat(mean=0.0, max=0.0, samples=20)})
    theirs = replace(track(0.0), interval=60.0, terms=terms(0.0, samples=10), last=END - 150)
    use = only(ours, theirs)
    assert (use.verdict, use.evidence.expected, use.evidence.max_age) == ("idle", 10, 150.0)


def test_an_interval_as_long_as_the_gaps_does_not_make_up_for_them():
    rare = replace(track(0.0, tenant=A), interval=300.0, terms=terms(0.0, samples=2))
    assert only(rare).evidence.reasons[0] == "VERDICT_WINDOW_TOO_SHORT"


def test_two_gpus_of_one_pod_are_two():
    uses = fleet(track(0.9, tenant=A), track(0.0, tenant=A, gpu_id=OTHER, gpu_index="1"))
    assert [use.verdict for use in uses] == ["in_use", "idle"]


def test_gpus_are_ordered_by_node_then_by_number():
    places = [("n2", "0"), ("n1", "10"), ("n1", "9"), ("n1", "x"), ("n1", "9" * 5000)]
    uses = fleet(*(track(hostname=host, gpu_index=index, gpu_id=f"GPU-{i}") for i, (host, index) in enumerate(places)))
    assert [use.gpu_id for use in uses] == ["GPU-2", "GPU-1", "GPU-4", "GPU-3", "GPU-0"]


# ── MIG ──


def test_a_gpu_in_mig_mode_is_its_instances():
    quiet = terms(0.0, engine_active=0.0)
    uses = fleet(track(0.9), track(0.9, mig="GI-1", tenant=A), track(mig="GI-2", tenant=B, terms=quiet))
    assert [(use.mig, use.verdict, pods(use.tenants)) for use in uses] == [
        ("GI-1", "in_use", ["a"]),
        ("GI-2", "idle", ["b"]),
    ]


def test_an_instance_without_a_signal_is_unknown():
    bare = {"mem_used": Stat(mean=0.0, max=0.0, samples=20)}
    use = only(track(0.0), track(mig="MIG-1", terms=bare, tenant=A))
    assert (use.mig, use.verdict, use.evidence.reasons[0]) == ("MIG-1", "unknown", "VERDICT_MIG_NO_SIGNAL")


def test_a_gpu_that_left_mig_mode_is_a_gpu_again():
    use = only(track(0.0, begin=BEGIN + 300), track(0.0, mig="GI-1", tenant=A, end=BEGIN + 270))
    assert use.mig == ""


def test_an_instance_that_exporters_name_differently_is_one():
    ours = track(mig="MIG-1", schema="vgpuscope", tenant=A, terms={"mem_used": Stat(mean=1.0, max=1.0, samples=20)})
    theirs = track(mig="GI-7", tenant=A, terms=terms(0.0, engine_active=0.7))
    use = only(ours, theirs)
    assert (use.mig, use.verdict, use.evidence.signal) == ("MIG-1", "in_use", "engine_active")


def test_numbered_instances_that_match_no_named_one_are_not_counted_twice():
    named = [track(mig=f"MIG-{i}", schema="vgpuscope", profile="1g.10gb") for i in (1, 2)]
    numbered = [track(mig=f"GI-{i}", profile="1g.10gb") for i in (7, 8)]
    assert [use.mig for use in fleet(*named, *numbered)] == ["MIG-1", "MIG-2"]


# ── who has it, and since when ──


def test_a_handover_is_never_judged_by_the_predecessor():
    middle = END - 240
    use = only(track(0.0, end=middle, tenant=A), track(0.02, begin=middle, tenant=B))
    assert (use.verdict, use.evidence.reasons[0]) == ("unknown", "VERDICT_HANDOVER_YOUNG")
    assert (pods(use.tenants), pods(use.former)) == (["b"], ["a"])
    assert use.evidence.held_since == use.tenants[0].since == middle + 15
    assert use.former[0].until == middle - 15
    assert use.terms["gpu_util"].max == 0.02


def test_the_numbers_of_a_new_tenant_are_its_own_times():
    middle = END - 240
    use = only(track(0.0, end=middle, tenant=A), track(0.95, begin=middle, tenant=B))
    assert use.verdict != "idle"
    assert use.status == "high"


def test_a_gpu_that_was_free_and_was_just_taken_is_not_idle():
    middle = END - 240
    use = only(track(0.0, end=middle), track(0.0, begin=middle, tenant=A))
    assert (use.verdict, use.evidence.reasons[0]) == ("unknown", "VERDICT_HANDOVER_YOUNG")


def test_a_new_tenant_on_a_gpu_that_idled_all_along_gets_its_time():
    use = only(track(0.0, schema="vgpuscope"), own(0.0, A, end=END - 300), own(0.0, B, begin=END - 240))
    assert (use.verdict, use.evidence.reasons[0]) == ("unknown", "VERDICT_HANDOVER_YOUNG")
    assert [one.verdict for one in use.tenants] == ["unknown"]


def test_a_gpu_seen_throughout_is_judged_as_a_gpu_and_its_tenants_by_themselves():
    use = only(track(0.9, schema="vgpuscope"), own(0.9, A, end=END - 300), own(0.0, B, begin=END - 240))
    assert use.verdict == "in_use"
    assert (pods(use.tenants), use.tenants[0].verdict) == (["b"], "unknown")
    assert (pods(use.former), use.former[0].evidence.reasons) == (["a"], ("VERDICT_ENDED",))


def test_a_handover_long_enough_ago_is_judged():
    middle = BEGIN + 100
    assert only(track(0.9, end=middle - 10, tenant=A), track(0.0, begin=middle, tenant=B)).verdict == "idle"


def test_a_source_that_has_just_begun_to_look_is_not_a_handover():
    use = only(track(0.0, begin=END - 240, tenant=A))
    assert use.evidence.reasons[0] == "VERDICT_LOW_COVERAGE"


def test_a_pod_that_ended_leaves_no_idle_gpu_behind():
    assert fleet(track(0.0, end=BEGIN + 200, tenant=A)) == ()
    assert fleet(own(0.0, A, end=BEGIN + 200)) == ()


def test_a_gpu_that_fell_silent_is_unknown_not_gone():
    use = only(track(0.0, end=END - 200), own(0.0, A, end=END - 200))
    assert (use.verdict, use.evidence.reasons[0]) == ("unknown", "VERDICT_STALE")


def test_a_pod_of_the_same_name_with_another_uid_is_another_tenant():
    old, new = replace(A, pod_uid="1"), replace(A, pod_uid="2")
    use = only(track(0.0, schema="vgpuscope"), own(0.0, old, end=END - 300), own(0.0, new, begin=END - 240))
    assert [one.tenant.pod_uid for one in (*use.tenants, *use.former)] == ["2", "1"]


def test_a_tenant_that_two_exporters_name_in_more_or_less_detail_is_one():
    full = Tenant(namespace="ml", pod="a", container="c", pod_uid="1")
    use = only(track(0.5, schema="vgpuscope"), own(0.5, full), track(0.5, tenant=replace(full, pod_uid="")))
    assert [one.tenant for one in use.tenants] == [full]


def test_a_tenant_has_the_owner_that_the_cluster_knows():
    use = only(track(0.0, tenant=A), owners={("ml", "a"): "Deployment/web"})
    assert use.tenants[0].owner == "Deployment/web"


# ── tenants ──


def test_tenants_with_numbers_of_their_own_are_judged_by_them():
    use = only(track(0.8, schema="vgpuscope"), own(0.8, A), own(0.0, B))
    assert [(one.tenant.pod, one.verdict) for one in use.tenants] == [("a", "in_use"), ("b", "idle")]


def test_work_that_no_tenants_numbers_explain_makes_none_of_them_idle():
    use = only(track(0.95, schema="vgpuscope"), own(0.0, A), own(0.0, B))
    assert {one.verdict for one in use.tenants} == {"unknown"}
    assert use.tenants[0].evidence.reasons[0] == "VERDICT_UNEXPLAINED_WORK"


def test_a_tenant_at_work_keeps_its_gpu_from_being_idle():
    use = only(track(0.0, schema="vgpuscope"), own(0.4, A))
    assert (use.verdict, use.evidence.reasons[0]) == ("in_use", "VERDICT_TENANT_WORKS")


def test_a_tenant_is_not_idle_while_another_source_saw_its_processes_work():
    use = only(track(0.5, schema="vgpuscope"), own(0.0, A), replace(own(0.5, A), schema="dcgm"), own(0.5, B))
    assert [(one.tenant.pod, one.verdict) for one in use.tenants] == [("a", "in_use"), ("b", "in_use")]


def test_a_new_tenant_is_not_held_to_the_use_that_a_gpu_had_before():
    use = only(track(0.9, schema="vgpuscope"), track(0.9, tenant=A, begin=END - 240))
    assert (use.verdict, use.tenants[0].verdict) == ("in_use", "unknown")
    assert use.tenants[0].evidence.reasons[0] == "VERDICT_HANDOVER_YOUNG"


def test_a_gpu_known_only_by_its_tenants_is_unknown():
    use = only(own(0.0, A))
    assert (use.verdict, use.status, use.score.value, use.terms) == ("unknown", "unknown", None, {})
    assert use.tenants[0].verdict == "idle"


def test_a_tenant_holds_memory_by_its_own_limit():
    memory = {"mem_used": Stat(mean=3.0 * GIB, samples=20), "mem_total": Stat(mean=4.0 * GIB, samples=20)}
    mine = own(0.0, A)
    use = only(track(0.0, schema="vgpuscope"), replace(mine, terms={**mine.terms, **memory}))
    assert (use.tenants[0].use_class, use.tenants[0].evidence.held_memory) == ("idle-held", 0.75)


def test_a_lone_tenant_has_its_gpus_verdict():
    use = only(track(0.0, tenant=A))
    assert (use.tenants[0].verdict, use.tenants[0].evidence) == ("idle", use.evidence)


def test_all_tenants_of_an_idle_shared_gpu_are_idle():
    assert [one.verdict for one in only(track(0.0, tenant=A), track(0.0, tenant=B)).tenants] == ["idle", "idle"]


# ── what is remembered, and what failed ──


def test_what_is_remembered_keeps_a_wandering_signal_from_flapping():
    previous: dict = {}
    heard: list = []
    for top in (0.0, 0.06, 0.09, 0.04, 0.08, 0.2, 0.06, 0.09, 0.04):
        uses = fleet(track(top, schema="vgpuscope"), own(top, A), previous=previous)
        previous = remembered(uses)
        heard.append((uses[0].verdict, uses[0].tenants[0].verdict))
    assert [verdict for verdict, _ in heard] == ["idle"] * 5 + ["in_use"] * 3 + ["idle"]
    assert all(one_gpu == tenant for one_gpu, tenant in heard)
    assert {key: past[:2] for key, past in previous.items()} == {
        gpu_key(uses[0]): ("idle", 1),
        tenant_key(uses[0], A): ("idle", 1),
    }


@pytest.mark.parametrize("scope", [{}, {"schema": "dcgm"}, {"own": False}, {"schema": "dcgm", "own": False}])
def test_a_term_that_could_not_be_read_is_not_one_that_the_gpu_lacks(scope):
    fault = Fault(part="video", code="TIMEOUT", message="", terms=("encoder",), **scope)
    assert only(track(0.0), faults=(fault,)).verdict == "unknown"
    assert only(track(0.9), faults=(fault,)).verdict == "in_use"
    assert only(track(0.0, terms=terms(0.0, encoder=0.0)), faults=(fault,)).verdict == "idle"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(part="http://decoder-0:9394/metrics", code="SOURCE_DOWN", message="gpu_util"),
        Fault(part="gpu_util max (DCGM_FI_DEV_GPU_UTIL)", code="TIMEOUT", message=""),
        Fault(part="decoder", code="TIMEOUT", message="", terms=("decoder",), schema="vgpuscope"),
        Fault(part="decoder", code="TIMEOUT", message="", terms=("decoder",), own=True),
        Fault(part="memory", code="TIMEOUT", message="", terms=("mem_used",)),
    ],
)
def test_a_fault_of_something_else_takes_nothing_from_a_verdict(fault):
    assert only(track(0.0), faults=(fault,)).verdict == "idle"


def test_what_could_not_be_read_of_tenants_is_theirs_and_what_could_not_of_gpus_is_the_gpus():
    tracks = track(0.9, schema="vgpuscope"), own(0.9, A), own(0.0, B)
    of_tenants = Fault(part="", code="TIMEOUT", message="", terms=("sm_active",), own=True)
    of_gpus = Fault(part="", code="TIMEOUT", message="", terms=("sm_active",), own=False)
    assert [one.verdict for one in only(*tracks, faults=(of_tenants,)).tenants] == ["in_use", "unknown"]
    assert [one.verdict for one in only(*tracks, faults=(of_gpus,)).tenants] == ["in_use", "idle"]


def test_a_target_that_was_not_reached_leaves_the_others_judged_and_marked():
    fault = Fault(part="http://n7:9394/metrics", code="SOURCE_DOWN", message="refused")
    use = only(track(0.0), faults=(fault,))
    assert (use.verdict, use.evidence.reasons[-1]) == ("idle", "VERDICT_PARTIAL_READING")


# ── laws ──

levels = st.sampled_from((0.0, 0.03, 0.07, 0.5, 1.0))
moments = st.sampled_from((BEGIN, BEGIN + 120, BEGIN + 300, BEGIN + 450, END - 30, END))


@st.composite
def tracks(draw):
    begin, end = sorted((draw(moments), draw(moments)))
    seen = max(1, round((end - begin) / WINDOW.interval))
    tenant = draw(st.sampled_from((None, A, B, replace(A, pod_uid="1"), replace(A, container="c"))))
    names: list[Term] = draw(
        st.lists(st.sampled_from(("gpu_util", "sm_active", "process_sm", "encoder", "mem_copy")), unique=True)
    )
    level = draw(levels)
    stat = Stat(mean=level / 2, max=level, samples=seen)
    power: dict[Term, Stat] = {"power": Stat(mean=draw(st.sampled_from((60.0, 240.0))), samples=seen)}
    return Track(
        schema=draw(st.sampled_from(("dcgm", "vgpuscope"))),
        gpu_id=draw(st.sampled_from((GPU, OTHER))),
        mig=draw(st.sampled_from(("", "", "", "GI-1", "MIG-1"))),
        hostname=draw(st.sampled_from(("n1", "n2"))),
        model=draw(st.sampled_from(("NVIDIA L4", ""))),
        tenant=tenant,
        own=draw(st.booleans()) if tenant else False,
        terms={**dict.fromkeys(names, stat), **power},
        first=begin,
        last=end,
    )


fleets = st.lists(tracks(), max_size=8)


@given(fleets, st.data())
def test_the_order_in_which_tracks_come_makes_no_difference(some, data):
    assert fleet(*data.draw(st.permutations(some))) == fleet(*some)


@given(fleets)
def test_a_gpu_or_instance_is_there_at_most_once(some):
    uses = fleet(*some)
    keys = [gpu_key(use) for use in uses]
    assert len(keys) == len(set(keys))
    assert {use.gpu_id for use in uses} <= {track.gpu_id for track in some}
    assert all(not (a.gpu_id == b.gpu_id and not a.mig) for a, b in pairwise(uses))


@given(fleets)
def test_nobody_has_and_had_a_gpu_at_once(some):
    for use in fleet(*some):
        assert not {one.tenant for one in use.tenants} & {one.tenant for one in use.former}


@given(fleets, st.sampled_from(("NVIDIA H100 80GB HBM3", "Tesla T4", "never heard of")))
def test_a_models_power_limit_can_raise_doubt_and_decides_nothing_else(some, model):
    before, after = fleet(*some), fleet(*(replace(track, model=model) for track in some))
    for one, two in zip(before, after, strict=True):
        doubted = {one.evidence.reasons[0], two.evidence.reasons[0]} & {"VERDICT_POWER_DISAGREES"}
        assert one.verdict == two.verdict or (doubted and {one.verdict, two.verdict} == {"idle", "unknown"})
        assert one.use_class == two.use_class or doubted or "stalled" in {one.use_class, two.use_class}


def test_power_held_against_a_guessed_limit_changes_the_status_and_not_the_class():
    drawn = {"power": Stat(mean=70.0, max=70.0, samples=20)}
    little, much = (
        only(track(model=model, terms={**terms(0.2), **drawn})) for model in ("NVIDIA H100 80GB HBM3", "Tesla T4")
    )
    assert (little.status, much.status) == ("low", "normal")
    assert (little.use_class, much.use_class) == ("low", "low")


@given(fleets)
def test_no_gpu_is_idle_while_a_track_of_it_that_goes_on_shows_work(some):
    for use in fleet(*some):
        live = [
            stat.max
            for track in some
            if track.gpu_id == use.gpu_id and track.mig == use.mig and track.last >= END - 90
            for name, stat in track.terms.items()
            if name in ACTIVITY
        ]
        if max(live, default=0) >= VerdictRules().idle_leave:
            assert use.verdict != "idle"


@given(fleets)
def test_no_gpu_or_tenant_is_idle_that_was_not_seen_for_most_of_the_window(some):
    for use in fleet(*some):
        for judged in (use, *use.tenants):
            if judged.verdict == "idle":
                assert judged.evidence.coverage >= VerdictRules().min_coverage
                assert judged.evidence.freshness <= 90


@given(fleets, st.integers(0, 7))
def test_a_gpu_does_not_change_by_what_is_seen_of_another(some, which):
    alone = [track for track in some if track.gpu_id == GPU]
    assert [use for use in fleet(*some) if use.gpu_id == GPU] == list(fleet(*alone))


@given(st.lists(st.sampled_from((A, B, Tenant(namespace="x", pod="c"))), min_size=1, max_size=3, unique=True), levels)
def test_as_many_tenants_as_share_it_still_make_one_gpu_with_one_score(tenants, level):
    shared = only(*(track(level, tenant=tenant) for tenant in tenants))
    alone = only(track(level, tenant=tenants[0]))
    assert (shared.score, shared.status, shared.verdict) == (alone.score, alone.status, alone.verdict)


def test_a_gpu_of_whose_compute_nothing_is_known_has_neither_score_nor_status():
    memory = {"mem_used": Stat(mean=0.0, samples=20), "mem_total": Stat(mean=GIB, samples=20)}
    use = only(track(terms=memory, mig="MIG-1", tenant=A))
    assert (use.score.value, use.status, use.verdict) == (None, "unknown", "unknown")
    use = only(track(terms={**memory, "engine_active": Stat(mean=0.0, max=0.0, samples=20)}, mig="MIG-1", tenant=A))
    assert (use.status, use.verdict) == ("idle", "idle")


def test_a_gpu_that_was_seen_too_little_is_not_told_to_be_idle_or_low():
    thin = replace(track(0.0, tenant=A), terms=terms(0.0, samples=8))
    assert (only(thin).score.value, only(thin).status) == (0.0, "unknown")
    busy = replace(track(0.9, tenant=A), terms=terms(0.9, samples=8))
    assert (only(busy).status, only(busy).verdict) == ("normal", "unknown")


def test_a_gpu_at_work_is_not_called_low_for_the_memory_that_it_holds():
    burst = {"gpu_util": Stat(max=0.9, samples=20), "mem_used": Stat(mean=1 * GIB), "mem_total": Stat(mean=80 * GIB)}
    use = only(track(tenant=A, terms=burst))  # as from an engine that answered only one of two queries
    assert (use.verdict, use.use_class, use.status) == ("in_use", "busy", "unknown")


def test_a_fleet_of_many_blocks_is_judged_to_the_last_gpu(monkeypatch):
    monkeypatch.setattr("vgpuscope.logic.fleet.assembly._BLOCK", 2)
    gpus = [f"GPU-{number}" for number in range(5)]
    assert [use.gpu_id for use in fleet(*(track(gpu_id=one_gpu) for one_gpu in gpus))] == gpus


def test_a_lone_tenant_has_its_gpu_since_its_numbers_began():
    late, always = only(track(begin=BEGIN + 200, tenant=A)), only(track(tenant=A))
    assert (late.tenants[0].since, always.tenants[0].since) == (BEGIN + 215, None)
    assert late.evidence.held_since == BEGIN + 215


# ── many at once ──

some_tracks = st.builds(
    lambda util, gpu, tenant, begin: track(util, gpu_id=gpu, tenant=tenant, begin=begin),
    st.sampled_from([0.0, 0.02, 0.07, 0.9]),
    st.sampled_from([f"GPU-{number}" for number in range(5)]),
    st.sampled_from([None, A, B]),
    st.sampled_from([BEGIN, BEGIN + 300, END - 60]),
)


@given(st.lists(some_tracks, max_size=12))
def test_a_block_of_gpus_is_concluded_as_each_of_them_alone(found):
    together = fleet(*found)
    alone: dict[str, list[Track]] = {}
    for one in found:
        alone.setdefault(one.gpu_id, []).append(one)
    each = [use for own_tracks in alone.values() for use in one_by_one(own_tracks)]
    assert {use.gpu_id: use for use in together} == {use.gpu_id: use for use in each}


def one_by_one(own_tracks):
    """The plain way: one GPU after the other."""
    context = AnalysisContext(
        source="test",
        window=WINDOW,
        previous={},
        weights=ScoreWeights(),
        thresholds=Thresholds(),
        rules=VerdictRules(),
        owners={},
        default_power=DEFAULT_POWER,
        default_memory=None,
        partial=False,
        faults=(),
    )
    return [use for unit in units_of(own_tracks, context) if (use := conclude(unit, context)) is not None]
