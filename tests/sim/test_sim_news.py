"""What the demo tells of itself: sentences from what its processes answer."""

import msgspec
import pytest

from vgpuscope.model.device import Gpu
from vgpuscope.model.pending import PendingList, PendingPod, Said
from vgpuscope.model.scheduling_codes import BY_CODE, Reason
from vgpuscope.model.usage import GpuUsage, NodeSnapshot
from vgpuscope.sim.news import NewsAnswers, NewsCases, NewsEvent, NewsRow, NewsState, findings

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
CODE = "SCHED_INSUFFICIENT_GPU_MEMORY"


def row(**changes):
    """A row of /results as the analyzer sends it, read from its JSON."""
    sent = {
        "gpu_id": "GPU-1",
        "hostname": "gpu-b",
        "gpu_index": "1",
        "model_name": "NVIDIA H100 80GB HBM3",
        "verdict": "idle",
        "use_class": "idle-held",
        "mig": "",
        "mig_profile": "",
        "mem_used_mb": 20480.0,
        "idle_since": "2023-11-14T13:10:00Z",
        "tenants": [],
        "score": 6.2,
    }
    return msgspec.json.decode(msgspec.json.encode(sent | changes), type=NewsRow)


def tenant(pod, verdict="idle", **more):
    return {"namespace": "research", "pod": pod, "container": "main", "verdict": verdict} | more


def waits(*codes, requests=None, **more):
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 122880} if requests is None else requests
    pods = tuple(
        PendingPod(namespace="batch", pod=f"fill-{n}", pod_uid=f"uid-{n}", code=code, requests=asked, **more)
        for n, code in enumerate(codes)
    )
    return PendingList(now=NOW, pending=pods, codes={code: BY_CODE[code] for code in codes})


def told(*rows, waiting=None):
    return findings(NewsAnswers(rows, waiting, ()), now=NOW)


def test_an_idle_holder_is_told_with_gpu_hours_node_and_memory():
    [sentence] = told(row(tenants=[tenant("notebook-carol", idle_since="2023-11-14T13:10:00Z")]))
    assert sentence == "research/notebook-carol has held an idle H100 for 9 h (gpu-b, 20 GiB)"


def test_an_analyzer_that_does_not_say_since_when_gets_no_hours():
    [sentence] = told(row(idle_since=None, tenants=[tenant("notebook-carol")]))
    assert sentence == "research/notebook-carol has held an idle H100 (gpu-b, 20 GiB)"


def test_an_idle_tenant_beside_busy_ones_is_told_though_its_gpu_is_in_use():
    alice = tenant("notebook-alice", mem_used_mb=9000.0, idle_since="2023-11-14T18:10:00Z")
    shared = row(verdict="in_use", idle_since=None, tenants=[alice, tenant("train", "in_use", mem_used_mb=30000.0)])
    assert told(shared) == ["research/notebook-alice holds 9 GiB of a busy H100, idle for 4 h (gpu-b)"]


@pytest.mark.parametrize("verdict", ["in_use", "unknown"])
def test_nobody_is_called_idle_whom_the_analyzer_does_not_call_so(verdict):
    assert not told(row(verdict=verdict, tenants=[tenant("one", verdict), tenant("two", verdict, mem_used_mb=9e3)]))


def test_the_largest_waste_comes_first_and_every_sort_is_told_once_before_another():
    small = row(gpu_id="a", mem_used_mb=900.0, tenants=[tenant("small")])
    large = row(gpu_id="b", tenants=[tenant("large")])
    free = row(gpu_id="c", gpu_index="3", mem_used_mb=4.0)
    sentences = told(small, large, free, waiting=waits("SCHED_QUOTA_EXCEEDED"))
    assert sentences == [
        "research/large has held an idle H100 for 9 h (gpu-b, 20 GiB)",
        "batch/fill-0 is pending: 120 GiB more would exceed the quota of batch",
        "gpu-b GPU 3 (H100) is free and idle for 9 h",
    ]


def test_a_pod_is_pending_for_a_reason_with_the_amount_it_asks_for():
    assert told(waiting=waits(CODE)) == ["batch/fill-0 is pending: no GPU has 120 GiB free"]
    assert told(waiting=waits(CODE, requests={})) == [
        "batch/fill-0 is pending: No GPU has as much free memory as the pod asks for"
    ]


