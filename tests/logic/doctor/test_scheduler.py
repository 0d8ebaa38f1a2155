"""What doctor says of the scheduler extender and of device plugins: what is not installed is skipped, never passed."""

from typing import Any

from vgpuscope.logic.doctor.chain import CHAIN, judged
from vgpuscope.model.console.facts import ClusterFacts
from vgpuscope.model.doctor import (
    CheckOutcome,
    DoctorFacts,
    ExtenderFacts,
    Missing,
    ObjectNames,
    SeriesFacts,
    SeriesValue,
)
from vgpuscope.model.pending import PendingList, PendingPod

CODES = tuple(link.code for link in CHAIN if link.stage == "scheduler")
NOW = 1_800_000_000.0


def judgements(**facts: Any) -> dict[str, CheckOutcome]:
    gone: dict[str, Any] = {name: Missing(fact="driver", reason="not-here") for name in DoctorFacts.__struct_fields__}
    checks = judged(DoctorFacts(**(gone | {"at": NOW, "place": "outside"} | facts)))
    return {check.code: check.judgement for check in checks if check.code in CODES}


def extender(**facts: Any) -> ExtenderFacts:
    return ExtenderFacts(url="http://extender:8080", **facts)


def series(*found: tuple[str, float, dict[str, str]]) -> SeriesFacts:
    return SeriesFacts(now=tuple(SeriesValue(name=name, value=value, labels=labels) for name, value, labels in found))


def waiting(age: float) -> ClusterFacts:
    pod = PendingPod(namespace="ml", pod="a", pod_uid="u", scheduler="default-scheduler", created=NOW - age)
    return ClusterFacts(pending=PendingList(now=NOW, pending=(pod,)))


def test_without_extender_and_device_plugins_every_check_is_skipped():
    assert {one.status for one in judgements().values()} == {"skipped"}
    other = series(("vgpuscope_gpu_info", 1, {"node": "a"}))
    assert {one.status for one in judgements(series=other).values()} == {"skipped"}


def test_a_replica_that_stands_by_is_no_failure_and_is_ready_but_for_the_lease():
    found = judgements(extender=extender(missing=("lease: held by extender-2",), leader=False, filters=0))
    assert found["EXTENDER_NOT_READY"].status == "pass"
    assert found["EXTENDER_NO_LEADER"].status == "warn"
    assert found["EXTENDER_NO_LEADER"].examples == ("lease: held by extender-2",)


def test_one_leader_among_the_replicas_is_enough_whichever_was_asked():
    both = series(
        ("vgpuscope_extender_leader", 0, {"job": "x", "instance": "r1"}),
        ("vgpuscope_extender_leader", 1, {"job": "x", "instance": "r2"}),
    )
    found = judgements(series=both, extender=extender(leader=False))
    assert (found["EXTENDER_NO_LEADER"].status, found["EXTENDER_NO_LEADER"].numbers) == ("pass", {"replicas": 2})


def test_an_extender_without_requests_is_a_fault_only_while_a_pod_has_waited_for_a_minute():
    idle = extender(leader=True, filters=0)
    assert judgements(extender=idle, cluster=waiting(30))["EXTENDER_NOT_ASKED"].status == "skipped"
    fault = judgements(extender=idle, cluster=waiting(90))["EXTENDER_NOT_ASKED"]
    assert (fault.status, fault.examples) == ("fail", ("ml/a: default-scheduler",))
    assert judgements(extender=extender(filters=1), cluster=waiting(90))["EXTENDER_NOT_ASKED"].status == "pass"


def test_a_plugin_that_was_asked_and_is_scraped_is_counted_once():
    down = ("vgpuscope_plugin_kubelet_up", 0.0, {"node": "a"})
    scraped = ("vgpuscope_plugin_kubelet_up", 0.0, {"node": "a", "job": "x", "instance": "a:9396"})
    found = judgements(series=series(scraped), plugins=series(down))["PLUGIN_NOT_REGISTERED"]
    assert (found.status, found.examples, found.numbers) == ("fail", ("a",), {"count": 1})


def test_an_unhealthy_gpu_is_named_with_its_reason():
    pages = series(
        ("hami_device_plugin_healthy_status", 0, {"node": "a", "device": "GPU-1"}),
        ("hami_device_plugin_healthy_status", 1, {"node": "a", "device": "GPU-2"}),
        ("vgpuscope_plugin_gpu_unhealthy", 1, {"node": "a", "gpu_uuid": "GPU-1", "reason": "xid-79"}),
    )
    found = judgements(plugins=pages)["PLUGIN_GPU_UNHEALTHY"]
    assert (found.status, found.examples) == ("fail", ("a: GPU-1 xid-79",))
    assert found.names == ObjectNames(node="a")


def test_a_pod_that_waits_for_nobody_is_named_for_commands():
    found = judgements(extender=extender(filters=0), cluster=waiting(90))["EXTENDER_NOT_ASKED"]
    assert f"{found.names.namespace}/{found.names.pod}" == found.examples[0].split(":")[0]


def test_a_plugin_that_does_not_answer_passes_nothing():
    silent = Missing(fact="plugin", reason="no-answer", detail="refused", place="http://a:9396")
    found = judgements(plugins=silent)
    assert {found[code].status for code in CODES if code.startswith("PLUGIN")} == {"skipped"}
