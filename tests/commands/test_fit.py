"""`vgpuscope fit` as people run it, against the extender's own API over small books."""

import io
import json
import subprocess
import sys

import httpx2
import msgspec
import pytest
import yaml
from rich.cells import cell_len
from rich.console import Console

from tests.commands.test_inventory import environment, run
from tests.commands.test_why import english
from tests.ports import free_port
from tests.services.extender.serving import Served
from tests.services.extender.test_fit_api import api, books, full, manifest
from vgpuscope.model.decision_answers import FitAnswer
from vgpuscope.model.words import Language
from vgpuscope.views.scheduler.fitting import fit_view


@pytest.fixture(scope="module")
def extender():
    served = Served(lambda: api(books()).operations())
    yield served
    served.stop()


@pytest.fixture(scope="module")
def crowded():
    served = Served(lambda: api(full()).operations())
    yield served
    served.stop()


@pytest.fixture
def file(tmp_path):
    def write(*documents):
        path = tmp_path / "pod.yaml"
        path.write_text("---\n".join(yaml.safe_dump(one) for one in documents))
        return str(path)

    return write


def deployment(replicas, **more):
    return {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": {"replicas": replicas, "template": {"spec": manifest(**more)["spec"]}},
    }


def test_a_pod_that_fits_shows_its_place_with_exit_code_0(extender, file):
    done = run("fit", "-f", file(manifest()), "--url", extender.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ml/new fits\n")
    assert "1 GPU with 8000 MiB (container main)" in done.stdout
    assert "GPU-gpu-0-1 8000 MiB" in done.stdout  # of equal GPUs, HAMi takes the last


def test_replicas_that_were_not_tried_in_time_are_told():
    seconds = iter(range(0, 1000, 4))
    served = Served(lambda: api(books(), clock=lambda: float(next(seconds))).operations())
    try:
        body = {"pod": manifest(memory=100), "replicas": 9}
        found = msgspec.convert(httpx2.post(f"{served.url}/api/v1/fit", json=body).json(), FitAnswer)
    finally:
        served.stop()
    words: dict[Language, tuple[str, str]] = {
        "en": ("fits at least 3 of 9 replicas", "the other 6 replicas were not tried"),
        "zh": ("9 个副本中至少放得下 3 个", "其余 6 个副本没有尝试"),
    }
    for language, (head, rest) in words.items():
        text = io.StringIO()
        Console(file=text, width=200).print(fit_view(found, 200, language=language))
        assert head in text.getvalue()
        assert rest in text.getvalue()
        assert "SCHED_" not in text.getvalue()


def test_replicas_of_a_deployment_are_placed_and_the_rest_is_explained_with_exit_code_1(extender, file):
    done = run("fit", "-f", file(deployment(6, memory=12_000)), "--url", extender.url)
    assert done.returncode == 1
    assert done.stdout.startswith("Deployment ml/web fits partly: 4 of 6 replicas")
    assert "what would make replica 5 fit" in done.stdout
    text = run("fit", "-f", file(deployment(6, memory=12_000)), "--url", extender.url, "--lang", "zh").stdout
    assert text.startswith("Deployment ml/web 部分可以调度：6 个副本中放得下 4 个")
    assert "怎样才能调度第 5 个副本" in text
    assert english(text) == []


def test_a_pod_that_does_not_fit_shows_what_lacks_and_what_helps(crowded, file):
    done = run("fit", "-f", file(manifest()), "--url", crowded.url)
    assert done.returncode == 1
    text = done.stdout
    assert text.startswith("ml/new does not fit\n")
    assert "SCHED_INSUFFICIENT_GPU_MEMORY on 2 nodes" in text
    assert "4000 MiB" in text
    assert "ask less    With 4000 MiB of memory, container main fits on" in text
    assert "Idle workloads are not known to the extender: set extender.analyzer_url." in text


def test_in_chinese_everything_is_told_in_chinese(crowded, file):
    text = run("fit", "-f", file(manifest()), "--url", crowded.url, "--lang", "zh").stdout
    assert text.startswith("ml/new 无法调度\n")
    assert "1 张 GPU，8000 MiB（容器 main）" in text
    assert "SCHED_INSUFFICIENT_GPU_MEMORY：2 个节点" in text
    assert "GPU 显存不足（申请 8000MB，可用 4000MB）" in text
    assert "减少申请    容器 main 的显存申请减到 4000 MiB 后，Pod 可调度到" in text
    assert "调度器扩展不知道哪些工作负载空闲：请设置 extender.analyzer_url。" in text
    assert english(text) == []


def test_replicas_of_the_command_line_take_precedence(extender, file):
    done = run("fit", "-f", file(deployment(6, memory=12_000)), "--replicas", "2", "--url", extender.url)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Deployment ml/web fits: all 2 replicas")


def test_several_documents_are_answered_one_after_the_other(extender, file):
    text = file(manifest(), {"kind": "Service", "spec": {"ports": []}}, deployment(1))
    done = run("fit", "-f", text, "--url", extender.url, "--json")
    assert [one["name"] for one in json.loads(done.stdout)] == ["new", "web"]


def test_a_manifest_is_read_from_standard_input(extender):
    command = [sys.executable, "-m", "vgpuscope", "fit", "-f", "-", "--url", extender.url]
    given = json.dumps(manifest())
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "ml/new fits")


