"""The console's API on the demo, against what the cluster exporter and the agents say themselves."""

import json
import urllib.request

import pytest

from tests.sim.demorun import END, eventually, page, short, started

__all__ = ["short", "started"]  # fixtures

CONSOLE = (
    "parts",
    "overview",
    "gpus",
    "nodes",
    "workloads",
    "namespaces",
    "scheduling",
    "timeline",
    "words",
    "settings",
)


@pytest.fixture
def demo(started):
    running = started()
    running.until(END)
    return running


def got(url: str):
    return json.loads(page(url))


def test_the_console_says_what_the_exporters_say(demo):
    """One demo for all of it, because a demo takes a while to start."""
    *agents, cluster = (url.removesuffix("/metrics") for url in demo.urls)
    api = f"{demo.analyzer}/api/v1"
    for path in CONSOLE:
        assert got(f"{api}/{path}") is not None
    eventually(lambda: {part["state"] for part in got(f"{api}/parts")["parts"]} == {"ok"})
    eventually(lambda: allocations_agree(api, cluster))
    eventually(lambda: holders_agree(api, cluster))
    eventually(lambda: waiting_agrees(api, cluster))
    for agent in agents:
        eventually(lambda agent=agent: ledgers_agree(api, agent))
    pod = next(row for row in got(f"{api}/workloads")["rows"] if row["pod"] == "train-bert-0")  # it does not end
    assert pod["state"] == "running"
    assert pod["memory_allocated"]
    detail = got(f"{api}/workloads/{pod['namespace']}/{pod['pod']}")
    assert detail["gpus"][0]["detail"]["why"]
    assert detail["workload"]["memory_allocated"] == pod["memory_allocated"]
    waits = next(one for one in got(f"{api}/scheduling")["pending"] if one["pod"] == "sweep-12")  # it fits nowhere
    why = got(f"{api}/scheduling/{waits['namespace']}/{waits['pod']}")
    assert why["pod"]["code"] == waits["code"]
    assert why["pod"]["meaning"]["zh"]
    sources = {one["source"]: one for one in got(f"{api}/nodes/hami-a")["node"]["agent"]["sources"]}
    assert (sources["nvml"]["up"], sources["ratio"]["absent"]) == (True, True)
    assert sources["ratio"]["message"]  # its metrics do not say it
    chart = got(f"{api}/history/classes?range=24h&points=24")
    assert len(chart["times"]) <= 24
    assert chart["columns"]
    recent = got(f"{api}/history/classes?range=1h&points=60")
    rows = got(f"{api}/gpus")["total"]
    for counts in zip(*(column["gpus"] for column in recent["columns"]), strict=True):
        assert sum(count or 0 for count in counts) <= rows
    assert any(got(f"{api}/history/series?range=24h")["columns"][0]["values"])


def allocations_agree(api: str, cluster: str) -> bool:
    """The memory and cores of each device, and their sums, are those of the scheduler's ledger."""
    said = {
        one["device"]["id"]: (one["memory_allocated"], one["cores_allocated"], one["shared"])
        for node in got(f"{cluster}/api/v1/nodes")
        for one in node["devices"]
    }
    rows = [row for row in got(f"{api}/gpus")["rows"] if row["allocation"]]
    shown = {
        row["gpu_id"]: (row["allocation"]["memory"], row["allocation"]["cores"], row["allocation"]["slots"])
        for row in rows
    }
    figures = got(f"{api}/overview")["now"]
    return shown.items() <= said.items() and figures["memory_allocated"] == sum(
        memory for memory, _, _ in said.values()
    )


def holders_agree(api: str, cluster: str) -> bool:
    """Each holder of a GPU that is not partitioned holds as much as the ledger says."""
    said = {
        (one["device"], one["namespace"], one["pod"], one["container"], one["memory"])
        for node in got(f"{cluster}/api/v1/nodes")
        for one in node["holders"]
    }
    gpus = {holder[0] for holder in said} & {row["gpu_id"] for row in got(f"{api}/gpus")["rows"] if not row["mig"]}
    shown = {
        (gpu, one["namespace"], one["pod"], one["container"], one["memory"])
        for gpu in gpus
        for one in got(f"{api}/gpus/{gpu}")["holders"]
    }
    return bool(gpus) and shown == {holder for holder in said if holder[0] in gpus}


def waiting_agrees(api: str, cluster: str) -> bool:
    said = {(pod["namespace"], pod["pod"], pod["code"]) for pod in got(f"{cluster}/api/v1/pending")["pending"]}
    found = got(f"{api}/scheduling")
    shown = {(pod["namespace"], pod["pod"], pod["code"]) for pod in found["pending"]}
    return bool(said) and shown == said and found["pending_count"] == len(said)


def ledgers_agree(api: str, agent: str) -> bool:
    """The rows of each GPU's ledger are its memory; a container that has just started may be in one of them only."""
    sample = got(f"{agent}/api/v1/node")
    ledgers = {one["gpu"]: one["memory"] for one in sample["ledgers"] if one["memory"] and not one.get("mig")}
    for gpu, memory in ledgers.items():
        request = urllib.request.Request(f"{api}/gpus?gpu_id={gpu}&fields=mig")
        with urllib.request.urlopen(request, timeout=60) as answer:
            rows = json.loads(answer.read())["rows"]
        if not rows or rows[0]["mig"]:
            continue
        found = got(f"{api}/gpus/{gpu}")["ledger"]
        if (
            found is None
            or found["total"] != memory["total"]
            or sum(row["memory"] for row in found["rows"]) != found["total"]
        ):
            return False
        system = next(row["memory"] for row in found["rows"] if row["kind"] == "system")
        if system != memory["system"]:
            return False
    return True
