"""Real agents, one of which is killed, and a real analyzer that scrapes them: what is gone is not forgotten."""

import json
import subprocess
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.contract.oour_world import analyzer
from tests.contract.promworld import prometheus
from tests.ports import free_port
from tests.services.agent.noderoot import NodeRoot, RunningAgent

pytestmark = pytest.mark.real
QUICK: dict[str, Any] = {"INTERVAL": "1", "VGPUSCOPE_ANALYZER_SCRAPE_INTERVAL": "1", "QUERY_CONDITION": "{}"}
WINDOW = ("--window-minutes", "0.1")


@pytest.fixture
def nodes(tmp_path):
    """Two nodes with a GPU each, and a pod on each GPU."""
    found = []
    for name in ("a", "b"):
        (path := tmp_path / name).mkdir()
        node = NodeRoot(path, name=f"node-{name}")
        node.nvml.gpu(0, uuid=f"GPU-{name * 8}-0000-4000-8000-000000000000").process(0, 4242)
        node.process(4242, node.pod(f"train-{name}"))
        found.append(node)
    return found


@contextmanager
def mortal(node: NodeRoot):
    """An agent that a test may kill."""
    port = free_port()
    command, environment = node.command("--listen", f"127.0.0.1:{port}", "--sample-interval", "0.1")
    with (node.path / "agent.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=node.path)
    agent = RunningAgent(process, f"http://127.0.0.1:{port}", node.path / "agent.log")
    try:
        agent.wait(lambda: agent.status("/api/v1/node") == 200)
        yield agent
    finally:
        process.kill()
        process.wait()


def by_node(found) -> dict[str, dict]:
    return {row["hostname"]: row for row in found.rows()}


def counted(found) -> tuple:
    health = found.get("/health")
    return health["status"], health["targets_up"], health["targets_down"]


def down_targets(found) -> list[tuple]:
    return [(one["name"], one["up"]) for one in found.get("/api/v1/summary")["down_targets"]]


def state(row: dict) -> tuple:
    return row["verdict"], row["use_class"], row["status"], row["score"], row["pod"], row["tenants"]


UNKNOWN: tuple = ("unknown", "unknown", "unknown", None, "", [])


def test_the_gpu_of_an_agent_that_was_killed_stays_listed_and_survives_a_new_start(nodes, tmp_path):
    a, b = nodes
    history = ("--history", str(tmp_path / "results.db"))
    with a.agent() as one, mortal(b) as two:
        targets = ("--targets", f"{one.url},{two.url}")
        with analyzer(tmp_path, *targets, *WINDOW, *history, **QUICK) as found:
            found.wait(lambda: set(by_node(found)) == {"node-a", "node-b"})
            found.wait(lambda: by_node(found)["node-b"]["pod"] == "train-b")
            found.wait(lambda: found.get("/health")["status"] == "healthy")
            two.process.kill()
            two.process.wait()
            found.wait(lambda: found.get("/health")["targets_down"] == 1)
            found.wait(lambda: by_node(found)["node-b"]["last_seen"])
            last = by_node(found)["node-b"]["last_seen"]
            page = found.page()
            assert not [key for key in page if "train-b" in dict(key[1]).values()]
            before = page.one("gpu_analysis_total")
            found.wait(lambda: found.analyses() > before + 8)  # the window of 6 s holds none of its samples any more
            row = by_node(found)["node-b"]
            assert state(row) == UNKNOWN
            assert row["last_seen"] == last
            # a scrape of the other agent may just have come too late
            found.wait(lambda: by_node(found)["node-a"]["pod"] == "train-a")
            found.wait(lambda: counted(found) == ("degraded", 1, 1))
            found.wait(lambda: found.page().one("vgpuscope_analyzer_targets", state="down") == 1)
            page = found.page()
            assert page.one("vgpuscope_analyzer_verdict", gpu_id=row["gpu_id"], verdict="unknown") == 1
            found.wait(lambda: down_targets(found) == [(two.url, False)])
            detail = found.get(f"/api/v1/gpus/{row['gpu_id']}")
            assert two.url in detail["why"][0]
        with analyzer(tmp_path, *targets, *WINDOW, *history, **QUICK) as found:
            found.wait(lambda: by_node(found).get("node-a", {}).get("pod") == "train-a")
            assert state(by_node(found)["node-b"]) == UNKNOWN
            assert by_node(found)["node-b"]["last_seen"] == last


def test_behind_a_prometheus_the_gpu_of_an_agent_that_was_killed_stays_listed_too(nodes, tmp_path):
    a, b = nodes
    with mortal(a) as one, mortal(b) as two, ExitStack() as life:
        addresses = [agent.url.removeprefix("http://") for agent in (one, two)]
        job = {"job_name": "agents", "static_configs": [{"targets": addresses}]}
        config = json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})
        url = life.enter_context(prometheus(tmp_path, config))
        found = life.enter_context(analyzer(tmp_path, *WINDOW, PROM_URL=url, **QUICK))
        found.wait(lambda: {row["pod"] for row in found.rows()} == {"train-a", "train-b"})
        found.wait(lambda: found.get("/health")["targets_up"] == 2)
        two.process.kill()
        found.wait(lambda: found.get("/health")["targets_down"] == 1)
        found.wait(lambda: by_node(found)["node-b"]["last_seen"])
        before = found.analyses()
        found.wait(lambda: found.analyses() > before + 8)  # the window of 6 s holds none of its samples any more
        assert state(by_node(found)["node-b"]) == UNKNOWN
        found.wait(lambda: by_node(found)["node-a"]["pod"] == "train-a")
        found.wait(lambda: down_targets(found) == [(addresses[1], False)])
        detail = found.get(f"/api/v1/gpus/{by_node(found)['node-b']['gpu_id']}")
        assert detail["evidence"]["reasons"] == ["VERDICT_NOT_SEEN", "VERDICT_TARGET_DOWN"]
        found.wait(lambda: found.page().one("vgpuscope_analyzer_targets", state="down") == 1)
