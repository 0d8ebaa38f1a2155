"""The reclaim bench judges rightly: its workloads, their truth, and what it counts."""

from bench import trust_feed
from bench.reclaim_measure import ReclaimFigures, TickFigures
from bench.reclaim_report import table, targets
from bench.reclaim_trust import GONE, figures, taken
from bench.trust_case import BUSY, EITHER, IDLE, PREPARING, UNPROVEN
from bench.trust_world import Tenant


def workloads() -> list[tuple[str, Tenant]]:
    cases = trust_feed.world("usual").cases
    return [
        (f"{case.kind.name} {case.setup.name}", tenant)
        for case in cases
        for gpu in case.gpus
        for tenant in (*gpu.tenants, *(one.tenant for one in gpu.instances))
    ]


def test_two_workloads_never_have_the_same_uid():
    """The machine would take them for one."""
    owners: dict[str, set[str]] = {}
    for place, tenant in workloads():
        owners.setdefault(tenant.uid, set()).add(f"{place} {tenant.namespace}/{tenant.pod}/{tenant.generation}")
    assert [names for names in owners.values() if len(names) > 1] == []


def test_whoever_acts_on_everybody_is_wrong_and_whoever_acts_on_nobody_misses_all():
    cases = trust_feed.world("usual").cases
    everybody = figures(taken(cases, {tenant.uid for _, tenant in workloads()}), calls=1)
    assert everybody.acted == everybody.workloads
    assert everybody.wrong > 100
    assert everybody.without_uid > 100
    assert everybody.recall == 1.0
    nobody = figures(taken(cases, set()), calls=0)
    assert (nobody.wrong, nobody.found, nobody.recall) == (0, 0, 0.0)
    assert nobody.idle > 50
    assert nobody.missed_kinds


def test_every_truth_occurs():
    truths = {one.truth for one in taken(trust_feed.world("usual").cases, set())}
    assert {BUSY, IDLE, PREPARING, UNPROVEN, EITHER, GONE} <= truths


def test_a_wrong_action_misses_the_target_and_names_its_kind():
    cases = trust_feed.world("usual").cases
    busy = next(
        tenant.uid
        for case in cases
        for gpu in case.gpus
        for tenant in gpu.tenants
        if set(case.truth.values()) == {BUSY}
    )
    tick = TickFigures(
        workloads=1,
        cases=1,
        ticks=(0.1, 0.2, 0.3),
        turned=0.4,
        lower_bound=0.1,
        resident_bytes=1.0,
        moves=1,
        batch_seconds=1.0,
        frame_seconds=1.0,
        frame_bytes=1,
        speed=1.0,
    )
    found = ReclaimFigures(trust=figures(taken(cases, {busy}), calls=1), tick=tick)
    missed = [target.what for target in targets(found) if not target.met]
    assert "busy, unproven or gone workloads that were acted on" in missed
    assert "wrong: " in table(found)
    assert (tick.median, tick.worst) == (0.2, 0.4)
