"""Annotations as people write them, right and wrong. What is not understood is safe for the owner."""

import msgspec
import pytest

from vgpuscope.formats.hours import schedule
from vgpuscope.formats.kube.changes import RESTORED, ChangeAnnotation, at_rest, mark_of, patch, present, stopped
from vgpuscope.formats.kube.notes import notes_of
from vgpuscope.formats.kube.workloads import decode_autoscalers, decode_object, decode_pod, decode_pods
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.reclaim import ReclaimTarget

RECLAIM, GRACE = "vgpuscope.io/reclaim", "vgpuscope.io/idle-grace"


@pytest.mark.parametrize("said", ["never", "notify", "auto", " Never ", "AUTO"])
def test_a_consent(said):
    notes = notes_of({RECLAIM: said})
    assert (notes.consent, notes.wrong) == (said.strip().lower(), ())


@pytest.mark.parametrize("said", ["", "nevr", "no", "true", "none", "auto;never", "𝕟ever", "x" * 10_000])
def test_a_consent_that_nobody_understands_forbids(said):
    notes = notes_of({RECLAIM: said})
    assert notes.consent == "never"
    [signal] = notes.wrong
    assert (signal.active, len(signal.detail) < 300) == (False, True)


@pytest.mark.parametrize(
    ("said", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("0s", 0), ("1d", 86400), ("999999d", 2592000)]
)
def test_a_grace_period(said, seconds):
    notes = notes_of({GRACE: said})
    assert (notes.grace, notes.consent) == (seconds, None)


@pytest.mark.parametrize("said", ["", "2", "2 hours", "-2h", "2h ago", "1e9h", "2H", "h", "NaN"])
def test_a_grace_period_that_nobody_understands_forbids(said):
    notes = notes_of({GRACE: said, RECLAIM: "auto"})
    assert (notes.grace, notes.consent) == (None, "never")


def test_a_last_activity_that_is_no_time_is_unknown():
    assert notes_of({"notebooks.kubeflow.org/last-activity": "2026-11-17T01:00:00Z"}).last_activity == 1794877200.0
    [signal] = notes_of({"notebooks.kubeflow.org/last-activity": "yesterday"}).wrong
    assert (signal.name, signal.active) == ("notebook", None)


def test_a_schedule_in_words():
    [work, saturday] = schedule("mon-fri 09:00-18:00 Asia/Shanghai; sat 22:00-02:00 UTC")
    assert (work.days, work.begin, work.end, work.tz) == (frozenset(range(5)), 540, 1080, "Asia/Shanghai")
    assert (saturday.days, saturday.begin, saturday.end) == (frozenset({5}), 1320, 120)


@pytest.mark.parametrize(
    "said", ["", ";", "always", "mon 9-18 UTC", "mon 09:00-18:00", "mon 09:00-18:00 Mars/Base", "mon 09:00-18:00 UTC;x"]
)
def test_a_schedule_that_nobody_understands_is_unknown(said):
    [signal] = notes_of({"vgpuscope.io/schedule": said}).wrong
    assert (signal.name, signal.active) == ("schedule", None)


def test_queues():
    assert notes_of({"vgpuscope.io/queue": "a, b,,c "}).queues == ("a", "b", "c")


def test_our_mark_is_read_and_a_mark_that_somebody_changed_is_none():
    text = msgspec.json.encode(ChangeAnnotation(key="k", at="2026-11-17T01:00:00Z")).decode()
    assert notes_of({RESTORED: text}).restored == 1794877200.0
    for other in ("", "{}", "[1]", "[" * 5000):
        assert mark_of({"metadata": {"annotations": {RESTORED: other}}}, RESTORED) is None


@pytest.mark.parametrize(
    ("kind", "version", "item", "rests"),
    [
        ("Deployment", "apps/v1", {"spec": {"replicas": 0}}, True),
        ("Deployment", "apps/v1", {"spec": {"replicas": 1}}, False),
        ("Deployment", "apps/v1", {}, False),
        ("Job", "batch/v1", {"spec": {"suspend": True}}, True),
        ("Job", "batch/v1", {"spec": {"suspend": False}}, False),
        ("Job", "batch/v1", {"spec": {}}, False),
        ("InferenceService", "serving.kserve.io/v1beta1", {"spec": {"predictor": {"minReplicas": 0}}}, False),
        ("Notebook", "kubeflow.org/v1", {"metadata": {"annotations": {"kubeflow-resource-stopped": "earlier"}}}, True),
        ("Notebook", "kubeflow.org/v1beta1", {"metadata": {"annotations": {}}}, False),
    ],
)
def test_what_has_freed_its_gpus_already(kind, version, item, rests):
    after = stopped(ReclaimTarget(api_version=version, kind=kind, name="n", uid="u"), 0.0)
    assert at_rest(present(item, after), after) is rests


def test_a_patch_puts_each_field_where_it_belongs():
    fields = {"spec replicas": 0, "metadata annotations vgpuscope.io/reclaimed": "x", "metadata annotations a": None}
    assert patch(fields) == {
        "spec": {"replicas": 0},
        "metadata": {"annotations": {"vgpuscope.io/reclaimed": "x", "a": None}},
    }


def encoded(item) -> bytes:
    return msgspec.json.encode(item)


def pod_with(**spec):
    return decode_pod(encoded({"metadata": {"name": "p", "uid": "u"}, "spec": spec}))


@pytest.mark.parametrize(
    ("resources", "wants"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"nvidia.com/mig-1g.5gb": 1}}, True),
        ({"limits": {"huawei.com/Ascend910": "1"}}, True),
        ({"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "1Gi", "ephemeral-storage": "1"}}, False),
        ({"limits": {"node.kubernetes.io/slots": 1}}, False),
        (None, False),
    ],
)
def test_whether_a_pod_wants_devices(resources, wants):
    assert pod_with(containers=[{"resources": resources}]).wants_devices is wants
    assert pod_with(containers=[], initContainers=[{"resources": resources}]).wants_devices is wants


def test_a_claim_is_a_device():
    assert pod_with(containers=[], resourceClaims=[{"name": "gpu"}]).wants_devices


def test_a_selector_as_the_api_takes_it():
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "x", "operator": "NotIn", "values": ["c"]},
        {"key": "y", "operator": "Exists"},
        {"key": "z", "operator": "DoesNotExist"},
    ]
    spec = {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions}}
    item = encoded({"metadata": {"name": "web", "uid": "u"}, "spec": spec})
    found = decode_object(item, api_version="apps/v1", kind="Deployment")
    assert found.selector == "app=web,tier in (a,b),x notin (c),y,!z"


def test_a_list_of_pods_that_goes_on_proves_nothing():
    with pytest.raises(KubeUnreadable, match="goes on"):
        decode_pods(encoded({"items": [], "metadata": {"continue": "more"}}))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"metadata": 1}', b"\xff", b'{"items": {}}'])
def test_what_is_no_object_is_refused(data):
    for decode in (decode_pod, decode_pods, decode_autoscalers):
        with pytest.raises(KubeUnreadable):
            decode(data)


def test_who_is_told():
    assert notes_of({"vgpuscope.io/notify": " ann "}).notify == "ann"
    assert notes_of({}).notify == ""
