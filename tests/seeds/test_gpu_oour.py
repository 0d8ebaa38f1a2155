"""The handbook of gpu-oour as a session: its settings, commands, tables and queries, against the folder of examples.

All that is expected here is typed from that handbook. The commands run as they are written there: only the address of
Prometheus, the port, and PowerShell's way to set a variable differ. What vgpuscope does otherwise on purpose is in the
section about gpu-oour of docs/migration.md.
"""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.contract.oour_world import Analyzer
from tests.contract.promworld import prometheus, write
from tests.environment import bare
from tests.needed import needed
from tests.paths import REPOSITORY
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN
from tests.services.analyzer.controlling import Control
from tests.services.analyzer.promstub import Engine
from tests.sinks import chat
from tests.standins.llm import Llm, listening
from vgpuscope.config import load

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gpu-oour handbook")]

EXAMPLE = REPOSITORY / "examples" / "gpu-oour"
BIN = Path(sys.executable).parent
STEP, LATER = 30, 3600

# ── the handbook ─────────────────────────────────────────────────────────────────────────────────────────────────

CONFIG = """\
# config.yaml
prometheus:
  url: "http://your-prometheus:9090" # 修改为你的 Prometheus 地址
thresholds:
  low_utilization: 20 # 低利用率阈值
scheduler:
  interval: 300 # 轮询周期(秒)
  max_workers: 8 # 最大并发线程数
# 可选:启用 AI 分析
ai:
  enabled: false # 改为 true 启用
  api_url: "https://api.openai.com/v1/chat/completions"
  model: "gpt-4"
"""
SECTIONS = """\
prometheus:
  url: "http://prometheus:9090" # Prometheus 地址
  time_window_min: 10 # 时间窗口(分钟)
  step: "30s" # 查询步长
scoring:
  gpu_util_weight: 0.5 # GPU 核心使用率权重(50%)
  mem_copy_weight: 0.2 # 内存带宽使用率权重(20%)
  mem_used_weight: 0.2 # 显存使用权重(20%)
  power_weight: 0.1 # 功率权重(10%)
thresholds:
  low_utilization: 20 # 低利用率阈值(%)
  idle: 10 # 闲置阈值(%)
scheduler:
  interval: 300 # 轮询周期(秒)
  max_workers: 8 # 最大并发线程数
ai:
  enabled: false # 是否启用 AI 分析
  api_url: "" # AI API 地址
  api_key: "" # API 密钥(建议用环境变量)
  model: "gpt-4" # AI 模型
  threshold: 0.7 # 置信度阈值
control:
  enabled: false # 是否启用控制接口
  api_url: "" # 控制接口地址
  timeout: 5 # 超时时间(秒)
"""
CURLS = (
    "curl http://localhost:8080/",
    "curl http://localhost:8080/health",
    "curl http://localhost:8080/analyze",
    "curl http://localhost:8080/results",
    "curl http://localhost:8080/metrics",
    "curl http://localhost:8080/analyze?use_ai=true",
)
ENDPOINTS = (
    ("/", "GET"),
    ("/health", "GET"),
    ("/analyze", "GET"),
    ("/results", "GET"),
    ("/results/low", "GET"),
    ("/results/stats", "GET"),
    ("/metrics", "GET"),
    ("/config", "GET"),
    ("/config/update", "POST"),
    ("/docs", "GET"),
)
FEATURES = {"ai_analysis": False, "prometheus_metrics": True, "control_api": False}
HEALTH = {
    "status": "healthy",
    "prometheus_connected": True,
    "analysis_timeout": False,
    "ai_enabled": False,
    "interval": 300,
}
ROW = [
    "gpu_id",
    "pod",
    "namespace",
    "hostname",
    "model_name",
    "gpu_util",
    "mem_copy",
    "mem_used_mb",
    "power_usage",
    "sm_clock",
    "score",
    "status",
    "timestamp",
    "ai_analysis",
]
AI = ["status", "confidence", "reason", "recommendation", "ai_adjusted_score"]
STATS = ["total_gpus", "avg_score", "min_score", "max_score", "low_utilization_count", "idle_count"]
CONTROL = ["gpu_id", "pod", "namespace", "hostname", "score", "status", "timestamp"]
GPU_METRICS = [
    "gpu_utilization_score",
    "gpu_core_utilization",
    "gpu_memory_used_mb",
    "gpu_power_usage_watts",
    "gpu_memory_copy_utilization",
    "gpu_sm_clock_mhz",
]
AI_METRICS = ["gpu_ai_analysis_confidence", "gpu_ai_adjusted_score"]
SUM_METRICS = [
    "gpu_total_count",
    "gpu_low_utilization_count",
    "gpu_idle_count",
    "gpu_average_score",
    "gpu_status_count",
    "gpu_namespace_count",
    "gpu_namespace_average_score",
]
SERVICE_METRICS = [
    "gpu_analysis_total",
    "gpu_analysis_errors_total",
    "gpu_analysis_duration_seconds_count",
]
LINES = """\
gpu_utilization_score{gpu_id="GPU-xxx",pod="...",namespace="...",status="high"} 78.4
gpu_core_utilization{gpu_id="GPU-xxx",pod="...",namespace="..."} 75.2
gpu_total_count 24
gpu_low_utilization_count 3
gpu_idle_count 1
gpu_average_score 45.6
gpu_status_count{status="high"} 6
gpu_namespace_count{namespace="ml-team"} 10
gpu_namespace_average_score{namespace="ml-team"} 75.2
gpu_analysis_total 156
gpu_analysis_errors_total 2
"""
AI_LINES = """\
gpu_ai_analysis_confidence{gpu_id="GPU-xxx",ai_status="active"} 0.92
gpu_ai_adjusted_score{gpu_id="GPU-xxx",pod="...",namespace="..."} 70.5
"""
RECOMMENDED = (  # interval, max_workers and threshold: the least and the most of each row
    ("120", "4", "15"),
    ("180", "8", "20"),
    ("300", "8", "20"),
    ("600", "16", "25"),
    ("600", "16", "20"),
    ("900", "32", "30"),
)
QUERIES = (
    "avg(gpu_utilization_score)",
    "gpu_low_utilization_count",
    "sum(gpu_utilization_score) by (namespace)",
    "count(gpu_utilization_score > 70)",
    'count(gpu_ai_analysis_confidence{ai_status="idle"})',
)
SCRAPES = """\
scrape_configs:
  - job_name: 'gpu-monitor'
    static_configs:
      - targets: ['gpu-monitor:8080']
    metrics_path: '/metrics'
    scrape_interval: 30s
    scrape_timeout: 10s
"""
JQ = ".[] | select(.ai_analysis != null)"

