"""Signs of use in real PromQL engines: the expressions that we ship, and what an owner's queue says."""

import time

import pytest

from tests.contract.promworld import prometheus, victoria_metrics, write
from tests.ports import free_port
from vgpuscope.config import Config
from vgpuscope.config.analyzer import PrometheusConfig
from vgpuscope.config.kube import ActivityConfig
from vgpuscope.model.reclaim import ActivityQuery, Workload
from vgpuscope.services.analyzer.reclaim.activity import ReclaimActivity

pytestmark = pytest.mark.real
STEP = 30.0
COUNTERS = {
    "vllm": "vllm:request_success_total",
    "triton": "nv_inference_request_success",
    "kserve": "request_predict_seconds_count",
    "tgi": "tgi_request_count",
}
QUEUES = ActivityQuery(name="rabbitmq", query="sum by (queue) (rabbitmq_queue_messages)", by="queue")


def series(name: str, value_at, *, minutes: int, now: float, **labels: str):
    """A sample each 30 seconds until now; `value_at` gets the minutes ago."""
    times = [now - STEP * number for number in range(minutes * 2, -1, -1)]
    return {"__name__": name, **labels}, [(at, value_at((now - at) / 60)) for at in times]


def world(now: float):
    for server, counter in COUNTERS.items():
        pods = {
            "used": (lambda ago: 5.0 if ago > 40 else 6.0, 180),  # one request, 40 minutes ago
            "silent": (lambda _: 7.0, 180),
            "long-ago": (lambda ago: 1.0 if ago > 90 else 2.0, 180),
            "new": (lambda _: 1.0, 20),  # the counter began with its first request: it never rose
            "restarted": (lambda ago: 9.0 if ago > 30 else 0.0, 180),  # and has served nothing since
        }
        for pod, (value_at, minutes) in pods.items():
            yield series(counter, value_at, minutes=minutes, now=now, namespace="ml", pod=f"{server}-{pod}", reason="x")
    for queue, length in {"full": 3.0, "empty": 0.0}.items():
        yield series("rabbitmq_queue_messages", lambda _, v=length: v, minutes=10, now=now, queue=queue)


@pytest.fixture(scope="module", params=["prometheus", "victoria_metrics"])
def engine(request, tmp_path_factory):
    start = {"prometheus": prometheus, "victoria_metrics": victoria_metrics}[request.param]
    with start(tmp_path_factory.mktemp(request.param)) as url:
        write(url, list(world(time.time())))
        yield url


def asking(url: str, *more: ActivityQuery, queues: frozenset[str] = frozenset(), only: bool = False) -> ReclaimActivity:
    activity = ActivityConfig(queries=more) if only else ActivityConfig(queries=(*ActivityConfig().queries, *more))
    config = Config(prometheus=PrometheusConfig(url=url), activity=activity)
    return ReclaimActivity(lambda: config, engine=lambda: True, queues=lambda _: queues)


def workload(pod: str) -> Workload:
    return Workload(uid=f"uid-{pod}", namespace="ml", pod=pod)


async def seen(activity: ReclaimActivity, pod: str) -> dict[str, bool | None]:
    await activity.learn([workload(pod)], fresh=False, seen=())
    return {one.name: one.active for one in activity.known(workload(pod)).signals}


@pytest.mark.parametrize("server", COUNTERS)
async def test_requests_of_the_last_hour_are_a_sign_of_use(engine, server):
    activity = asking(engine)
    expected = {"used": True, "new": True, "silent": False, "long-ago": False, "restarted": False}
    for pod, active in expected.items():
        assert await seen(activity, f"{server}-{pod}") == {server: active}, pod


async def test_a_pod_without_such_a_counter_has_no_sign(engine):
    assert await seen(asking(engine), "training") == {}


async def test_a_queue_that_is_not_empty_is_a_sign_and_one_that_nobody_knows_is_unknown(engine):
    for queue, name, active in (("full", "rabbitmq", True), ("empty", "rabbitmq", False), ("lost", "queue lost", None)):
        activity = asking(engine, QUEUES, queues=frozenset({queue}))
        assert await seen(activity, "worker") == {name: active}


async def test_an_expression_that_is_wrong_is_unknown_for_all_and_the_others_are_read(engine):
    activity = asking(engine, ActivityQuery(name="wrong", query="sum by ("))
    assert await seen(activity, "vllm-used") == {"vllm": True, "wrong": None}
    assert await seen(activity, "training") == {"wrong": None}


async def test_a_value_that_is_no_number_is_unknown(engine):
    nan = ActivityQuery(
        name="nan", query='label_replace(label_replace(vector(NaN), "pod", "p", "", ""), "namespace", "ml", "", "")'
    )
    found = await seen(asking(engine, nan, only=True), "p")
    assert found in ({"nan": None}, {}), "VictoriaMetrics drops such a value"


async def test_an_engine_that_does_not_answer_is_unknown():
    activity = asking(f"http://127.0.0.1:{free_port()}")
    assert set((await seen(activity, "p")).values()) == {None}


async def test_before_the_first_question_nothing_is_known(engine):
    assert [one.active for one in asking(engine).known(workload("p")).signals] == [None]
