"""`vgpuscope nodes` and `vgpuscope gpus` as people run them, against an exporter that says what a test wants."""

import json
import os
import pty
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.text import Text

from tests.logic.cluster.builders import asks
from vgpuscope.logic.cluster.node import settle_node
from vgpuscope.model.allocation import Assignment, NodeState, OfferedResource, PodState, RegisteredDevice
from vgpuscope.model.cluster import FindingCount, NodeLedger

GIB = 1 << 30
TYPE = "NVIDIA A100-SXM4-80GB"


def device(number, **more):
    return RegisteredDevice(
        id=f"GPU-{number}", vendor="NVIDIA", index=number, slots=10, memory=80 * GIB, cores=100, type=TYPE, **more
    )


def pod(name, *held, namespace="ml", container="train"):
    """A pod that holds (GPU, GiB, percent of cores)."""
    assignments = tuple(
        Assignment(
            container_index=0,
            container=container,
            init=False,
            vendor="NVIDIA",
            device=f"GPU-{gpu}",
            memory=memory * GIB,
            cores=cores,
        )
        for gpu, memory, cores in held
    )
    return PodState(
        uid=name, namespace=namespace, name=name, phase="Running", node="n", assigned_node="n", assignments=assignments
    )


def ledger(name="gpu-1", devices=(), pods=(), **state):
    node = NodeState(name="n", devices=tuple(devices), **state)
    return msgspec.structs.replace(settle_node("n", node=node, pods=pods), name=name)


BUSY = ledger(
    devices=[device(0, healthy=True), device(1, healthy=True), device(2)],
    pods=[pod("bert", (0, 60, 50)), pod("llama", (0, 36, 70), (7, 8, 0), namespace="web", container="")],
)


class Exporter:
    """Serves ledgers as the cluster exporter does; not ready for the first so many looks."""

    def __init__(self):
        self.nodes, self.status = [BUSY], 200
        self.waits: list = []
        self.tokens: list = []
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                exporter.tokens.append(self.headers.get("Authorization"))
                status, body = exporter.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def answer(self, path):
        if path == "/readyz":
            missing = self.waits.pop(0) if self.waits else []
            return 503 if missing else 200, json.dumps({"ready": not missing, "missing": missing}).encode()
        if path == "/api/v1/nodes" and not self.waits:
            return self.status, msgspec.json.encode(self.nodes)
        return 404, b""

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def exporter():
    served = Exporter()
    yield served
    served.stop()


def on_a_terminal(*arguments, **env):
    """What a command that succeeds writes to a terminal."""
    master, slave = pty.openpty()
    try:
        command = [sys.executable, "-m", "vgpuscope", *arguments]
        environ = environment(**env)
        done = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, env=environ, timeout=60, check=False)
        painted = os.read(master, 65536).decode()
    finally:
        os.close(master)
        os.close(slave)
    assert (done.returncode, done.stderr) == (0, b"")
    return painted


def environment(**more):
    plain = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "VGPUSCOPE_TOKEN"}}
    return {**plain, "TERM": "xterm-256color", "PYTHONUTF8": "1", **more}


def run(*arguments, **env):
    command = [sys.executable, "-m", "vgpuscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**env), timeout=60, check=False)


def rows(done):
    """Cells of each line of a plain table, by the places of the titles' words; two blanks part columns."""
    assert (done.returncode, done.stderr) == (0, "")
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in done.stdout.splitlines()]


def test_a_node_shows_what_is_given_away_what_fits_and_what_does_not_add_up(exporter):
    titles, node = rows(run("nodes", exporter.url))
    assert titles == ["NODE", "STATE", "GPUS", "MEMORY", "FREE SLOTS", "LARGEST FIT", "FRAGMENTED", "FINDINGS"]
    assert node == [
        "gpu-1",
        "ready",
        "2 of 3",
        "96.0/240.0Gi 40%",
        "10",
        "80.0Gi, 100%, 1 whole",
        "0%",
        "over-allocated (cores), over-allocated (memory), held GPU is gone",
    ]