# ── the GPUs: those of the handbook's examples, as dcgm-exporter names them ──────────────────────────────────────

V100 = "Tesla V100S-PCIE-32GB"
TOTAL = 32_510.0  # MiB
LIMIT = 250.0  # watts, of this model and of gpu-oour
BUSY = "GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838"
GPUS = {  # UUID → pod, namespace, utilisation, memory copies, MiB, watts, MHz
    BUSY: ("comfyui-xuanwu-deploy-694d64fb5-jqs8w", "comfyui", 78.5, 45.2, 18432.5, 185.3, 1530.0),
    "GPU-abc12345-0000-4000-8000-000000000001": ("idle-pod-xxx", "test", 2.1, 0.5, 128.0, 26.0, 135.0),
    "GPU-abc12345-0000-4000-8000-000000000002": ("trainer-0", "ml-team", 96.0, 70.0, 30_000.0, 240.0, 1530.0),
    "GPU-abc12345-0000-4000-8000-000000000003": ("notebook-0", "dev-team", 12.0, 8.0, 4_000.0, 60.0, 1300.0),
}


def labels_of(page: str) -> dict[str, list[set[str]]]:
    """The labels of each line of a page, by the name of its metric."""
    found: dict[str, list[set[str]]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", page, re.MULTILINE):
        found.setdefault(name, []).append(set(re.findall(r'(\w+)="', labels)))
    return found


def expected(uuid: str) -> tuple[float, str]:
    """Score and status by the handbook's formula and table."""
    _, _, util, copies, used, power, _ = GPUS[uuid]
    score = round(0.5 * util + 0.2 * copies + 0.2 * 100 * used / TOTAL + 0.1 * 100 * power / LIMIT, 1)
    return score, "idle" if score < 10 else "low" if score < 20 else "normal" if score < 70 else "high"


def fleet() -> Engine:
    engine, now = Engine(), int(time.time()) // STEP * STEP
    for number, (uuid, (pod, namespace, util, copies, used, power, clock)) in enumerate(GPUS.items()):
        labels = {"UUID": uuid, "gpu": str(number), "Hostname": "aigc-k8s-vn-master001", "modelName": V100}
        labels |= {"pod": pod, "namespace": namespace, "container": "main", "job": "dcgm"}
        for name, value in {
            "GPU_UTIL": util,
            "MEM_COPY_UTIL": copies,
            "FB_USED": used,
            "FB_FREE": TOTAL - used,
            "POWER_USAGE": power,
            "SM_CLOCK": clock,
        }.items():
            engine.add(f"DCGM_FI_DEV_{name}", [value] * ((1800 + LATER) // STEP), until=now + LATER, **labels)
    return engine


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def engine(port, tmp_path_factory) -> Iterator[str]:
    """A real Prometheus with the GPUs, which scrapes the service as the handbook says, but each second."""
    config = SCRAPES.replace("gpu-monitor:8080", f"127.0.0.1:{port}").replace("30s", "1s").replace("10s", "1s")
    with prometheus(tmp_path_factory.mktemp("prometheus"), config) as url:
        write(url, fleet().series)
        yield url


@contextlib.contextmanager
def service(folder: Path, *command: str, port: int, **variables: str) -> Iterator[Analyzer]:
    """The folder of examples with one of the commands that start it."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=bare(**variables), stdout=out, stderr=out)
    found = Analyzer(process, f"http://127.0.0.1:{port}", log)
    try:
        found.wait(found.answers)
        found.wait(lambda: found.get("/results"))
        yield found
    finally:
        found.client.close()
        process.terminate()
        process.wait(WITHIN)
    assert "Traceback" not in found.log, found.log


def folder_with(path: Path, config: str | None = None) -> Path:
    """A copy of the example, with the handbook's settings if they are given."""
    folder = path / "gpu-oour"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if config is not None:
        (folder / "config.yaml").write_text(config)
    return folder


def uvicorn(port: int) -> list[str]:
    return [str(BIN / "uvicorn"), *f"main:app --host 0.0.0.0 --port {port}".split()]


def shell(command: str, found: Analyzer) -> str:
    """The output of a command of the handbook."""
    needed("curl", package="curl")
    words = command.replace("localhost:8080", f"localhost:{found.url.rpartition(':')[2]}").split()
    done = subprocess.run([*words, "-sS", "--fail-with-body"], env=bare(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def model() -> Iterator[Llm]:
    with listening() as found:
        yield found


@pytest.fixture(scope="module")
def running(engine, port, model, tmp_path_factory) -> Iterator[Analyzer]:
    """`uvicorn main:app --host 0.0.0.0 --port 8080` with the quick start's config.yaml."""
    config = CONFIG.replace("http://your-prometheus:9090", engine).replace("https://api.openai.com", model.url)
    folder = folder_with(tmp_path_factory.mktemp("quick-start"), config)
    with service(folder, *uvicorn(port), port=port, AI_API_KEY="sk-your-api-key") as found:
        yield found


# ── quick start ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", CURLS)
def test_every_command_of_the_quick_start_works_as_it_stands(running, command):
    assert shell(command, running)


@pytest.mark.parametrize(("path", "method"), ENDPOINTS)
def test_every_endpoint_of_the_table_answers(running, path, method):
    more = "?threshold=20" if path == "/config/update" else ""
    assert shell(f"curl -X {method} http://localhost:8080{path}{more}", running)


def test_the_service_describes_itself(running, engine):
    about = json.loads(shell("curl http://localhost:8080/", running))
    assert about.keys() >= {"service", "version", "features", "config"}
    assert (about["service"], about["features"]) == ("GPU Utilization Monitor", FEATURES)
    assert about["config"].items() >= {"threshold": 20, "interval": 300, "prometheus_url": engine}.items()


def test_the_health_has_the_fields_of_the_example(running):
    health = json.loads(shell("curl http://localhost:8080/health", running))
    assert health.items() >= HEALTH.items()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", health["last_analysis"])


def test_an_analysis_is_triggered(running):
    found = json.loads(shell("curl http://localhost:8080/analyze", running))
    assert found["status"] == "triggered"
    assert found["message"].startswith("GPU analysis")


@pytest.mark.parametrize("uuid", GPUS)
def test_the_results_have_the_fields_of_the_example_and_the_scores_of_the_formula(running, uuid):
    rows = json.loads(shell("curl http://localhost:8080/results", running))
    [row] = [row for row in rows if row["gpu_id"] == uuid]
    pod, namespace, util, copies, used, power, clock = GPUS[uuid]
    assert [key for key in row if key in ROW] == ROW
    assert (row["pod"], row["namespace"], row["hostname"], row["model_name"]) == (
        pod,
        namespace,
        "aigc-k8s-vn-master001",
        V100,
    )
    assert (row["gpu_util"], row["mem_copy"], row["mem_used_mb"]) == (util, copies, used)
    assert (row["power_usage"], row["sm_clock"]) == (power, clock)
    score, status = expected(uuid)
    assert (row["score"], row["status"]) == (pytest.approx(score, abs=0.11), status)


def test_the_list_of_low_gpus(running):
    low = json.loads(shell("curl http://localhost:8080/results/low", running))
    assert low.keys() >= {"count", "threshold", "gpus"}
    wanted = {GPUS[uuid][0] for uuid in GPUS if expected(uuid)[0] < 20}
    assert {gpu["pod"] for gpu in low["gpus"]} == wanted == {"idle-pod-xxx", "notebook-0"}
    assert (low["count"], low["threshold"]) == (2, 20)
    assert all(gpu.keys() >= {"gpu_id", "pod", "namespace", "score", "status"} for gpu in low["gpus"])


def test_the_statistics(running):
    stats = json.loads(shell("curl http://localhost:8080/results/stats", running))
    scores = {uuid: expected(uuid)[0] for uuid in GPUS}
    assert [stats[key] for key in STATS] == [
        4,
        pytest.approx(sum(scores.values()) / 4, abs=0.1),
        pytest.approx(min(scores.values()), abs=0.11),
        pytest.approx(max(scores.values()), abs=0.11),
        2,
        1,
    ]
    assert {status: count for status, count in stats["by_status"].items() if count} == {
        "idle": 1,
        "low": 1,
        "normal": 1,
        "high": 1,
    }
    assert stats["by_namespace"]["dev-team"].items() >= {"count": 1, "low_util_count": 1}.items()
    assert stats["by_namespace"]["ml-team"].keys() >= {"count", "avg_score", "low_util_count"}


def test_the_settings_are_shown_and_changed_without_a_token_on_this_machine(running):
    shown = json.loads(shell("curl http://localhost:8080/config", running))
    assert shown["thresholds"].items() >= {"low_utilization": 20, "idle": 10}.items()
    changed = json.loads(shell("curl -X POST http://localhost:8080/config/update?threshold=25", running))
    assert (changed["status"], changed["updates"]) == ("updated", {"threshold": 25})
    assert json.loads(shell("curl http://localhost:8080/", running))["config"]["threshold"] == 25
    shell("curl -X POST http://localhost:8080/config/update?threshold=20", running)


@pytest.mark.parametrize(
    "more",
    [
        "-H Host:gpu.example.com",  # a page that made its own name an address of this machine
        "-H X-Forwarded-For:192.0.2.7",  # a proxy on this machine
        "-H Origin:https://evil.example.com",
    ],
)
def test_others_may_not_change_anything_without_a_token(running, more):
    words = f"curl -sS -X POST {more} {running.url}/config/update?threshold=1".split()
    done = subprocess.run(words, env=bare(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["error"]["code"] == "READ_ONLY"


# ── a language model ─────────────────────────────────────────────────────────────────────────────────────────────


def test_with_use_ai_the_model_is_asked_about_every_gpu_and_its_answers_are_shown(running, model):
    needed("jq", package="jq")

    def answered() -> list[dict]:
        done = subprocess.run(
            ["jq", "-c", JQ], input=running.client.get("/results").text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def triggered() -> bool:
        return "started" in json.loads(shell("curl http://localhost:8080/analyze?use_ai=true", running))["message"]

    running.wait(triggered)
    running.wait(lambda: len(answered()) == len(GPUS))
    assert {row["gpu_id"] for row in answered()} == set(GPUS)
    for row in answered():
        assert row["ai_analysis"].keys() >= set(AI)
        assert row["ai_analysis"]["status"] in {"active", "idle", "suspicious"}
        assert (row["ai_analysis"]["reason"], row["ai_analysis"]["recommendation"]) == ("窗口内没有计算", "可以收回")
    asked = model.asked[-1]
    assert '"window_minutes":10.0' in asked.user
    assert all(f'"{name}":' in asked.user for name in ("core_utilization", "memory_used", "power", "memory_bandwidth"))
    assert (asked.path, asked.body["model"]) == ("/v1/chat/completions", "gpt-4")
    assert asked.headers["authorization"] == "Bearer sk-your-api-key"
    shown, wanted = labels_of(running.client.get("/metrics").text), labels_of(AI_LINES)
    assert set(wanted) == set(AI_METRICS)
    assert all(labels >= wanted[name][0] for name in AI_METRICS for labels in shown[name])


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("gpt-4", "openai"),
        ("gpt-3.5-turbo", "openai"),
        ("claude-3-opus", "anthropic"),
        ("claude-3-sonnet", "anthropic"),
    ],
)
def test_without_a_url_the_model_says_whom_to_ask_and_a_missing_package_is_said_in_one_line(tmp_path, name, package):
    """`pip install .` installs no SDK: whose is missing shows which provider was chosen."""
    config = SECTIONS.replace("enabled: false # 是否启用 AI 分析", "enabled: true").replace('"gpt-4"', f'"{name}"')
    folder = folder_with(tmp_path, config)
    without = "import importlib.util as u, sys; there = u.find_spec\n"
    without += "u.find_spec = lambda name, *more: None if name in ('openai', 'anthropic') else there(name, *more)\n"
    (folder / "sitecustomize.py").write_text(without)
    words = [str(BIN / "uvicorn"), "main:app", "--port", str(free_port())]
    variables = bare(AI_API_KEY="sk-your-api-key", PYTHONPATH=str(folder))
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if "not installed" in line]
    assert f"the Python package {package} is not installed. Run pip install 'vgpuscope[ai]'" in line


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_metric_of_the_tables_is_on_the_page(running):
    page = shell("curl http://localhost:8080/metrics", running)
    names = set(re.findall(r"^(\w+)[ {]", page, re.MULTILINE))
    assert {*GPU_METRICS, *SUM_METRICS, *SERVICE_METRICS} <= names
    shown = labels_of(page)
    assert all(labels >= wanted for name, [wanted] in labels_of(LINES).items() for labels in shown[name])
    assert 'gpu_status_count{status="high"} 1' in page
    assert 'gpu_namespace_count{namespace="ml-team"} 1' in page


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_has_an_answer_in_the_prometheus_that_scrapes_it(running, engine, query):
    def answer() -> list:
        with urlopen(f"{engine}/api/v1/query?query={quote(query)}", timeout=WITHIN) as found:
            return json.load(found)["data"]["result"]

    if "ai_status" in query:
        running.wait(lambda: shell("curl http://localhost:8080/analyze?use_ai=true", running))
    rows = running.wait(answer)
    if query == "avg(gpu_utilization_score)":
        assert float(rows[0]["value"][1]) == pytest.approx(sum(expected(uuid)[0] for uuid in GPUS) / 4, abs=0.1)
    if query.startswith("sum("):
        assert {row["metric"]["namespace"] for row in rows} == {gpu[1] for gpu in GPUS.values()}


# ── settings, by file and by variable ────────────────────────────────────────────────────────────────────────────


def test_variables_take_precedence_over_config_yaml_and_python_main_py_runs_it(engine, tmp_path):
    """All keys of the reference, the variables of the handbook, and the way to start it for development."""
    folder, port = folder_with(tmp_path, SECTIONS), free_port()
    variables = {"PROM_URL": engine, "THRESHOLD": "25", "INTERVAL": "600", "LOG_LEVEL": "DEBUG", "PORT": str(port)}
    with service(folder, sys.executable, "main.py", port=port, **variables) as found:
        assert found.get("/config")["prometheus"]["step"] == "30s"
        config = found.get("/")["config"]
        assert (config["prometheus_url"], config["threshold"], config["interval"]) == (engine, 25, 600)
        assert shell("curl http://localhost:8080/analyze", found)


@pytest.mark.parametrize(("interval", "workers", "threshold"), RECOMMENDED)
def test_the_recommended_values_are_accepted(tmp_path, interval, workers, threshold):
    path = tmp_path / "config.yaml"
    path.write_text(SECTIONS.replace("max_workers: 8", f"max_workers: {workers}"))
    found = load(flags={}, environ={"INTERVAL": interval, "THRESHOLD": threshold}, file=str(path)).config
    assert (found.scheduler.interval, found.scheduler.max_workers) == (float(interval), int(workers))
    assert found.thresholds.low_utilization == float(threshold)


def test_the_config_yaml_of_the_example_has_the_keys_of_the_handbook_and_runs(engine, tmp_path):
    assert "http://your-prometheus:9090" in (EXAMPLE / "config.yaml").read_text()
    folder, port = folder_with(tmp_path), free_port()
    with service(folder, *uvicorn(port), port=port, PROM_URL=engine) as found:
        log = found.wait(lambda: found.log if "Analysis completed" in found.log else "")
        for text in (
            "=" * 60,
            "GPU Utilization Analysis Results",
            "comfyui/comfyui-xuanwu-deploy-694d64fb5-jqs8w",
            "Found 2 GPU(s) with utilization below 20%:",
            f"  - test/idle-pod-xxx ({expected('GPU-abc12345-0000-4000-8000-000000000001')[0]}%) - GPU-abc12345-",
        ):
            assert text in log, text
        for column in ("Namespace/Pod", "GPU", "Score", "Util", "Mem(MB)", "Status"):
            assert column in log


def test_the_requirements_install_this_clone(tmp_path):
    """Read from the working directory, as the quick start does; nothing is downloaded, since nothing is resolved."""
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--no-build-isolation",
        "-r",
        "requirements.txt",
    ]
    done = subprocess.run(words, cwd=EXAMPLE, env=bare(HOME=str(tmp_path)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Would install vgpuscope-", done.stdout)


# ── control service and Feishu ───────────────────────────────────────────────────────────────────────────────────


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="control service", daemon=True).start()
    return loop


@contextlib.contextmanager
def control_service() -> Iterator[Control]:
    """The stand-in on a thread of its own."""
    control = Control()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(control.serve, "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(start(), _loop()).result(WITHIN)
    control.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/optimize"
    yield control
    _loop().call_soon_threadsafe(server.close)


def test_low_gpus_are_posted_to_the_control_service_and_to_feishu(engine, tmp_path):
    """A plain dcgm-exporter, `control.enabled` and `control.api_url`: no store, no UID of pods, no other setting."""
    text = SECTIONS.replace("http://prometheus:9090", engine).replace(
        "enabled: false # 是否启用控制接口", "enabled: true"
    )
    port = free_port()
    with control_service() as control, chat.Standin(chat.feishu()) as bot:
        folder = folder_with(tmp_path, text.replace('api_url: "" # 控制接口地址', f'api_url: "{control.url}"'))
        channels = [{"name": "feishu", "url": f"{bot.url}/open-apis/bot/v2/hook/YOUR_WEBHOOK", "service": "feishu"}]
        variables = {"VGPUSCOPE_NOTIFY_CHANNELS": json.dumps(channels), "VGPUSCOPE_NOTIFY_LOW_GPUS": "change"}
        with service(folder, *uvicorn(port), port=port, **variables) as found:
            assert found.get("/")["features"]["control_api"] is True
            found.wait(lambda: len(control.received) == 2)
            found.wait(lambda: bot.taken)
            bodies = {body["pod"]: body for body in (json.loads(body) for _, body in control.received)}
            rows = {row["pod"]: row for row in found.get("/results")}
    assert bodies.keys() == {"idle-pod-xxx", "notebook-0"}
    for pod, body in bodies.items():
        assert list(body) == CONTROL
        assert all(body[key] == rows[pod][key] for key in CONTROL[:-1])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", body["timestamp"])
    [message] = bot.taken
    assert message.body["msg_type"] == "text"
    lines = [f"- **test/idle-pod-xxx**\n - 评分: {rows['idle-pod-xxx']['score']}%"]
    lines += [f"- **dev-team/notebook-0**\n - 评分: {rows['notebook-0']['score']}%"]
    assert message.body["content"]["text"].rstrip("\n") == "⚠️ **GPU 低利用率告警**\n\n" + "\n".join(lines)
