"""What is told of an analysis is what differs from the one before, and nothing else."""

from hypothesis import given
from msgspec.structs import replace

from tests.store import fleets
from vgpuscope.logic.fleet.changes import changes, seen
from vgpuscope.model.analysis import Score

BUSY = {"verdict": "in_use", "status": "normal", "use_class": "busy"}
IDLE = {"verdict": "idle", "status": "idle", "use_class": "idle"}


def told(before, after) -> list[tuple]:
    one, two = fleets.analysis(fleets.NOON, *before), fleets.analysis(fleets.NOON + 300, *after)
    return [(c.kind, c.gpu_id, c.before, c.verdict, c.tenant.pod if c.tenant else "") for c in changes(seen(one), two)]


@given(fleets.analyses())
def test_nothing_is_told_if_nothing_changed(analysis):
    again = replace(analysis, number=2, started=analysis.started + 300)
    assert list(changes(seen(analysis), again)) == []


@given(fleets.analyses(), fleets.analyses(number=2))
def test_told_changes_are_those_of_gpus_that_differ(one, two):
    before, after = ({(gpu.gpu_id, gpu.mig): gpu for gpu in found.gpus} for found in (one, two))
    found = list(changes(seen(one), two))
    of = {kind: {(c.gpu_id, c.mig) for c in found if c.kind == kind} for kind in ("appeared", "gone", "verdict")}
    assert of["appeared"] == after.keys() - before.keys()
    assert of["gone"] == before.keys() - after.keys()
    both = before.keys() & after.keys()
    assert of["verdict"] == {key for key in both if before[key].verdict != after[key].verdict}
    for kind in ("appeared", "gone", "verdict", "class"):
        keys = [(c.gpu_id, c.mig) for c in found if c.kind == kind]
        assert len(keys) == len(set(keys))


def test_the_load_of_a_gpu_is_no_change():
    calm, loaded = (fleets.gpu(0, score=Score(value=v), **BUSY | {"status": s, "use_class": c}) for v, s, c in LOADS)
    assert told([calm], [loaded]) == told([loaded], [calm]) == []


LOADS = ((15.0, "low", "low"), (90.0, "high", "busy"))


def test_a_gpu_that_turns_idle_is_told_once_with_its_only_tenant():
    before, after = (fleets.gpu(0, tenants=(fleets.tenant("train", **state),), **state) for state in (BUSY, IDLE))
    assert told([before], [after]) == [("verdict", before.gpu_id, "in_use", "idle", "train")]


def test_a_class_that_says_more_than_the_verdict_is_told():
    busy, hangs = fleets.gpu(0, **BUSY), fleets.gpu(0, **BUSY | {"use_class": "stalled"})
    assert told([busy], [hangs]) == [("class", busy.gpu_id, "in_use", "in_use", "")]
    assert told([hangs], [busy]) == [("class", busy.gpu_id, "stalled", "in_use", "")]


def test_a_tenant_of_a_shared_gpu_is_told_when_it_turns_idle_and_not_when_it_is_first_known():
    def shared(**state):
        return fleets.gpu(0, tenants=(fleets.tenant("a", **BUSY), fleets.tenant("b", **state)), **BUSY)

    new = {"verdict": "unknown", "status": "unknown", "use_class": "unknown"}
    assert told([shared(**new)], [shared(**BUSY)]) == []
    assert told([shared(**BUSY)], [shared(**IDLE)]) == [("tenant_verdict", shared().gpu_id, "in_use", "idle", "b")]
    assert told([shared(**IDLE)], [shared(**BUSY)]) == [("tenant_verdict", shared().gpu_id, "idle", "in_use", "b")]


def test_health_is_told_once_for_all_instances_and_needs_attention_while_it_is_bad():
    well, lost = ([fleets.gpu(0, mig=m, health=h, **BUSY) for m in ("a", "b")] for h in ("ok", "lost"))
    (bad,) = changes(seen(fleets.analysis(fleets.NOON, *well)), fleets.analysis(fleets.NOON, *lost))
    (good,) = changes(seen(fleets.analysis(fleets.NOON, *lost)), fleets.analysis(fleets.NOON, *well))
    assert (bad.kind, bad.health, bad.needs_attention) == ("health", "lost", True)
    assert (good.kind, good.health, good.before, good.needs_attention) == ("health", "ok", "lost", False)