def test_the_namespace_is_that_of_the_manifest_or_of_the_command_line(extender, file):
    pod = manifest()
    del pod["metadata"]["namespace"]
    assert run("fit", "-f", file(pod), "-n", "web", "--url", extender.url).stdout.startswith("web/new fits")
    assert run("fit", "-f", file(manifest()), "-n", "web", "--url", extender.url).stdout.startswith("ml/new fits")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("which", ["extender", "crowded"])
def test_every_line_fits_eighty_columns(which, file, request, language):
    url = request.getfixturevalue(which).url
    made = file(deployment(3, memory=12_000))
    text = run("fit", "-f", made, "--url", url, "--lang", language, COLUMNS="80").stdout
    assert max(map(cell_len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: [", "not YAML|pod.yaml:"),
        ("kind: Service\nspec: {}\n", "no pod"),
        ("just text", "not an object"),
        (yaml.safe_dump(manifest(gpus=-1)), "SCHED_REQUEST_INVALID"),
        ("kind: Pod\nmetadata: &m {name: x, labels: *m}\nspec: {containers: [{name: main}]}\n", "contains itself"),
    ],
)
def test_a_file_that_is_no_pod_is_an_error_of_usage(extender, tmp_path, content, said):
    path = tmp_path / "pod.yaml"
    path.write_text(content)
    done = run("fit", "-f", str(path), "--url", extender.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert any(one in done.stderr for one in said.split("|"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: [", "检查该文件。"),
        ("kind: Service\nspec: {}\n", "没有 Pod，也没有 Pod 模板"),
        (yaml.safe_dump(manifest(gpus=-1)), "容器 'main'：nvidia.com/gpu 的值为 -1，是负数"),
    ],
)
def test_in_chinese_a_wrong_file_is_told_in_chinese(extender, tmp_path, content, said):
    path = tmp_path / "pod.yaml"
    path.write_text(content)
    done = run("fit", "-f", str(path), "--url", extender.url, "--lang", "zh")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("words", [[], ["-f", "/nowhere/pod.yaml"], ["-f", "-", "--replicas", "0"]])
def test_wrong_words_are_an_error_of_usage(words):
    assert run("fit", *words).returncode == 2


def test_without_an_extender_it_says_so(file):
    done = run("fit", "-f", file(manifest()), "--url", f"127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "no extender answers" in done.stderr
    assert "vgpuscope nodes" in done.stderr
