"""The webhook completes requests as HAMi's does, and denies what HAMi's denies."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube.admission import decode_review, encode_answer
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.logic.scheduler.admission import admit
from vgpuscope.model.admission import QuotaRoom
from vgpuscope.model.errors import BodyInvalid, RequestInvalid

OURS = "hami-scheduler"


def container(name="main", requests=None, **more):
    limits = more.pop("limits", None)
    resources = {key: value for key, value in (("limits", limits), ("requests", requests)) if value is not None}
    return {"name": name, "image": "x", **({"resources": resources} if resources else {}), **more}


def review(*containers, spec=None, labels=None, init=(), **request):
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "ml",
            "object": {
                "metadata": {"generateName": "train-", "labels": labels or {}},
                "spec": {"containers": list(containers), "initContainers": list(init), **(spec or {})},
            },
            **request,
        },
    }
    return json.dumps(body).encode()


def answered(body, rooms=(), **more):
    found = decode_review(body)
    answer = json.loads(encode_answer(found.uid, admit(found.pod, scheduler=OURS, rooms=rooms, **more)))["response"]
    assert answer["uid"] == "r1"
    return answer


def applied(body, **more):
    """The pod after the patch, which is applied by this test's own few lines."""
    answer = answered(body, **more)
    assert answer["allowed"]
    pod = json.loads(body)["request"]["object"]
    assert answer.get("patchType", "JSONPatch") == "JSONPatch"
    for change in json.loads(base64.b64decode(answer.get("patch", b"W10="))):
        assert change["op"] == "add"
        *parents, last = [part.replace("~1", "/") for part in change["path"].split("/")[1:]]
        place = pod
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            place.append(change["value"])
        else:
            place[last] = change["value"]
    return pod


def limits(pod, at=0):
    return pod["spec"]["containers"][at]["resources"]["limits"]


def test_a_gpu_without_a_limit_on_memory_gets_all_cores():
    pod = applied(review(container(limits={"nvidia.com/gpu": "1"})))
    assert limits(pod) == {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100"}
    assert pod["spec"]["schedulerName"] == OURS


@pytest.mark.parametrize("size", [{"nvidia.com/gpumem": "3k"}, {"nvidia.com/gpumem-percentage": "50"}])
def test_a_size_without_a_number_is_one_gpu_and_no_cores(size):
    assert limits(applied(review(container(limits=size)))) == {**size, "nvidia.com/gpu": "1"}


def test_the_whole_memory_as_a_percentage_gets_all_cores_too():
    found = limits(applied(review(container(limits={"nvidia.com/gpumem-percentage": "100"}))))
    assert found["nvidia.com/gpucores"] == "100"


@pytest.mark.parametrize(
    ("sizes", "exclusive"),
    [
        ({"nvidia.com/gpumem": "0"}, False),
        ({"nvidia.com/gpumem-percentage": "0"}, False),
        ({"nvidia.com/gpumem": "8k", "nvidia.com/gpumem-percentage": "100"}, True),
        ({"nvidia.com/gpumem": "8k", "nvidia.com/gpumem-percentage": "50"}, False),
    ],
)
def test_a_size_that_is_named_decides_about_all_cores_even_if_it_is_zero(sizes, exclusive):
    """Project-HAMi/HAMi v2.10.0 pkg/device/nvidia/device.go defaultExclusiveCoreIfNeeded."""
    found = limits(applied(review(container(limits={"nvidia.com/gpu": "1", **sizes}))))
    assert found.get("nvidia.com/gpucores") == ("100" if exclusive else None)


def test_given_cores_stay():
    given_ = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}
    assert limits(applied(review(container(limits=given_)))) == given_


def test_requests_and_limits_stay_equal_as_kubernetes_requires():
    ask = {"nvidia.com/gpu": "1", "cpu": "1"}
    pod = applied(review(container(limits=ask, requests=ask)))
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {**ask, "nvidia.com/gpucores": "100"}


def test_a_priority_becomes_a_variable():
    ask = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1", "nvidia.com/priority": "0"}
    variable = {"name": "CUDA_TASK_PRIORITY", "value": "0"}
    assert applied(review(container(limits=ask)))["spec"]["containers"][0]["env"] == [variable]
    other = [{"name": "A", "value": "b"}]
    assert applied(review(container(limits=ask, env=other)))["spec"]["containers"][0]["env"] == [*other, variable]
    own = [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]
    assert applied(review(container(limits=ask, env=own)))["spec"]["containers"][0]["env"] == own


def test_init_containers_and_sidecars_are_completed_one_by_one():
    body = review(
        container("web"),
        container("b", limits={"nvidia.com/gpumem": "5"}),
        init=[container("i", limits={"nvidia.com/gpu": 1})],
    )
    pod = applied(body)
    assert "resources" not in pod["spec"]["containers"][0]
    assert limits(pod, 1)["nvidia.com/gpu"] == "1"
    assert pod["spec"]["initContainers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "100"


GPU = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}