def test_a_gpu_shows_who_holds_it_and_above_100_percent_stays_above(exporter):
    titles, *gpus = rows(run("gpus", exporter.url))
    assert titles == ["NODE", "#", "UUID", "TYPE", "MODE", "HEALTH", "SLOTS", "MEMORY", "CORES", "HOLDERS"]
    what = [TYPE, "hami-core"]
    assert gpus == [
        ["gpu-1", "0", "GPU-0", *what, "ok", "2/10", "96.0/80.0Gi 120%", "120/100%", "ml/bert/train, web/llama/[0]"],
        ["gpu-1", "1", "GPU-1", *what, "ok", "0/10", "0/80.0Gi 0%", "0/100%"],
        ["gpu-1", "2", "GPU-2", *what, "unhealthy", "0/10", "0/80.0Gi 0%", "0/100%"],
        ["gpu-1", "–", "GPU-7", "–", "–", "vanished", "–", "–", "–", "web/llama/[0]"],
    ]


def test_nodes_stand_by_name_with_the_state_they_are_in(exporter):
    exporter.nodes = [
        NodeLedger(name="d", known=False),
        ledger("c", ready=False),
        ledger("b", schedulable=False, devices=[device(0, healthy=True)]),
        ledger("a"),
    ]
    _, *found = rows(run("nodes", exporter.url))
    assert [row[:3] for row in found] == [
        ["a", "ready", "–"],
        ["b", "ready, cordoned", "0 of 1"],
        ["c", "not ready", "–"],
        ["d", "unknown", "–"],
    ]
    assert found[1][5] == "nothing"


def test_json_has_everything_the_exporter_says(exporter):
    assert msgspec.json.decode(run("nodes", exporter.url, "--json").stdout, type=list[NodeLedger]) == [BUSY]
    gpus = json.loads(run("gpus", exporter.url, "--json").stdout)
    assert [(one["node"], one["uuid"], len(one["holders"])) for one in gpus] == [
        ("gpu-1", "GPU-0", 2),
        ("gpu-1", "GPU-1", 0),
        ("gpu-1", "GPU-2", 0),
        ("gpu-1", "GPU-7", 1),
    ]
    assert gpus[0]["ledger"]["memory_allocated"] == 96 * GIB
    assert gpus[3]["ledger"] is None


def test_the_first_list_is_waited_for_and_said_so_once_for_each_change(exporter):
    exporter.waits = [["nodes", "pods"], ["nodes", "pods"], ["pods"]]
    done = run("nodes", exporter.url)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "waiting for the exporter's first list: nodes, pods",
        "waiting for the exporter's first list: pods",
    ]
    assert "gpu-1" in done.stdout


def test_an_empty_cluster_is_no_error_and_says_what_was_looked_at(exporter):
    exporter.nodes = []
    assert run("nodes", exporter.url).stdout == "No nodes: the cluster exporter has found none.\n"
    assert json.loads(run("nodes", exporter.url, "--json").stdout) == []
    exporter.nodes = [ledger("a"), ledger("b")]
    assert run("gpus", exporter.url).stdout == (
        "No GPUs on 2 nodes: none registers a GPU with HAMi, offers nvidia.com/gpu or nvidia.com/mig-*, or has "
        "a ResourceSlice with GPUs.\n"
    )
    assert json.loads(run("gpus", exporter.url, "--json").stdout) == []


# --- nodes without HAMi -----------------------------------------------------------------------------------------------


def offer(resource="nvidia.com/gpu", mode="whole", capacity=4, allocatable=None, **more):
    allocatable = capacity if allocatable is None else allocatable
    return OfferedResource(resource=resource, mode=mode, capacity=capacity, allocatable=allocatable, **more)


def user(name, count=1, resource="nvidia.com/gpu"):
    return PodState(uid=name, namespace="ml", name=name, phase="Running", node="n", asks=asks({resource: count}))


