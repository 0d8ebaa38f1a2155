"""`vgpuscope pending` as people run it, against an exporter that keeps a real book."""

import json
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.commands.test_inventory import Exporter, on_a_terminal, rows, run
from tests.commands.test_why import english
from tests.logic.cluster.builders import asks
from tests.logic.cluster.waiting import WaitingPods
from vgpuscope.commands.actions.pending import chosen
from vgpuscope.formats.scheduler_messages.reasons import condition_reasons, reasons
from vgpuscope.model.allocation import PodState, PodTimes, UnschedulableCondition
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.pending import PendingList, PodEvent
from vgpuscope.model.service import CLUSTER_PORT, default_url
from vgpuscope.views.cluster.pending.api import pending_list

NOW = 1_800_000_000.0
GPUS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000}
REFUSED = (
    "0/5 nodes are available: 2 2/2 CardInsufficientMemory, 3 node(s) had untolerated taint(s). "
    "preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
)
FILTERED = "2 nodes CardInsufficientMemory(gpu-1,gpu-2)"


def pod(name, *, waited=720.0, said="", **more):
    refusal = said and UnschedulableCondition(
        reason="Unschedulable", at=NOW - waited, said=condition_reasons("Unschedulable", said), message=said
    )
    return PodState(
        uid=f"uid-{name}",
        namespace="ml",
        name=name,
        asks=asks(GPUS),
        scheduler="hami-scheduler",
        owner="Job/train",
        times=PodTimes(created=NOW - waited, scheduled=NOW - 60 if more.get("node") else None),
        refusal=refusal or None,
        **more,
    )


def event(of, text=FILTERED, *, reason="FilteringFailed", count=7, last=NOW - 20):
    return PodEvent(
        uid=f"{of}-{text}",
        pod_uid=f"uid-{of}",
        namespace="ml",
        pod=of,
        component="hami-scheduler",
        reason=reason,
        said=reasons("hami-scheduler", reason, text),
        count=count,
        first=NOW - 600,
        last=last,
    )


class PendingExporter(Exporter):
    """Serves a book as the cluster exporter does."""

    def __init__(self):
        super().__init__()
        self.book, self.asked, self.advice, self.advice_zh = WaitingPods(), [], (), ()
        self.book.set_pod(pod("train-0", said=REFUSED), NOW)
        self.book.set_event(event("train-0"))
        self.book.set_event(event("train-0", "1 nodes CardTypeMismatch(gpu-3)", count=1, last=NOW - 500))
        self.book.set_pod(pod("new", waited=2.0), NOW)
        self.book.set_pod(pod("lucky", said=REFUSED), NOW)
        self.book.set_pod(pod("lucky", node="gpu-1", phase="Running"), NOW)

    def answer(self, path):
        parts = urlsplit(path)
        if parts.path != "/api/v1/pending" or self.status != 200:
            return super().answer(path)
        asked = dict(parse_qsl(parts.query))
        self.asked.append(asked)
        found = self.book.pods(namespace=asked.get("namespace"), name=asked.get("pod"), all=asked.get("all") == "true")
        return 200, msgspec.json.encode(
            msgspec.structs.replace(pending_list(found, NOW), advice=self.advice, advice_zh=self.advice_zh)
        )


@pytest.fixture
def exporter():
    served = PendingExporter()
    yield served
    served.stop()


def test_a_row_says_who_waits_how_long_for_what_and_why(exporter):
    titles, first, second = rows(run("pending", exporter.url))
    assert titles == ["POD", "AGE", "CODE", "SCHEDULER", "ASKS FOR", "ATTEMPTS", "REASON", "EVENT"]
    assert first == [
        "ml/train-0",
        "12 min",
        "SCHED_INSUFFICIENT_GPU_MEMORY",
        "hami-scheduler",
        "1 gpu, 8000 gpumem",
        "7",
        "No GPU has as much free memory as the pod asks for. Nodes: 2 (gpu-1, gpu-2). 1 more reason.",
        "2 nodes: CardInsufficientMemory (gpu-1, gpu-2)",
    ]
    meaning = "No scheduler has reported anything about the pod yet."
    assert second == [
        "ml/new",
        "2.0 s",
        "SCHED_NOT_TRIED",
        "hami-scheduler",
        "1 gpu, 8000 gpumem",
        "0",
        meaning,
        "–",
    ]