# --- events ----------------------------------------------------------------------------------------------------------


def node(health, xid=79):
    gpu = GpuUsage(gpu=Gpu(uuid="GPU-1", index=1, model="A100", health=health), mode=None)
    return NodeSnapshot(at=NOW, node="sick-e", ratio=1.0, gpus=(gpu,), last_xid=(("GPU-1", xid),))


def events(*looks):
    known = NewsState()
    return [known.news(look) for look in looks][1:]


def test_a_lost_gpu_is_told_once_with_its_xid_and_again_when_it_is_back():
    looks = [NewsAnswers((), None, (node(health),)) for health in ("ok", "lost", "lost", "ok")]
    assert events(*looks) == [
        [NewsEvent("GPU lost", "sick-e GPU 1 (XID 79, fell off the bus)")],
        [],
        [NewsEvent("GPU back", "sick-e GPU 1 is ok (was lost)")],
    ]


def test_a_tenant_that_stops_and_computes_again_is_told_through_unknown_verdicts():
    looks = [
        NewsAnswers((row(tenants=[tenant("api", verdict)]),), None, ())
        for verdict in ("in_use", "unknown", "idle", "unknown", "idle", "in_use")
    ]
    assert events(*looks) == [
        [],
        [NewsEvent("tenant idle", "research/api does nothing and holds 20 GiB (gpu-b GPU 1)")],
        [],
        [],
        [NewsEvent("tenant back", "research/api computes again (gpu-b GPU 1)")],
    ]


def test_whoever_was_idle_at_the_first_look_is_not_news():
    assert events(*[NewsAnswers((row(tenants=[tenant("notebook")]),), None, ())] * 2) == [[]]


def test_a_pod_that_begins_to_wait_is_told_once_its_reason_is_known():
    reason = (Said(reason=Reason(code=CODE), component="hami-scheduler"),)
    looks = [
        NewsAnswers((), waiting, ())
        for waiting in (waits(), waits(CODE), waits(CODE, said=reason), waits(CODE, said=reason))
    ]
    assert events(*looks) == [[], [NewsEvent("pod pending", "batch/fill-0: no GPU has 120 GiB free")], []]


def test_a_process_that_does_not_answer_is_not_news():
    assert events(
        NewsAnswers((row(tenants=[tenant("a", "in_use")]),), waits(CODE), (node("ok"),)), NewsAnswers(None, None, ())
    ) == [[]]


def case(state, **changes):
    """A case of /api/v1/reclaim as the analyzer sends it, read from its JSON."""
    sent = {"id": "u1", "state": state, "namespace": "research", "pod": "lab", "gpu_ids": ["GPU-1"], "reason": ""}
    answer = {"mode": "dry_run", "total": 1, "cases": [sent | {"by": None, "dry_run": False} | changes]}
    return NewsAnswers(None, None, (), msgspec.json.decode(msgspec.json.encode(answer), type=NewsCases).cases)


def test_a_case_is_told_of_in_each_new_state_and_not_at_the_first_look():
    looks = [
        case("candidate"),
        case("grace"),
        case("grace"),
        case("would_act"),
        case("candidate"),
        case("acting"),
        NewsAnswers(None, None, ()),
        case("verified"),
    ]
    told = [event.words for found in events(*looks) for event in found]
    assert told == [
        "research/lab is confirmed idle: its grace period runs",
        "research/lab would lose its GPU now (dry run)",
        "research/lab is idle: a case is opened",
        "research/lab loses its GPU",
        "research/lab is gone, and its GPU is free",
    ]


def test_a_case_is_told_of_with_who_moved_it_and_why_it_ended():
    first = NewsAnswers(None, None, (), ())
    assert [event.words for event in events(first, case("snoozed", by="alice"))[0]] == [
        "research/lab is left alone for a while (by alice)"
    ]
    for reason, words in (
        ("works_again", "works again"),
        ("ended", "has ended"),
        ("holds_memory", "no longer"),
    ):
        assert words in events(first, case("released", reason=reason))[0][0].words