H100 = offer(type="NVIDIA-H100-80GB-HBM3", memory=80 * GIB)
SLICED = offer(mode="time-slicing", capacity=16, replicas=4, type="Tesla-T4", memory=15 * GIB)
MIG_LARGE = offer("nvidia.com/mig-3g.40gb", "mig", 2, 2, type="NVIDIA-A100-SXM4-80GB", profile="3g.40gb")
MIG = offer("nvidia.com/mig-1g.10gb", "mig", 7, 6, type="NVIDIA-A100-SXM4-80GB", profile="1g.10gb")
PLAIN = [
    ledger("whole", offers=(H100,), pods=[user("a", 2), user("b")]),
    ledger("sliced", offers=(SLICED,), pods=[user("c")]),
    ledger("mig", offers=(MIG, offer(capacity=1), MIG_LARGE), pods=[user("d", 5, "nvidia.com/mig-1g.10gb")]),
    ledger("unlabelled", offers=(offer("nvidia.com/gpu.shared", "shared", 8, replicas=None),)),
    ledger("drained", offers=(offer(),), schedulable=False),
]


def test_a_node_without_hami_shows_its_gpus_by_number(exporter):
    exporter.nodes = PLAIN
    _, *found = rows(run("nodes", exporter.url))
    assert {row[0]: row[1:] for row in found} == {
        "whole": ["ready", "4", "240.0/320.0Gi 75%", "1", "1 whole", "–"],
        "sliced": ["ready", "4", "–/60.0Gi", "15", "15 of 16 shares", "–"],
        "mig": ["ready", "≥3 (8 of 9 instances)", "–", "4", "1× 1g.10gb, 1 whole, 2× 3g.40gb", "–"],
        "unlabelled": ["ready", "8 shares", "–", "8", "8 of 8 shares", "–"],
        "drained": ["ready, cordoned", "0 of 4", "–", "0", "nothing", "–"],
    }


def test_a_node_with_mig_instances_shows_its_physical_gpus_and_the_instances(exporter):
    """As in the console: a GPU that MIG divides counts once. The kubelet counts instances, the label counts GPUs."""
    one_model = [offer(capacity=4, type="H100"), offer("nvidia.com/mig-1g.10gb", "mig", 1, type="H100", profile="1g")]
    exporter.nodes = [
        ledger("labelled", offers=one_model, labelled_gpus=5),
        ledger("all divided", offers=one_model[1:], labelled_gpus=1),
        ledger("unlabelled", offers=one_model),
        ledger("two models", offers=[one_model[0], structs.replace(one_model[1], type="A30")], labelled_gpus=5),
        ledger("impossible", offers=one_model, labelled_gpus=4),
        ledger("drained", offers=one_model, labelled_gpus=5, schedulable=False),
    ]
    found = {row[0]: row[2] for row in rows(run("nodes", exporter.url))[1:]}
    assert found == {
        "labelled": "5 (1 instance)",
        "all divided": "1 (1 instance)",
        "unlabelled": "≥5 (1 instance)",
        "two models": "≥5 (1 instance)",
        "impossible": "≥5 (1 instance)",
        "drained": "0 of 5 (0 of 1 instances)",
    }
    chinese = run("nodes", exporter.url, "--lang", "zh").stdout
    assert "5（1 个实例）" in chinese


def test_gpus_that_are_only_counted_are_one_row_with_all_that_ask_for_them(exporter):
    exporter.nodes = PLAIN
    _, *found, _, note = rows(run("gpus", exporter.url))
    assert found == [
        ["drained", "×4", "–", "–", "whole", "the node is cordoned", "0/4", "–", "–"],
        ["mig", "×7", "–", "NVIDIA-A100-SXM4-80GB", "mig 1g.10gb", "1 unhealthy", "5/7", "1g.10gb", "–", "ml/d ×5"],
        ["mig", "×1", "–", "–", "whole", "ok", "0/1", "–", "–"],
        ["mig", "×2", "–", "NVIDIA-A100-SXM4-80GB", "mig 3g.40gb", "ok", "0/2", "3g.40gb", "–"],
        ["sliced", "×4", "–", "Tesla-T4", "time-slicing ×4", "ok", "1/16", "–/60.0Gi", "–", "ml/c"],
        ["unlabelled", "–", "–", "–", "shared", "ok", "0/8", "–", "–"],
        ["whole", "×4", "–", H100.type, "whole", "ok", "3/4", "240.0/320.0Gi 75%", "–", "ml/a ×2, ml/b"],
    ]
    assert note == [
        "drained, mig, sliced and 2 more: GPUs are counted from capacity and requests. Only the node knows which GPU a "
        "pod has."
    ]
    gpus = json.loads(run("gpus", exporter.url, "--json").stdout)
    assert [one["counted"]["offer"]["capacity"] for one in gpus] == [4, 7, 1, 2, 16, 8, 4]


