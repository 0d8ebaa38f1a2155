"""`vgpuscope why` as people run it, against the extender's own API."""

import json
import re
import time

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from tests.commands.test_inventory import run
from tests.logic.scheduler.decided import assignment, decision, refusal
from tests.ports import free_port
from tests.services.extender.serving import Served
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.model.placement import ContainerAsk, NodeVerdict, PlacementRequest
from vgpuscope.services.extender.decisions_api import DecisionsApi

ASKED = PlacementRequest(
    uid="u",
    namespace="ml",
    name="train-0",
    containers=1,
    asks=(ContainerAsk(index=0, name="main", count=2, memory=8000, cores=30),),
)


@pytest.fixture(scope="module")
def extender():
    log, now = DecisionLog(), time.time()
    log.add(refusal(1, at=now - 900, nodes=9, request=ASKED))
    mixed = (
        *refusal(0, nodes=2).nodes,
        *(
            replace(one, node=f"gpu-{place + 4}")
            for place, one in enumerate(refusal(0, nodes=5, available="6000MB").nodes)
        ),
        NodeVerdict(
            node="gpu-9",
            code="SCHED_DEVICE_TYPE_MISMATCH",
            message="device type mismatch",
            message_zh="GPU 型号不符",
        ),
    )
    log.add(decision(2, at=now - 600, nodes=mixed, request=ASKED))
    log.add(
        assignment(
            3,
            pod="runs",
            at=now - 60,
            policy="binpack/spread",
            terms={"slots": 2.5, "cores": 4.0, "memory": 6.0},
            request=ASKED,
        )
    )
    log.add(decision(4, pod="runs", at=now - 59, outcome="bound", verb="bind", node="gpu-0"))
    fault = NodeVerdict(
        node="gpu-0",
        code="SCHED_NODE_LOCKED",
        message="node gpu-0 has been locked by ml/other",
        message_zh="节点 gpu-0 已被 ml/other 锁定",
    )
    log.add(assignment(5, pod="broken", at=now - 40, request=ASKED))
    log.add(decision(6, pod="broken", at=now - 39, outcome="failed", verb="bind", node="gpu-0", nodes=(fault,)))
    empty = tuple(NodeVerdict(node=f"cpu-{at}", code="SCHED_NODE_UNREGISTERED") for at in range(40))
    other = (NodeVerdict(node="gpu-0", code="SCHED_QUOTA_EXCEEDED"),)
    log.add(decision(10, pod="stuck", at=now - 50, nodes=other, request=ASKED))
    for number in range(11, 15):
        full = refusal(0, nodes=1).nodes
        log.add(decision(number, pod="stuck", at=now - 50 + number, nodes=(*empty, *full), request=ASKED))
    scores = {"gpu-0": 1.0, "gpu-2": 9.0, "gpu-1": 3.0}
    fitting = tuple(NodeVerdict(node=name, score=score) for name, score in scores.items())
    log.add(replace(assignment(20, pod="spread", at=now, request=ASKED, policy="spread/spread"), nodes=fitting))
    served = Served(DecisionsApi(log).operations)
    yield served
    served.stop()


def test_a_refused_pod_shows_what_it_asked_and_the_verdicts_by_code(extender):
    done = run("why", "ml/train-0", "--url", extender.url)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert re.match(r"ml/train-0 was refused by all nodes 1\d min ago, 2nd time in a row\n", text)
    assert "2 GPUs, each with 8000 MiB and 30 % of the cores (container main)" in text
    memory, kind = (
        text.index("SCHED_INSUFFICIENT_GPU_MEMORY  7 nodes"),
        text.index("SCHED_DEVICE_TYPE_MISMATCH  1 node"),
    )
    assert memory < kind
    said = "gpu-4, gpu-5, gpu-6 and 2 more: GPU memory insufficient (requested 8000MB, available 6000MB)"
    assert text.index(said) < text.index("gpu-0, gpu-1: GPU memory insufficient (requested 8000MB, available 4000MB)")
    assert "earlier decisions" in text


def test_a_bound_pod_shows_the_choice_and_the_terms_of_its_score(extender):
    text = run("why", "ml/runs", "--url", extender.url).stdout
    assert text.startswith("ml/runs was bound to gpu-0")
    assert "GPU-0: 8000 MiB, 30 % of the cores" in text
    assert "12.50 of 30 = slots 2.50 + cores 4.00 + memory 6.00" in text
    assert "binpack for nodes, spread for GPUs" in text