@pytest.mark.parametrize(
    "body",
    [
        review(container()),
        review(container(limits={"cpu": "1"})),
        review(container(limits={"nvidia.com/gpu": "0"})),
        review(container(limits=GPU), spec={"schedulerName": "volcano"}),
        review(container(limits={"nvidia.com/gpu": "1"}), labels={"hami.io/webhook": "ignore"}),
        review(container(limits={"nvidia.com/gpu": "-1"}), labels={"hami.io/webhook": "ignore"}),
        review(container(limits=GPU), spec={"schedulerName": OURS}),
        review(container(securityContext={"privileged": True})),
        review(container(), spec={"nodeName": "n1"}),
    ],
)
def test_pods_that_are_not_ours_or_complete_stay_as_they_are(body):
    answer = answered(body)
    assert answer == {"uid": "r1", "allowed": True}


def test_the_default_scheduler_is_overwritten_unless_the_setting_says_no():
    body = review(container(limits=GPU), spec={"schedulerName": "default-scheduler"})
    assert applied(body)["spec"]["schedulerName"] == OURS
    assert applied(body, overwrite_default=False)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (review(container(limits=GPU, securityContext={"privileged": True})), "SCHED_ADMISSION_DENIED"),
        (
            review(container(limits=GPU), init=[container("i", securityContext={"privileged": True})]),
            "SCHED_ADMISSION_DENIED",
        ),
        (review(container(limits=GPU), spec={"nodeName": "n1"}), "SCHED_ADMISSION_DENIED"),
        (review(container(limits={**GPU, "nvidia.com/gpumem": "-5"})), "SCHED_REQUEST_INVALID"),
        (review(container(limits={**GPU, "nvidia.com/gpumem": "1e18"})), "SCHED_REQUEST_INVALID"),
        (review(container(limits={"nvidia.com/gpu": "0.5"})), "SCHED_REQUEST_INVALID"),
        (review(container(limits={"nvidia.com/gpumem-percentage": "101"})), "SCHED_REQUEST_INVALID"),
        (review(container(limits={"nvidia.com/gpu": "1025"})), "SCHED_REQUEST_INVALID"),
        (review(*[container(f"c{at}", limits={"nvidia.com/gpu": "600"}) for at in range(2)]), "SCHED_REQUEST_INVALID"),
        (review(container(limits={**GPU, "nvidia.com/gpucores": "1e18"})), "SCHED_REQUEST_INVALID"),
    ],
)
def test_what_is_denied_says_so_with_a_code(body, code):
    answer = answered(body)
    assert not answer["allowed"]
    assert answer["status"]["message"].startswith(f"{code}: ")
    assert (answer["status"]["code"], answer["status"]["reason"]) == (403, code)


def test_more_than_all_cores_is_admitted_and_counts_as_all_cores():
    room = QuotaRoom(resource="nvidia.com/gpucores", limit=150, used=50)
    body = review(container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "500"}))
    assert answered(body, rooms=(room,))["allowed"]


AMOUNTS = ("-1", "0", "1", "0.5", "50", "100", "101", "600", "1024", "1025", "2147483647", "2147483648", "1e18", "x")
REQUESTED = st.dictionaries(
    st.sampled_from(("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")),
    st.sampled_from(AMOUNTS),
)


@given(st.lists(REQUESTED, min_size=1, max_size=2))
def test_the_webhook_denies_the_amounts_that_the_filter_refuses_and_no_others(amounts):
    body = review(*[container(f"c{at}", limits=limits) for at, limits in enumerate(amounts)])
    pod = json.loads(body)["request"]["object"]
    pod = applied(body) if answered(body)["allowed"] else pod
    try:
        placement_request(json.dumps(pod).encode())
    except RequestInvalid:
        assert not answered(body)["allowed"]
    else:
        assert answered(body)["allowed"]


def test_a_quota_counts_memory_of_all_gpus_and_what_is_used_already():
    room = QuotaRoom(resource="nvidia.com/gpumem", limit=5000, used=2000)
    two = review(container(limits={"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1500"}))
    assert answered(two, rooms=(room,))["allowed"]
    three = review(container(limits={"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1501"}))
    answer = answered(three, rooms=(room,))
    assert "SCHED_QUOTA_EXCEEDED: exceeding resource quota of namespace ml" in answer["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview"}', b"\xff", b"[" * 10_000],
)
def test_what_is_no_review_is_refused_by_name(body):
    with pytest.raises(BodyInvalid):
        decode_review(body)


@pytest.mark.parametrize("request_", [{"operation": "UPDATE"}, {"kind": {"kind": "Node"}}, {"subResource": "binding"}])
def test_what_is_no_new_pod_passes(request_):
    assert decode_review(review(container(limits=GPU), **request_)).pod is None


@given(
    st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "cpu"]),
        st.one_of(st.integers(-5, 10**20), st.text(max_size=6), st.none(), st.floats()),
    )
)
def test_any_amounts_get_an_answer(amounts):
    found = decode_review(
        review(container(limits=amounts)).replace(b"NaN", b"1").replace(b"-Infinity", b"1").replace(b"Infinity", b"1")
    )
    encode_answer("r1", admit(found.pod, scheduler=OURS))