# --- figures that surprise --------------------------------------------------------------------------------------------

SCALED = ledger(
    "scaled",
    devices=[structs.replace(device(n, healthy=True), memory=160 * GIB, physical=80 * GIB) for n in range(2)],
    pods=[pod("x", (0, 48, 10)), pod("y", (1, 100, 10))],
)


def test_more_memory_that_fits_than_the_gpu_has_is_explained_below_the_table(exporter):
    exporter.nodes = [SCALED]
    said = (
        "scaled: memory scaling ×2: up to 160.0Gi can be allocated on a GPU that has 80.0Gi, so a request can be "
        "larger than the GPU."
    )
    _, node, _, _, note = rows(run("nodes", exporter.url))
    assert "112.0Gi, 90%" in node
    assert note == [said]
    assert rows(run("gpus", exporter.url))[-1] == [said]


def test_fragmented_by_100_percent_is_explained_below_the_table(exporter):
    exporter.nodes = [structs.replace(SCALED, name=name) for name in "abcde"]
    *_, note, _ = rows(run("nodes", exporter.url))
    assert note == [
        "a, b, c and 2 more: 100% fragmented. Every GPU with free memory already has a tenant, so no whole GPU is free."
    ]
    exporter.nodes = [BUSY]
    assert "fragmented." not in run("nodes", exporter.url).stdout


def test_nobody_there_says_how_to_start_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("gpus", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"vgpuscope: SOURCE_DOWN: no cluster exporter answers at http://{url}: " in done.stderr
    assert "hint: Start one with `vgpuscope cluster`" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": 401}, "rejects the request (401)"),
        ({"status": 404}, "is not a cluster exporter of vgpuscope"),
        ({"nodes": {"node": 1}}, "not with the ledger of nodes"),
    ],
)
def test_each_wrong_answer_is_named(exporter, change, said):
    vars(exporter).update(change)
    done = run("nodes", exporter.url)
    assert done.returncode == 1
    assert said in done.stderr


def test_the_token_comes_from_the_environment(exporter):
    assert run("nodes", exporter.url, VGPUSCOPE_TOKEN="s3cret").returncode == 0
    assert set(exporter.tokens) == {"Bearer s3cret"}


def test_what_a_name_says_to_the_terminal_is_not_passed_on(exporter):
    exporter.nodes = [NodeLedger(name="evil\x1b[2J[red]")]
    assert "\x1b" not in run("nodes", exporter.url).stdout
    assert "[red]" in run("nodes", exporter.url).stdout


def test_a_terminal_gets_colours_and_its_own_width(exporter):
    painted = on_a_terminal("gpus", exporter.url, COLUMNS="80")
    assert "\x1b[31m" in painted
    assert "120%" in painted
    assert "ml/bert/train" in painted
    assert "GPU-0" not in painted  # the UUIDs are hidden, and a line says so
    assert "5 columns hidden (UUID, TYPE, MODE, SLOTS, CORES); --wide shows all" in painted
    assert max(cell_len(Text.from_ansi(line).plain) for line in painted.splitlines()) <= 80