def test_all_shows_also_what_became_of_those_that_waited(exporter):
    titles, *found = rows(run("pending", "--all", exporter.url))
    assert titles[:3] == ["POD", "OUTCOME", "AGE"]
    assert [row[:3] for row in found] == [
        ["ml/train-0", "waiting", "12 min"],
        ["ml/new", "waiting", "2.0 s"],
        ["ml/lucky", "scheduled", "11 min"],
    ]


def test_one_pod_is_told_with_its_reasons_who_said_them_and_what_to_do(exporter):
    done = run("pending", "ml/train-0", exporter.url)
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "ml/train-0 has waited for 12 min",
        "Job/train",
        "1 nvidia.com/gpu, 8000 nvidia.com/gpumem",
        "7 failed",
        "No GPU has as much free memory as the pod asks for.",
        "`vgpuscope nodes` shows the largest request that still fits",
        "hami-scheduler, 7 times, first 12 min ago, last 20 s ago",
        "2: gpu-1, gpu-2",
        "SCHED_TAINT",
        "reported earlier",
        "SCHED_DEVICE_TYPE_MISMATCH  1 node: CardTypeMismatch (gpu-3), by hami-scheduler, 8 min ago",
    ):
        assert words in done.stdout
    assert exporter.asked == [{"namespace": "ml", "pod": "train-0", "all": "true"}]


def test_in_chinese_everything_is_chinese_but_names_and_what_schedulers_say(exporter):
    exporter.advice, exporter.advice_zh = ("The largest free piece is 6.0 GiB.",), ("最大的空闲块为 6.0 GiB。",)
    shown = run("pending", "ml/train-0", exporter.url, "--lang", "zh").stdout
    for words in (
        "ml/train-0 已等待 12 分钟",
        "失败 7 次",
        "没有一张 GPU 的空闲显存够该 Pod 使用。",
        "hami-scheduler，7 次，最早 12 分钟前，最近 20 秒前",
        "2 个：gpu-1、gpu-2",
        "容量\n  最大的空闲块为 6.0 GiB。\n",
        "SCHED_DEVICE_TYPE_MISMATCH  1 个节点：CardTypeMismatch（gpu-3），来源：hami-scheduler，8 分钟前",
    ):
        assert words in shown
    listed = run("pending", "--all", exporter.url, LANG="zh_CN.UTF-8", LC_ALL="").stdout
    assert "已调度" in listed
    assert "没有一张 GPU 的空闲显存够该 Pod 使用。节点：2 个（gpu-1、gpu-2）。另有 1 个原因。" in listed
    assert "2 个节点：CardInsufficientMemory（gpu-1、gpu-2）" in listed
    exporter.book = WaitingPods()
    nobody = run("pending", exporter.url, "--lang", "zh").stdout
    assert english(shown) == ["had untolerated"]  # of kube-scheduler
    assert english(listed + nobody) == []


def test_a_pod_that_nobody_looked_at_is_told_so(exporter):
    out = run("pending", "ml/new", exporter.url).stdout
    assert "No scheduler has reported anything about the pod yet." in out
    assert "none reported" in out


def test_a_pod_that_no_longer_waits_is_shown_with_what_became_of_it(exporter):
    done = run("pending", exporter.url, "ml/lucky")
    assert "ml/lucky was scheduled on gpu-1 60 s ago, after 11 min" in done.stdout


def test_what_there_is_room_for_is_shown(exporter):
    exporter.advice = ("The largest free piece is 6.0 GiB.",)
    out = run("pending", "ml/train-0", exporter.url).stdout
    assert "capacity\n  The largest free piece is 6.0 GiB.\n" in out