def test_json_is_the_answer_of_the_api(extender):
    found = json.loads(run("why", "ml/train-0", "--url", extender.url, "--json").stdout)
    assert [one["outcome"] for one in found] == ["refused", "refused"]
    assert len(found[0]["nodes"]) == 8


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("pod", ["ml/train-0", "ml/runs", "ml/broken"])
def test_every_line_fits_eighty_columns(extender, pod, language):
    text = run("why", pod, "--url", extender.url, "--lang", language, COLUMNS="80").stdout
    assert max(map(cell_len, text.splitlines())) <= 80


def test_in_chinese_a_refused_pod_is_told_in_chinese(extender):
    text = run("why", "ml/train-0", "--url", extender.url, "--lang", "zh").stdout
    assert re.match(r"ml/train-0 1\d 分钟前被所有节点拒绝，连续第 2 次\n", text)
    assert "申请        2 张 GPU，每张 8000 MiB、30 % 算力（容器 main）" in text
    assert "gpu-4、gpu-5、gpu-6 等 5 个：GPU 显存不足（申请 8000MB，可用 6000MB）" in text
    assert "没有一张 GPU 的空闲显存够该 Pod 使用。" in text
    assert english(text) == []


def test_in_chinese_a_bound_pod_is_told_in_chinese(extender):
    text = run("why", "ml/runs", "--url", extender.url, "--lang", "zh").stdout
    assert re.match(r"ml/runs \d+ (秒|分钟)前绑定到 gpu-0\n", text)
    assert "12.50（满载为 30） = 份数 2.50 + 算力 4.00 + 显存 6.00" in text
    assert english(text) == []


def english(text):
    """Two English words in a row, outside of commands and names."""
    return re.findall(r"(?<![`\w./-])[a-z]{3,} [a-z]{2,}", re.sub(r"`[^`]*`", "", text))


def test_the_locale_chooses_the_language_and_the_flag_takes_precedence(extender):
    assert "被所有节点拒绝" in run("why", "ml/train-0", "--url", extender.url, LANG="zh_CN.UTF-8", LC_ALL="").stdout
    text = run("why", "ml/train-0", "--url", extender.url, "--lang", "en", LANG="zh_CN.UTF-8", LC_ALL="").stdout
    assert "was refused" in text


def test_a_failed_binding_shows_its_own_reason(extender):
    text = run("why", "ml/broken", "--url", extender.url).stdout
    assert text.startswith("ml/broken could not be bound to gpu-0")
    assert "gpu-0: node gpu-0 has been locked by ml/other" in text
    assert "`kubectl annotate node gpu-0 hami.io/mutex.lock-`" in text
    text = run("why", "ml/broken", "--url", extender.url, "--lang", "zh").stdout
    assert "gpu-0：节点 gpu-0 已被 ml/other 锁定" in text


def test_equal_refusals_in_a_row_are_one_row(extender):
    text = run("why", "ml/stuck", "--url", extender.url).stdout
    _, _, earlier = text.partition("earlier decisions")
    assert [line.split()[2:4] for line in earlier.splitlines()[2:]] == [["3", "refused"], ["1", "refused"]]


def test_nodes_without_gpus_are_not_the_main_reason(extender):
    text = run("why", "ml/stuck", "--url", extender.url).stdout
    assert text.index("SCHED_INSUFFICIENT_GPU_MEMORY  1 node") < text.index("SCHED_NODE_UNREGISTERED  40 nodes")


def test_other_nodes_are_listed_by_the_policy_of_the_decision(extender):
    text = run("why", "ml/spread", "--url", extender.url).stdout
    assert "gpu-1 3.00, gpu-2 9.00" in text


def test_in_chinese_an_unknown_pod_is_an_error_in_chinese(extender):
    done = run("why", "ml/train-1", "--url", extender.url, "--lang", "zh")
    assert done.returncode == 1
    assert "对 ml/train-1 没有做出任何决定" in done.stderr
    assert "是否指 ml/train-0？" in done.stderr


def test_a_pod_without_decisions_is_unknown_and_a_similar_one_is_named(extender):
    done = run("why", "ml/train-1", "--url", extender.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "POD_UNKNOWN" in done.stderr
    assert "ml/train-0" in done.stderr
    assert "vgpuscope pending ml/train-1" in done.stderr


def test_without_an_extender_it_says_so_and_names_pending():
    done = run("why", "ml/train-0", "--url", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "no extender answers" in done.stderr
    assert "`vgpuscope pending ml/train-0`" in done.stderr


@pytest.mark.parametrize("words", [[], ["train-0"], ["ml/"], ["ml/a", "ml/b"], ["127.0.0.1:8080"]])
def test_wrong_words_are_an_error_of_usage(words):
    done = run("why", *words)
    assert (done.returncode, done.stdout) == (2, "")
