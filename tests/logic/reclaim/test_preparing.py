"""A workload that prepares data on its CPUs keeps its GPUs, unless the policy says otherwise."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import LIVE, OLD, WINDOW, Player, analysis, gpu, tenant
from vgpuscope.logic.notices.kinds import of_move
from vgpuscope.logic.reclaim.brakes import TickFacts
from vgpuscope.logic.reclaim.machine import may_deliver, may_tell
from vgpuscope.logic.reclaim.workloads import HoldingWorkloads
from vgpuscope.model.analysis import Evidence

START = 10_000.0


def preparing(name="a"):
    return gpu(1, tenant(name, "idle", use_class="idle-preparing"))


def test_a_workload_that_prepares_data_is_never_acted_on_and_its_case_says_why():
    player = Player()
    for turn in range(12):
        player.see(START + turn * WINDOW, preparing())
    case = player.cases["uid-a"]
    assert (player.acts, case.state, case.held_by, case.confirmations) == ([], "candidate", ("preparing",), 0)
    assert player.held_back == ["preparing"]
    assert case.shares[0].use_class == "idle-preparing"


def test_the_policy_can_include_it():
    player = Player(policy=replace(LIVE, include_preparing=True))
    for turn in range(6):
        player.see(START + turn * WINDOW, preparing())
    assert len(player.acts) == 1


def test_a_policy_that_includes_it_still_leaves_held_memory_alone():
    held = tenant("a", "idle", use_class="idle-preparing")
    held = replace(held, evidence=Evidence(coverage=1.0, reasons=("VERDICT_IDLE_NO_WORK", "VERDICT_IDLE_MEMORY_HELD")))
    found = HoldingWorkloads(analysis(START, gpu(1, held)).gpus).finding(
        "uid-a", replace(LIVE, include_preparing=True), held={}
    )
    assert found == "held"


def test_a_candidate_that_begins_to_prepare_counts_from_zero_when_it_ends():
    player = Player()
    end = player.idle(2)
    player.see(end + WINDOW, preparing())
    player.idle(2, start=end + 2 * WINDOW)
    assert player.acts == []
    player.idle(2, start=end + 4 * WINDOW)
    assert len(player.acts) == 1


def test_a_case_that_was_decided_is_released_and_what_is_on_its_way_is_cancelled():
    player = Player()
    end = player.idle(4)
    assert player.state() == "acting"
    result = player.see(end + WINDOW, preparing())
    assert (player.state(), player.cases["uid-a"].reason) == ("released", "prepares_data")
    assert [move.wish for move in result.moves] == ["cancel"]
    player.see(end + 2 * WINDOW, preparing())
    assert (player.state(), player.cases["uid-a"].held_by) == ("candidate", ("preparing",))


def test_no_call_and_no_notice_goes_out_for_a_workload_that_prepares():
    player = Player()
    end = player.idle(4)
    case, world = player.cases["uid-a"], TickFacts(now=end, leads=True, stored=True)
    assert may_deliver(case, "preparing", OLD, LIVE, world) == ("released",)
    assert may_tell(replace(case, state="grace"), "preparing", OLD, LIVE, world) == ("released",)


def test_an_owner_who_was_told_hears_that_nothing_will_happen():
    player = Player()
    player.idle(4)
    before = replace(player.cases["uid-a"], state="grace", notified_at=1.0)
    after = replace(before, state="released", reason="prepares_data")
    assert of_move(before, after, tell=False, only_told=False) == "recovered"


def test_one_share_that_prepares_saves_the_whole_workload():
    player = Player()
    for turn in range(8):
        both = (gpu(1, tenant("a", "idle")), gpu(2, tenant("a", "idle", use_class="idle-preparing")))
        player.see(START + turn * WINDOW, *both)
    assert player.acts == []


@given(st.lists(st.sampled_from(["idle"] * 6 + ["idle-preparing"]), min_size=4, max_size=40))
@settings(deadline=None)
def test_an_act_needs_idle_windows_without_preparation_just_before_it(history):
    player = Player()
    for turn, use_class in enumerate(history):
        end = START + turn * WINDOW
        player.see(end, gpu(1, tenant("a", "idle", use_class=use_class)))
        if player.acts and player.acts[-1][0] == end:
            assert history[max(0, turn - 2) : turn + 1] == ["idle"] * 3
