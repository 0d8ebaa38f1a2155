"""`vgpuscope waste` and /api/v1/waste, over a real store."""

import csv
import io
import json
import time
from typing import Any

import pytest

from tests.commands.test_results import vgpuscope  # noqa: F401
from tests.http.serving import until
from tests.services.analyzer.analyzing import StubSource, reading, running, track
from tests.store import fleets
from vgpuscope.model.analysis import Score, Stat
from vgpuscope.store.opening import open_store

GIB = fleets.GIB
KEEP: dict[str, Any] = {"keep_results": fleets.DAY, "keep_hours": fleets.DAY, "keep_days": fleets.DAY}
HOURLY = {"scheduler.interval": 3600}


def shared(since: float):
    def part(pod, namespace, verdict, memory, **more):
        terms = {"mem_used": Stat(mean=memory * GIB)}
        fields = {"own": True, "terms": terms, "verdict": verdict, "memory_limit": 20 * GIB, "score": Score(value=1.0)}
        return fleets.tenant(pod, namespace=namespace, **(fields | more))

    notebook = part("carol-0", "notebooks", "idle", 18, owner="Notebook/carol", idle_since=since, use_class="idle-held")
    return fleets.gpu(
        0,
        terms={"mem_total": Stat(mean=80.0 * GIB)},
        tenants=(notebook, part("worker-0", "train", "in_use", 20)),
    )


@pytest.fixture
async def analyzer(tmp_path):
    """Three hours of a shared GPU and of one that no pod has, in a store; what runs shows the last of them."""
    file = str(tmp_path / "history.db")
    store = open_store(file, **KEEP)
    now = time.time()
    hours = (now // 3600 - 3) * 3600
    for n in range(18):
        end = hours + (n + 1) * 600
        await store.results.save(fleets.analysis(end, shared(hours), fleets.gpu(1), number=n + 1, window=600))
    await store.close()
    source = StubSource(reading(track(5, tenant=None)))
    source.hang()
    async with running(source, history=open_store(file, **KEEP), **HOURLY, **{"analyzer.history": file}) as found:
        await until(lambda: found.analyzer.state().last is not None)  # the limits are those of the last analysis
        yield found


async def test_idle_hours_are_ranked_with_owner_memory_and_idle_since(analyzer):
    found = await analyzer.json("/api/v1/waste?since=6h")
    row, busy = found["rows"]
    assert (busy["pod"], busy["idle_gpu_hours"], busy["held_gpu_hours"]) == ("worker-0", 0.0, 0.75)
    assert (row["namespace"], row["pod"], row["owner"]) == ("notebooks", "carol-0", "Notebook/carol")
    assert (row["idle_gpu_hours"], row["memory_held"], row["idle_ratio"]) == (0.75, 18 * 1024**3, 1.0)
    assert row["idle_since"].endswith(":00:00Z")
    assert (found["gpu_hours"], found["held_gpu_hours"], found["unallocated_gpu_hours"]) == (6.0, 3.0, 3.0)
    assert (found["idle_gpu_hours"], found["in_use_gpu_hours"], found["count"]) == (0.75, 0.75, 2)


async def test_only_the_time_that_was_asked_for_is_added_up(analyzer):
    found = await analyzer.json("/api/v1/waste?since=70m&group_by=namespace")
    assert found["rows"][0]["idle_gpu_hours"] < 0.75
    assert found["begin"].endswith(":00:00Z")
    assert (await analyzer.json("/api/v1/waste?limit=0"))["rows"] == []
    everything = await analyzer.json("/api/v1/waste?since=9999w")
    assert everything["rows"][0]["idle_gpu_hours"] == 0.75
    assert everything["begin"].endswith("T00:00:00Z")


async def test_waste_is_csv_too(analyzer):
    answer = await analyzer.get("/api/v1/waste?format=csv&group_by=owner")
    assert [row["owner"] for row in csv.DictReader(io.StringIO(answer.text))] == ["Notebook/carol", "Pod/worker-0"]
    assert answer.headers["x-total-count"] == "2"


@pytest.mark.parametrize("since", ["yesterday", "0h", "24", "-3h", "1d12h", "24h\n"])
async def test_a_time_that_cannot_be_meant_is_refused(analyzer, since):
    answer = await analyzer.get("/api/v1/waste", params={"since": since})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("since ")


@pytest.mark.parametrize("columns", ["80", "120"])
async def test_the_command_prints_who_wasted_how_much(analyzer, vgpuscope, columns):  # noqa: F811
    code, out, err = await vgpuscope("waste", str(analyzer.client.base_url), "--since", "6h", COLUMNS=columns)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(columns)
    line = out.splitlines()[1]
    assert line.split()[:3] == ["0.75", "0.75", "100%"]
    assert out.splitlines()[2].split()[:3] == ["0.00", "0.75", "0%"]
    assert "(1 without idle GPU-hours: see --json)" in " ".join(out.split())
    for word in ("18.0Gi" if columns == "120" else "", "idle", "notebooks/carol-0"):
        assert word in line
    assert "(Notebook/carol)" in out
    assert "6.0 GPU-hours analysed, 3.0 held by pods, 3.0 not" in out


async def test_the_command_prints_json_and_refuses_what_is_not_a_time(analyzer, vgpuscope):  # noqa: F811
    url = str(analyzer.client.base_url)
    _, out, _ = await vgpuscope("waste", url, "--json", "--group-by", "node")
    assert [row["node"] for row in json.loads(out)["rows"]] == ["node-0"]
    _, out, _ = await vgpuscope("waste", url, "--csv")
    assert out.startswith("namespace,pod,owner,")
    code, _, err = await vgpuscope("waste", url, "--since", "soon")
    assert code == 2
    assert "--since 'soon'" in err


async def test_without_a_store_the_command_says_so(vgpuscope):  # noqa: F811
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        _, out, _ = await vgpuscope("waste", str(analyzer.client.base_url))
    assert out == "Idle GPU-hours are unknown: this analyzer stores no results (analyzer.history is none).\n"