def at_80_columns(*arguments):
    done = run(*arguments, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    return lines


def test_at_80_columns_a_node_keeps_its_largest_fit_and_each_finding_has_a_line(exporter):
    lines = at_80_columns("nodes", exporter.url)
    assert lines[0].split() == ["NODE", "STATE", "GPUS", "MEMORY", "LARGEST", "FIT", "FINDINGS"]
    assert lines[1].split()[:5] == ["gpu-1", "ready", "2", "of", "3"]
    assert "80.0Gi, 100%, 1 whole" in lines[1]
    at = lines[0].index("FINDINGS")
    assert [line[at:].rstrip() for line in lines[1:6]] == [
        "over-allocated",
        "  (cores)",
        "over-allocated",
        "  (memory)",
        "held GPU is gone",
    ]
    assert lines[6:] == ["2 columns hidden (FREE SLOTS, FRAGMENTED); --wide shows all"]


def test_wide_shows_all_columns_on_a_narrow_terminal(exporter):
    done = run("nodes", exporter.url, "--wide", COLUMNS="80")
    assert rows(done)[0] == rows(run("nodes", exporter.url))[0]
    assert "--wide" not in done.stdout


def test_only_gpus_that_a_namespace_holds_are_listed(exporter):
    _, *gpus = rows(run("gpus", exporter.url, "--namespace", "web"))
    assert [row[2] for row in gpus] == ["GPU-0", "GPU-7"]
    assert run("gpus", exporter.url, "-n", "nobody").stdout == "No pod of namespace nobody holds a GPU.\n"


def test_csv_has_a_line_for_each_row_of_the_table(exporter):
    nodes = run("nodes", exporter.url, "--csv").stdout.splitlines()
    assert nodes[0].startswith("name,known,real,ready,schedulable,")
    assert nodes[1].startswith("gpu-1,true,true,true,true,")
    gpus = run("gpus", exporter.url, "--csv").stdout.splitlines()
    assert [line.split(",")[:2] for line in gpus[1:]] == [["gpu-1", f"GPU-{n}"] for n in (0, 1, 2, 7)]


def test_chinese_is_chosen_by_flag_or_locale(exporter):
    by_flag = run("nodes", exporter.url, "--lang", "zh").stdout
    assert by_flag == run("nodes", exporter.url, LC_ALL="zh_CN.UTF-8").stdout
    assert all(word in by_flag for word in ("节点", "就绪", "整卡 1 张", "超额分配（算力）", "已分配的 GPU 消失"))


def test_findings_have_the_names_of_the_console_and_their_reasons_are_words(exporter):
    counts = [
        FindingCount(kind="ghost", reason="unknown", count=2),
        FindingCount(kind="kubelet-zero", reason="", count=1),
        FindingCount(kind="forged-assignment", reason="of tomorrow", count=1),
    ]
    exporter.nodes = [structs.replace(ledger("n"), finding_counts=tuple(counts))]
    english, chinese = (rows(run("nodes", exporter.url, "--lang", lang))[1] for lang in ("en", "zh"))
    assert english[-1] == (
        "ghost allocation ×2 (kubelet does not report it), the kubelet offers no GPU, forged assignment (of tomorrow)"
    )
    assert chinese[-1] == "幽灵分配 ×2（kubelet 未上报），kubelet 未提供 GPU，伪造的分配（of tomorrow）"


def test_at_80_columns_the_longest_names_cost_no_number_of_gpus(exporter):
    exporter.nodes = [ledger("gke-cluster-gpu-pool-a100-4f7d2b1c-x9zt", offers=(H100,), schedulable=False)]
    lines = at_80_columns("nodes", exporter.url)
    assert lines[0].split()[:3] == ["NODE", "STATE", "GPUS"]
    assert "0 of 4" in lines[1]
    assert lines[1].startswith("gke-cluster")
    assert lines[1].split()[0].endswith("-x9zt")  # its end tells nodes of a pool apart


def test_at_80_columns_each_holder_has_its_line_and_no_name_is_broken_within_a_word(exporter):
    long = pod("serve-llama-7d9f8b6c5-x2x9k", (0, 10, 10), namespace="serving", container="server")
    exporter.nodes = [ledger("hami-a", devices=[device(0, healthy=True)], pods=[pod("bert", (0, 60, 50)), long])]
    lines = at_80_columns("gpus", exporter.url)
    at = lines[0].index("HOLDERS")
    found = [line[at:] for line in lines[1:-1]]
    assert found[0] == "ml/bert/train"
    assert "".join(line.strip() for line in found[1:]) == "serving/serve-llama-7d9f8b6c5-x2x9k/server"
    assert all(line.endswith("/") for line in found[1:-1])