def test_a_pod_that_is_not_there_is_an_error(exporter):
    done = run("pending", "ml/nobody", exporter.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "vgpuscope: POD_UNKNOWN: pod ml/nobody does not wait for GPUs" in done.stderr
    assert "hint: `vgpuscope pending --all`" in done.stderr


def test_a_pod_that_is_not_there_is_met_with_the_nearest_that_is(exporter):
    assert "hint: Did you mean ml/train-0? " in run("pending", "ml/trian-0", exporter.url).stderr
    chinese = run("pending", "ml/trian-0", exporter.url, "--lang", "zh").stderr
    assert "Pod ml/trian-0 没有在等待 GPU，最近一天内也没有" in chinese
    assert "是否指 ml/train-0？" in chinese


def test_others_by_the_same_name_are_mentioned(exporter):
    exporter.book.set_pod(msgspec.structs.replace(pod("lucky"), uid="another"), NOW)
    out = run("pending", "ml/lucky", exporter.url).stdout
    assert out.startswith("ml/lucky has waited for 12 min")
    assert out.endswith("\n1 pod of the same name waited earlier; --json prints all.\n")


def test_json_has_everything_the_exporter_says(exporter):
    done = run("pending", exporter.url, "--json", "--all")
    found = msgspec.json.decode(done.stdout, type=PendingList)
    assert list(found.pending) == exporter.book.pods(all=True)
    assert found.now == NOW
    assert set(found.codes) == {
        "SCHED_INSUFFICIENT_GPU_MEMORY",
        "SCHED_TAINT",
        "SCHED_DEVICE_TYPE_MISMATCH",
        "SCHED_NOT_TRIED",
    }
    assert json.loads(done.stdout)["codes"]["SCHED_TAINT"]["stage"] == "filter"


def test_nobody_waits_is_no_error(exporter):
    exporter.book = WaitingPods()
    assert rows(run("pending", exporter.url)) == [["No pod waits for GPUs."]]
    assert json.loads(run("pending", exporter.url, "--json").stdout)["pending"] == []


def test_the_first_list_is_waited_for(exporter):
    exporter.waits = [["pods"], ["events"]]
    done = run("pending", exporter.url)
    assert done.stderr.splitlines() == [
        "waiting for the exporter's first list: pods",
        "waiting for the exporter's first list: events",
    ]
    assert "ml/train-0" in done.stdout


def test_an_exporter_that_has_no_such_path_is_named(exporter):
    exporter.status = 404
    done = run("pending", exporter.url)
    assert done.returncode == 1
    assert "it does not serve /api/v1/pending" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], ("", default_url(CLUSTER_PORT))),
        (["ml/a"], ("ml/a", default_url(CLUSTER_PORT))),
        (["localhost"], ("", "localhost")),
        (["exporter.example.org"], ("", "exporter.example.org")),
        (["h:1", "ml/a"], ("ml/a", "h:1")),
        (["ml/a", "https://h/prefix"], ("ml/a", "https://h/prefix")),
    ],
)
def test_a_pod_and_an_address_are_told_apart_by_their_look(words, meant):
    assert chosen(words) == meant


@pytest.mark.parametrize("words", [["train-0"], ["ml/"], ["/a"], ["a/b/c"], ["ml/a", "ml/b"], ["h:1", "h:2"]])
def test_what_is_neither_is_refused(words):
    with pytest.raises(ConfigInvalid):
        chosen(words)


def test_what_a_scheduler_says_to_the_terminal_is_not_passed_on(exporter):
    exporter.book.set_event(event("new", "evil\x1b[2J [red]words"))
    for words in ((), ("ml/new",)):
        out = run("pending", *words, exporter.url).stdout
        assert "\x1b" not in out
        assert "[red]words" in out


@pytest.mark.parametrize("words", [(), ("--all",), ("ml/train-0",)])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_colours_and_its_own_width(exporter, words, width):
    painted = on_a_terminal("pending", *words, exporter.url, COLUMNS=str(width))
    lines = [Text.from_ansi(line).plain for line in painted.splitlines()]
    assert "\x1b[1m" in painted
    assert max(map(cell_len, lines)) <= width
    shown = " ".join(" ".join(line.split()) for line in lines)
    assert "No GPU has as" in shown  # the reason stays, whatever is hidden
