"""What is gone is not forgotten: a GPU that stops reporting stays listed as unknown until it is known to be gone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.services.analyzer.analyzing import stat
from vgpuscope.logic.fleet.presence import MOST_PER_TARGET, expected, kept, split
from vgpuscope.model.analysis import (
    Analysis,
    Evidence,
    Fault,
    GpuUse,
    Reading,
    Score,
    Target,
    Tenant,
    TenantUse,
    Window,
)

NOW, INTERVAL, DAY = 100_000.0, 300.0, 86_400.0
A, B = "http://node-a:9394", "http://node-b:9394"


def gpu(name: str = "GPU-1", *, host: str = "node-a", target: str = A, age: float = 5.0, **more) -> GpuUse:
    """A busy GPU whose last sample was `age` seconds old when it was analysed."""
    fields: dict[str, Any] = {
        "gpu_id": name,
        "hostname": host,
        "target": target,
        "model": "NVIDIA A100",
        "terms": {"gpu_util": stat(0.9)},
        "score": Score(value=80.0, confidence=1.0),
        "status": "high",
        "verdict": "in_use",
        "use_class": "busy",
        "evidence": Evidence(reasons=("VERDICT_IN_USE",), freshness=age, max_age=90.0, schema="vgpuscope"),
        "tenants": (TenantUse(tenant=Tenant(namespace="ml", pod="train")),) if age <= 90 else (),
    }
    return GpuUse(**(fields | more))


def window(end: float) -> Window:
    return Window(begin=end - 600, end=end, interval=30)


def analysis(*gpus: GpuUse, end: float = NOW - INTERVAL) -> Analysis:
    return Analysis(number=1, started=end, seconds=0.1, window=window(end), gpus=gpus)


def reading(*targets: Target, end: float = NOW, faults: tuple[Fault, ...] = ()) -> Reading:
    return Reading(window=window(end), targets=targets, faults=faults)


def up(name: str) -> Target:
    return Target(name=name, up=True)


def down(name: str) -> Target:
    return Target(name=name, up=False, since=NOW - 400, reason="refused")


def stays(*found, before, read=None, **more) -> tuple[GpuUse, ...]:
    read = read or reading(down(A))
    present = split(found, before=before, window=read.window)
    return kept(present, reading=read, **{"interval": INTERVAL, "forget_after": DAY, **more})


def names(gpus) -> list[str]:
    return [gpu.gpu_id + gpu.mig for gpu in gpus]


# ── who stays ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gpu_whose_target_died_stays_as_unknown_with_its_age_and_without_score_and_tenants():
    (one,) = stays(before=analysis(gpu(health="lost", xids=(79,))))
    assert (one.verdict, one.use_class, one.status) == ("unknown", "unknown", "unknown")
    assert (one.score.value, one.tenants, one.terms) == (None, (), {})
    assert (one.last_seen, one.target, one.hostname, one.model) == (NOW - INTERVAL - 5, A, "node-a", "NVIDIA A100")
    assert one.evidence.reasons == ("VERDICT_NOT_SEEN", "VERDICT_TARGET_DOWN")
    assert one.evidence.freshness == INTERVAL + 5
    assert (one.health, one.xids) == ("lost", (79,))


def test_a_gpu_that_fell_silent_within_the_window_has_no_score_of_former_days():
    (one,) = stays(gpu(age=200.0), before=analysis(gpu()))
    assert (one.score.value, one.status, one.last_seen) == (None, "unknown", NOW - 200)
    assert one.evidence.reasons[0] == "VERDICT_NOT_SEEN"


def test_who_had_a_silent_gpu_has_a_time_and_no_numbers_as_the_gpu_has_none():
    was = TenantUse(
        tenant=Tenant(namespace="ml", pod="train"), own=True, terms={"mem_used": stat(8e9)}, until=NOW - 200
    )
    (one,) = stays(gpu(age=200.0, former=(was,)), before=analysis(gpu()))
    assert (one.terms, one.former) == ({}, (replace(was, terms={}),))


def test_who_reports_is_not_away():
    present = split([gpu()], before=analysis(gpu()), window=window(NOW))
    assert (names(present.reporting), present.away) == (["GPU-1"], ())


def test_a_gpu_whose_tenants_report_is_not_away():
    tenants = (TenantUse(tenant=Tenant(namespace="ml", pod="train"), own=True),)
    assert split([gpu(age=200.0, tenants=tenants)], before=None, window=window(NOW)).away == ()


def test_a_gpu_that_its_exporter_reports_as_lost_is_reported_for_as_long_as_it_does():
    lost = gpu(age=200.0, health="lost", score=Score(value=None), verdict="unknown")
    present = split([lost], before=analysis(gpu()), window=window(NOW))
    assert (present.reporting, present.away) == ((lost,), ())
    (away,) = stays(before=analysis(lost))  # its exporter died since
    assert (away.health, away.last_seen) == ("lost", NOW - INTERVAL - 200)


def test_the_age_goes_on_and_the_last_sample_does_not():
    (once,) = stays(before=analysis(gpu()))
    later = NOW + INTERVAL
    (twice,) = stays(before=analysis(once, end=NOW), read=reading(down(A), end=later))
    assert twice.last_seen == once.last_seen
    assert twice.evidence.freshness == once.evidence.freshness + INTERVAL


def test_a_gpu_that_is_back_is_as_it_was():
    (away,) = stays(before=analysis(gpu()))
    present = split([gpu()], before=analysis(away, end=NOW), window=window(NOW + INTERVAL))
    assert (present.reporting, present.away) == ((gpu(),), ())


# ── who is gone ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_the_configured_time_a_gpu_is_forgotten():
    assert names(stays(before=analysis(gpu()), forget_after=INTERVAL + 6)) == ["GPU-1"]
    assert stays(before=analysis(gpu()), forget_after=INTERVAL + 5) == ()
    assert stays(gpu(age=200.0), before=analysis(gpu()), forget_after=0) == ()


def test_a_gpu_of_a_time_to_come_is_forgotten():
    assert stays(before=analysis(gpu(), end=NOW + 2 * DAY)) == ()


def test_a_gpu_goes_with_its_node():
    other, nodes = gpu("GPU-2", host="node-b", target=B), {"node-b", "control-plane"}
    before = analysis(gpu(), other)
    assert stays(other, before=before, nodes=nodes) == ()
    assert names(stays(other, before=before, nodes=nodes | {"node-a"})) == ["GPU-1"]
    assert names(stays(other, before=before, nodes=None)) == ["GPU-1"]


def test_a_list_of_nodes_by_other_names_proves_nothing():
    other = gpu("GPU-2", host="node-b.example.org", target=B)
    assert names(stays(other, before=analysis(gpu(), other), nodes={"node-b"})) == ["GPU-1"]
    assert names(stays(before=analysis(gpu()), nodes={"node-b"})) == ["GPU-1"]  # nobody reports: nothing to compare


def analysed_again(times: int, *, read, found=()) -> list[tuple[GpuUse, ...]]:
    """What stays in each of several analyses, one interval apart."""
    before, seen = analysis(gpu(), end=NOW - INTERVAL), []
    for number in range(times):
        end = NOW + number * INTERVAL
        seen.append(stays(*found, before=before, read=replace(read(number), window=window(end))))
        before = analysis(*found, *seen[-1], end=end)
    return seen


def test_a_gpu_is_gone_once_its_target_has_answered_without_it_for_a_few_analyses():
    seen = analysed_again(4, read=lambda _: reading(up(A)))
    assert [names(one) for one in seen] == [["GPU-1"], ["GPU-1"], [], []]
    assert seen[0][0].evidence.reasons == ("VERDICT_NOT_SEEN", "VERDICT_TARGET_WITHOUT_IT")


def test_a_target_that_falls_again_has_to_answer_for_a_few_analyses_anew():
    seen = analysed_again(6, read=lambda number: reading(down(A) if number == 1 else up(A)))
    assert [names(one) for one in seen] == [["GPU-1"]] * 4 + [[], []]


def test_another_gpu_of_the_same_target_or_node_shows_that_it_answers():
    beside = gpu("GPU-2")
    assert names(analysed_again(3, read=lambda _: reading(), found=(beside,))[-1]) == []
    moved = gpu("GPU-2", target="http://10.0.0.9:9394")  # the agent's pod was replaced
    assert names(analysed_again(3, read=lambda _: reading(), found=(moved,))[-1]) == []
    elsewhere = gpu("GPU-2", host="node-b", target=B)
    assert names(analysed_again(3, read=lambda _: reading(), found=(elsewhere,))[-1]) == ["GPU-1"]


def test_a_reading_of_which_a_query_failed_does_not_prove_that_a_gpu_is_gone():
    fault = Fault(part="gpu_util of dcgm", code="QUERY_FAILED", message="503", terms=("gpu_util",))
    seen = analysed_again(5, read=lambda _: reading(up(A), faults=(fault,)))
    assert [names(one) for one in seen] == [["GPU-1"]] * 5
    told = Fault(part=B, code="SOURCE_DOWN", message="refused")  # another target's
    assert names(analysed_again(3, read=lambda _: reading(up(A), down(B), faults=(told,)))[-1]) == []


def test_a_gpu_that_was_cut_into_instances_or_made_whole_again_is_gone_at_once():
    whole, cut = gpu(), gpu(mig="MIG-1", profile="3g.40gb")
    assert stays(cut, before=analysis(whole), read=reading(up(A))) == ()
    assert stays(whole, before=analysis(cut, gpu(mig="MIG-2")), read=reading(up(A))) == ()
    assert names(stays(before=analysis(cut, gpu(mig="MIG-2")))) == ["GPU-1MIG-1", "GPU-1MIG-2"]


def test_what_is_gone_and_still_in_the_window_does_not_come_back():
    silent = [(gpu(age=100.0 + number * 60),) for number in range(8)]
    before, seen = analysis(gpu(), end=NOW - 60), []
    for number, found in enumerate(silent):
        end = NOW + number * 60
        read = reading(up(A), end=end)
        seen.append(bool(stays(*found, before=before, read=read, interval=60.0)))
        before = analysis(*stays(*found, before=before, read=read, interval=60.0), end=end)
    assert seen == [True] * 2 + [False] * 6


def test_a_target_that_was_removed_from_the_settings_takes_its_gpus_along():
    read = reading(up(B))
    assert names(stays(before=analysis(gpu()), read=read)) == ["GPU-1"]
    assert stays(before=analysis(gpu()), read=read, all_targets=True) == ()
    assert names(stays(before=analysis(gpu()), read=reading(down(A)), all_targets=True)) == ["GPU-1"]


def test_an_exporter_that_makes_up_names_does_not_fill_the_list():
    before = analysis(*(gpu(f"GPU-{number:03}", age=number / 10) for number in range(200)))
    found = stays(gpu("GPU-B", host="node-b", target=B), before=before)
    assert names(found) == [f"GPU-{number:03}" for number in range(MOST_PER_TARGET)]


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_that_discovery_lost_is_still_expected_while_its_gpus_are_missed():
    stay = stays(before=analysis(gpu(), gpu("GPU-2", age=1.0)), read=reading(up(B)))
    (there, left) = expected((up(B),), stay)
    assert there == up(B)
    assert (left.name, left.up, left.since) == (A, False, NOW - INTERVAL - 1)
    assert expected((up(B),), ()) == (up(B),)
    assert expected((down(A),), stay) == (down(A),)


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────

states = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


@given(states)
def test_whatever_its_target_does_a_gpu_that_is_listed_is_listed_once_and_unknown_unless_it_reports(history):
    """Each step: whether the target answers, and whether the GPU is on its page."""
    before, last, answered = analysis(gpu(), end=NOW - INTERVAL), NOW - INTERVAL - 5, 0
    for number, (answers, there) in enumerate(history):
        end = NOW + number * INTERVAL
        found = (gpu(),) if answers and there else ()
        read = reading(up(A) if answers else down(A), end=end)
        stay = stays(*found, before=before, read=read)
        answered = answered + 1 if answers and not there and before.gpus else 0
        if found:
            last = end - 5
        assert len(found) + len(stay) == (bool(found) or (bool(before.gpus) and answered < 3))
        assert all(one.verdict == one.status == "unknown" and one.last_seen == last for one in stay)
        before = analysis(*found, *stay, end=end)
