"""The console's API: one answer from several parts, each of which can fail alone."""

import asyncio
import csv
import io
import re

import pytest
from msgspec.structs import replace

from tests.http.serving import until
from tests.logic.console.clusters import GIB, device, holder, node
from tests.services.analyzer.analyzing import IDLE, TOKEN, StubSource, StubSources, reading, running, stat, track, uuid
from tests.services.analyzer.exporting import exporting
from tests.services.analyzer.test_api import HOURLY, refused, shared
from vgpuscope.model.analysis import Reading
from vgpuscope.model.caller import Caller
from vgpuscope.model.cluster import Finding, FindingCount
from vgpuscope.model.pending import PendingPod
from vgpuscope.services.analyzer.settings.rows import setting_list
from vgpuscope.services.analyzer.settings.settings import TRIABLE, Settings, without_credentials
from vgpuscope.sources.fleet.cluster_nodes import ClusterNodes

LISTS = ("gpus", "nodes", "workloads", "namespaces")
OTHERS = ("overview", *LISTS, "scheduling", "timeline", "history/classes", "history/series")


def source() -> StubSource:
    """A busy GPU, an idle one, one that two share, and one of which nothing is known but that it is there."""
    nothing = track(3, util=None, tenant=None, terms={"mem_total": stat(80.0 * GIB)}, hostname="node-9")
    return StubSource(reading(track(0), track(1, util=IDLE), *shared(2, "ab"), nothing))


def ledger():
    held = (
        holder(uuid(2), "web-a", namespace="team-a", container="", memory=8 * GIB, cores=30),
        holder(uuid(2), "web-b", namespace="team-b", container="", memory=4 * GIB),
    )
    ghost = Finding(kind="ghost", node="node-0", reason="ended", namespace="team-b", pod="ghost-b", device=uuid(2))
    return node(
        "node-0",
        device(uuid(2), allocated=12 * GIB, cores=30),
        holders=held,
        findings=(ghost,),
        finding_counts=(FindingCount(kind="ghost", reason="ended", count=1),),
    )


@pytest.fixture
async def exporter():
    async with exporting() as found:
        found.nodes = (ledger(), node("dark", device(uuid(9))))
        found.pods = tuple(
            PendingPod(namespace=f"team-{team}", pod=f"later-{team}", pod_uid=team, created=900.0, code="SCHED_TAINT")
            for team in "ab"
        )
        found.page = 'vgpuscope_cluster_quota_used{namespace="team-a",resource="nvidia.com/gpu"} 1\n'
        yield found


@pytest.fixture
async def fleet(exporter):
    stub = StubSources(source())
    async with ClusterNodes(exporter.url) as nodes:
        stub.known_allocations = await nodes.allocations()
    exporter.asked = 0
    flags = {**HOURLY, "analyzer.cluster_url": exporter.url}
    async with running(stub.current, sources=stub, **flags) as analyzer:
        await analyzer.analysed()
        analyzer.exporter = exporter
        yield analyzer


async def v1(analyzer, path: str, **more):
    return await analyzer.json(f"/api/v1/{path}", **more)


def states(answer) -> dict[str, str]:
    return {part["name"]: part["state"] for part in answer["parts"]}


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_gpus_are_joined_from_all_parts(fleet):
    answer = await v1(fleet, "gpus")
    assert states(answer) == {"analysis": "ok", "cluster": "ok", "agents": "absent"}
    rows = {row["gpu_id"]: row for row in answer["rows"]}
    assert list(rows) == [uuid(9), uuid(0), uuid(1), uuid(2), uuid(3)]  # by node
    both = rows[uuid(2)]
    assert (both["allocation"]["memory"], both["allocation"]["cores"]) == (12 * GIB, 30)
    assert [(one["pod"], one["memory_allocated"]) for one in both["tenants"]] == [
        ("web-a", 8 * GIB),
        ("web-b", 4 * GIB),
    ]
    assert (rows[uuid(9)]["verdict"], rows[uuid(9)]["node"], rows[uuid(9)]["reasons"]) == (
        "unknown",
        "dark",
        ["VERDICT_UNREPORTED"],
    )
    assert (rows[uuid(0)]["index"], rows[uuid(0)]["memory_total"], rows[uuid(0)]["gpu_util"]["mean"]) == (
        0,
        80 * GIB,
        0.95,
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("status=high", [0]),
        ("verdict=idle", [1]),
        ("use_class=idle-held", [1]),
        ("namespace=ml", [0, 1]),
        ("namespace=team-b", [2]),
        ("namespace=ml&namespace=team-b", [0, 1, 2]),
        ("namespace=ml,team-b", [0, 1, 2]),
        ("pod=web-a", [2]),
        ("namespace=team-a&pod=web-b", []),
        ("node=node-9", [3]),
        ("gpu_id=" + uuid(2), [2]),
        ("shared=true", [2]),
        ("search=WEB-B", [2]),
        ("min_score=70", [0]),
        ("sort=-score&limit=2", [0, 2]),
        ("sort=gpu_id&offset=1&limit=2", [1, 2]),
        ("sort=-gpu_util&limit=1", [0]),
        ("sort=-allocation&limit=1", [2]),
        ("offset=99", []),
        ("limit=0", []),
    ],
)
async def test_gpus_are_filtered_sorted_and_paged(fleet, asked, found):
    answer = await fleet.get(f"/api/v1/gpus?{asked}")
    assert [row["gpu_id"] for row in answer.json()["rows"]] == [uuid(number) for number in found]
    assert answer.headers["x-total-count"] == str(answer.json()["total"])


@pytest.mark.parametrize("path", LISTS)
async def test_lists_send_asked_fields_csv_and_304(fleet, path):
    fleet.analyzer.console._wall = lambda: 1000.0  # within one tick
    answer = await fleet.get(f"/api/v1/{path}")
    name = next(iter(answer.json()["rows"][0]))
    some = await v1(fleet, path, params={"fields": name})
    assert [list(row) for row in some["rows"]] == [[name]] * some["total"]
    table = (await fleet.get(f"/api/v1/{path}", params={"format": "csv"})).text
    assert [row[name] for row in csv.DictReader(io.StringIO(table))] == [row[name] for row in some["rows"]]
    again = await fleet.get(f"/api/v1/{path}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await fleet.analyse()
    again = await fleet.get(f"/api/v1/{path}", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 200


async def test_workloads_by_pod_owner_and_namespace(fleet):
    pods = await v1(fleet, "workloads")
    assert [(row["pod"], row["state"], row["verdict"]) for row in pods["rows"]] == [
        ("train-0", "running", "in_use"),
        ("train-1", "running", "idle"),
        ("later-a", "pending", "unknown"),
        ("web-a", "running", "in_use"),
        ("later-b", "pending", "unknown"),
        ("web-b", "running", "in_use"),
    ]
    owners = await v1(fleet, "workloads?group_by=owner")
    assert [row["owner"] for row in owners["rows"]] == ["Job/train", "Pod/train-1", "Pod/web-a", "Pod/web-b"]
    spaces = await v1(fleet, "workloads?group_by=namespace")
    assert [(row["namespace"], row["tenants"]) for row in spaces["rows"]] == [("ml", 2), ("team-a", 1), ("team-b", 1)]


async def test_namespaces_and_nodes(fleet):
    spaces = {row["name"]: row for row in (await v1(fleet, "namespaces"))["rows"]}
    assert {name: (row["gpus"], row["pending_pods"]) for name, row in spaces.items()} == {
        "ml": (2, 0),
        "team-a": (1, 1),
        "team-b": (1, 1),
    }
    assert spaces["team-a"]["quotas"] == [{"resource": "nvidia.com/gpu", "used": 1.0, "limit": None, "ratio": None}]
    nodes = {row["name"]: row for row in (await v1(fleet, "nodes"))["rows"]}
    assert {name: (row["gpus"], row["ready"], row["findings"]) for name, row in nodes.items()} == {
        "dark": (1, True, 0),
        "node-0": (3, True, 1),
        "node-9": (1, None, None),
    }


# ── details ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_gpu_comes_with_its_evidence_in_two_languages(fleet):
    english, chinese = [await v1(fleet, f"gpus/{uuid(1)}?lang={lang}") for lang in ("en", "zh")]
    assert (english["gpu"]["verdict"], english["evidence"]["coverage"]) == ("idle", 1.0)
    assert len(chinese["why"]) == len(english["why"]) > 0
    assert "空闲" in chinese["why"][0]
    assert english["tenants"][0]["tenant"]["pod"] == "train-1"
    assert {term["name"] for term in english["score_terms"]} == {"gpu_util", "mem_copy", "mem_used", "power"}
    assert all(uuid(1) in query["promql"] for query in english["queries"])


async def test_a_gpu_that_only_the_scheduler_knows_has_a_page_too(fleet):
    found = await v1(fleet, f"gpus/{uuid(9)}")
    assert (found["evidence"]["reasons"], found["ledger"]) == (["VERDICT_UNREPORTED"], None)
    assert (found["gpu"]["verdict"], found["why"]) == (
        "unknown",
        ["Unknown: the scheduler lists this GPU, and no exporter reports it."],
    )


async def test_details_of_a_pod_a_node_and_a_namespace(fleet):
    pod = await v1(fleet, "workloads/team-a/web-a")
    assert (pod["workload"]["memory_allocated"], pod["gpus"][0]["gpu_class"]) == (8 * GIB, "busy")
    assert pod["gpus"][0]["detail"]["why"]
    place = await v1(fleet, "nodes/node-0")
    assert ([gpu["gpu_id"] for gpu in place["gpus"]], place["findings"][0]["kind"]) == (
        [uuid(0), uuid(1), uuid(2)],
        "ghost",
    )
    space = await v1(fleet, "namespaces/team-b")
    assert ([row["pod"] for row in space["workloads"]], [row["pod"] for row in space["pending"]]) == (
        ["later-b", "web-b"],
        ["later-b"],
    )
    waiting = await v1(fleet, "scheduling/team-a/later-a")
    assert (waiting["pod"]["code"], waiting["pod"]["stage"]) == ("SCHED_TAINT", "filter")
    assert waiting["pod"]["meaning"]["zh"]


async def test_a_pod_that_is_assigned_to_a_node_and_not_bound_is_among_its_workloads(exporter):
    """The node's allocated memory has it, so that the rows add up to the sum above them."""
    known, *others = exporter.nodes
    stuck = holder(uuid(2), "later-a", namespace="team-a", memory=2 * GIB)
    exporter.nodes = (replace(known, holders=(*known.holders, stuck)), *others)
    stub = StubSources(source())
    flags = {**HOURLY, "analyzer.cluster_url": exporter.url}
    async with running(stub.current, sources=stub, **flags) as analyzer:
        await analyzer.analysed()
        rows = (await v1(analyzer, "nodes/node-0"))["workloads"]
    waiting = [(row["pod"], row["memory_allocated"], row["nodes"]) for row in rows if row["state"] == "pending"]
    assert waiting == [("later-a", 2 * GIB, ["node-0"])]


@pytest.mark.parametrize(
    "path",
    [
        "gpus/GPU-nope",
        f"gpus/{uuid(0)}?mig=MIG-nope",
        "nodes/nope",
        "namespaces/nope",
        "workloads/ml/nope",
        "scheduling/ml/nope",
        f"gpus/{uuid(0)}?namespace=team-a",
    ],
)
async def test_what_is_not_there_is_not_found(fleet, path):
    refused(await fleet.get(f"/api/v1/{path}"), 404, "OBJECT_UNKNOWN")


async def test_the_overview_says_what_needs_attention(fleet):
    found = await v1(fleet, "overview")
    assert states(found) == {"analysis": "ok", "cluster": "ok", "agents": "absent", "history": "absent"}
    now = found["now"]
    assert (now["gpus"], now["gpus_held"], now["unknown"], now["pending_pods"]) == (5, 3, 2, 2)
    assert (now["memory_allocated"], now["memory_capacity"], now["wasted_gpu_hours"]) == (12 * GIB, 160 * GIB, None)
    assert (found["waste"], found["before"]) == (None, None)
    kinds = [one["kind"] for one in found["attention"]]
    assert (kinds.count("pending-long"), kinds.count("finding"), kinds.count("no-data")) == (2, 1, 1)
    assert found["by_class"] == {**dict.fromkeys(found["by_class"], 0), "busy": 2, "idle-held": 1, "unknown": 2}


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_many_consoles_cost_the_cluster_exporter_one_request(fleet):
    for path in (*LISTS, "overview", "scheduling"):
        await v1(fleet, path)
    assert fleet.exporter.asked == 1


@pytest.mark.parametrize(("status", "state"), [(503, "down"), (401, "forbidden"), (403, "forbidden"), (404, "down")])
async def test_a_cluster_exporter_that_refuses_takes_only_its_own_part_away(fleet, status, state):
    fleet.exporter.status = status
    answer = await v1(fleet, "gpus")
    assert states(answer) == {"analysis": "ok", "cluster": state, "agents": "absent"}
    assert [row["gpu_id"] for row in answer["rows"]] == [uuid(9), uuid(0), uuid(1), uuid(2), uuid(3)]
    assert {row["allocation"] for row in answer["rows"]} == {None}
    (part,) = [part for part in answer["parts"] if part["name"] == "cluster"]
    assert part["code"]
    assert part["message"]
    assert part["hint"]
    for path in OTHERS:
        assert (await fleet.get(f"/api/v1/{path}")).status_code == 200
    assert (await v1(fleet, "overview"))["now"]["pending_pods"] is None


async def test_a_cluster_exporter_that_hangs_does_not_hold_up_the_answer(fleet):
    fleet.exporter.let_go.clear()
    answer = await v1(fleet, "gpus")
    assert (states(answer)["cluster"], answer["total"]) == ("down", 5)


async def test_a_waiting_pod_is_explained_from_the_list_while_the_exporter_hangs(fleet):
    await v1(fleet, "scheduling")
    fleet.exporter.let_go.clear()
    found = await v1(fleet, "scheduling/team-a/later-a")
    assert found["pod"]["code"] == "SCHED_TAINT"
    assert (await fleet.get("/api/v1/scheduling/team-a/nope")).status_code == 404


async def test_another_service_at_its_address_is_noticed(fleet):
    fleet.exporter.name = "analyzer"
    (part,) = [part for part in (await v1(fleet, "parts"))["parts"] if part["name"] == "cluster"]
    assert part["state"] == "down"
    assert "is an analyzer, not a cluster exporter" in part["message"]


async def test_an_analyzer_that_its_own_clients_take_for_a_cluster_exporter_is_noticed():
    """Both serve /api/v1/nodes, with other shapes: the header tells them apart."""
    async with running(source(), **HOURLY) as one:
        await one.analysed()
        async with running(source(), **HOURLY, **{"analyzer.cluster_url": str(one.client.base_url)}) as other:
            await other.analysed()
            (part,) = [part for part in (await v1(other, "parts"))["parts"] if part["name"] == "cluster"]
            assert "is an analyzer, not a cluster exporter" in part["message"]


async def test_without_an_analysis_the_parts_say_why():
    broken = StubSource()
    broken.fail("refused")
    async with running(broken, **HOURLY) as analyzer:
        await analyzer.analysed()
        answer = await v1(analyzer, "gpus")
        assert (answer["rows"], answer["at"], states(answer)["analysis"]) == ([], None, "down")
        assert answer["parts"][0]["code"] == "QUERY_FAILED"


# ── scope ────────────────────────────────────────────────────────────────────────────────────────────────────────

DETAILS = (
    f"gpus/{uuid(2)}",
    "nodes/node-0",
    "workloads/team-a/web-a",
    "namespaces/team-a",
    "scheduling/team-a/later-a",
)


@pytest.mark.attack
@pytest.mark.parametrize("path", [*OTHERS, *DETAILS])
async def test_a_view_of_one_namespace_names_no_other(fleet, path):
    scoped = {} if path.startswith(("workloads/", "namespaces/", "scheduling/")) else {"namespace": "team-a"}
    text = (await fleet.get(f"/api/v1/{path}", params=scoped)).text
    assert "team-a" in text or path.startswith(("history", "timeline", "nodes"))
    assert not [name for name in ("team-b", "web-b", "later-b", "ghost-b", "train-0") if name in text]


@pytest.mark.attack
@pytest.mark.parametrize("path", [*OTHERS, *DETAILS[:2]])
async def test_a_role_of_one_namespace_sees_no_other_whatever_it_asks_for(fleet, path, monkeypatch):
    bound = Caller(name="tenant", namespaces=("team-a",))
    monkeypatch.setattr(type(fleet.analyzer._access.admission), "admit", lambda *_: bound)
    for asked in ({}, {"namespace": "team-b"}, {"namespace": "team-a,team-b"}):
        text = (await fleet.get(f"/api/v1/{path}", params=asked)).text
        assert not [name for name in ("team-b", "web-b", "later-b", "ghost-b", "train-0") if name in text]


@pytest.mark.attack
@pytest.mark.parametrize("path", ["workloads/team-b/web-b", "namespaces/team-b", "scheduling/team-b/later-b"])
async def test_a_role_of_one_namespace_finds_nothing_of_another(fleet, path, monkeypatch):
    bound = Caller(name="tenant", namespaces=("team-a",))
    monkeypatch.setattr(type(fleet.analyzer._access.admission), "admit", lambda *_: bound)
    assert (await fleet.get(f"/api/v1/{path}")).status_code == 404


# ── settings, events, words ──────────────────────────────────────────────────────────────────────────────────────


async def test_settings_have_bounds_and_origins_and_no_secrets(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("thresholds:\n  idle: 7\n")
    flags = {**HOURLY, "analyzer.api_token": TOKEN, "analyzer.scrape_token": "s3cret-scrape"}
    flags |= {"analyzer.targets": "http://me:s3cret-a@agent:9394", "analyzer.history": str(tmp_path / "x.db")}
    async with running(source(), file=file, **flags) as analyzer:
        text = (await analyzer.get("/api/v1/settings")).text
        assert TOKEN not in text
        assert "s3cret" not in text
        rows = {row["path"]: row for row in (await v1(analyzer, "settings"))["rows"]}
    idle, token = rows["thresholds.idle"], rows["analyzer.api_token"]
    assert (idle["value"], idle["source"], idle["type"], idle["minimum"], idle["maximum"]) == (
        7.0,
        "file",
        "number",
        0,
        100,
    )
    assert (idle["editable"], rows["scheduler.interval"]["source"], rows["analyzer.listen"]["editable"]) == (
        True,
        "flag",
        False,
    )
    assert (token["secret"], token["is_set"], token["value"]) == (True, True, None)
    window, rate = rows["prometheus.time_window_min"], rows["analyzer.rate_limit"]
    assert (window["minimum"], window["maximum"], window["exclusive_minimum"]) == (0.1, 10080, False)
    assert rate["exclusive_minimum"] is True


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@db/x?sslmode=require", "postgresql://…@db/x?sslmode=require"),
        ("postgresql://db/x?password=s3cret&user=me", "postgresql://db/x?password=…&user=me"),
        ("http://me:p@ss@host", "http://…@host"),
        ("/var/lib/results.db", "/var/lib/results.db"),
        (None, None),
        (["http://a:b@c", 1], ["http://…@c", 1]),
    ],
)
def test_credentials_in_urls_are_masked(url, shown):
    assert without_credentials(url) == shown


CHANGE = {"thresholds": {"low_utilization": 80, "high": 90}}


async def test_a_preview_says_what_the_change_then_does_and_changes_nothing():
    async with running(source(), **HOURLY) as analyzer:
        await analyzer.analysed()
        before = {row["gpu_id"]: row["status"] for row in await analyzer.json("/results")}
        preview = (await analyzer.client.post("/api/v1/settings/preview", json=CHANGE)).json()
        assert {row["gpu_id"]: row["status"] for row in await analyzer.json("/results")} == before
        assert (await analyzer.json("/config"))["thresholds"]["low_utilization"] == 20
        assert (await analyzer.client.post("/config/update", json=CHANGE)).status_code == 200
        await analyzer.analysed(2)
        after = {row["gpu_id"]: row["status"] for row in await analyzer.json("/results")}
    changed = {row["gpu_id"]: row["after"]["status"] for row in preview["rows"] if row["pod"] is None}
    assert changed == {gpu: status for gpu, status in after.items() if status != before[gpu]} != {}
    assert preview["gpus_changed"] == len(changed)
    assert sum(preview["by_status_after"].values()) == preview["gpus"] == len(after)


class OnePodEnded(StubSource):
    """The pod of the last GPU ended 200 s before the end of the window."""

    async def read(self, *, end, seconds):
        found = await super().read(end=end, seconds=seconds)
        *others, last = found.tracks
        return replace(found, tracks=(*others, replace(last, last=end - 200)))


async def test_a_preview_shows_a_pod_that_only_one_set_of_rules_still_counts():
    """With a larger maximum age, a pod that ended before the end of the window is still there."""
    async with running(OnePodEnded(reading(track(0), track(1))), **HOURLY) as analyzer:
        await analyzer.analysed()
        change = {"verdict": {"max_age_intervals": 1000}}
        answer = await analyzer.client.post("/api/v1/settings/preview", json=change)
    assert answer.status_code == 200, answer.text
    preview = answer.json()
    rows = {(row["gpu_id"], row["pod"]): row for row in preview["rows"]}
    assert set(rows) == {(uuid(1), None), (uuid(1), "train-1")}
    assert all(row["before"] is None and row["after"]["status"] == "high" for row in rows.values())
    assert (preview["gpus_changed"], preview["tenants_changed"]) == (1, 1)


RISING = re.compile(r"is above|not in ascending order")  # a bound of one alone can be refused
BOUNDED = [
    row
    for row in setting_list(Settings(flags={}, environ={}, file=None)).rows
    if row.editable and row.type in {"number", "integer", "duration"}
]


@pytest.mark.parametrize("setting", BOUNDED, ids=lambda setting: setting.path)
def test_every_number_that_can_be_changed_while_running_has_bounds_that_are_allowed(setting):
    assert setting.maximum is not None
    assert setting.minimum is not None
    assert setting.maximum < 1e10


@pytest.mark.parametrize("path", [row.path for row in BOUNDED if row.section in TRIABLE])
async def test_no_allowed_value_of_a_setting_makes_gpus_disappear(fleet, path):
    """Thresholds have to rise, so a bound of one of them alone can be refused."""
    setting = next(one for one in BOUNDED if one.path == path)
    section, name = path.split(".")
    for value in (setting.minimum, setting.maximum):
        answer = await fleet.client.post("/api/v1/settings/preview", json={section: {name: value}})
        if answer.status_code == 422:
            assert RISING.search(answer.json()["error"]["message"]), answer.text
            continue
        preview = answer.json()
        assert sum(preview["by_status_after"].values()) == preview["gpus"] == 4


@pytest.mark.parametrize(
    "change",
    [
        {"prometheus": {"time_window_min": 1e-58}},
        {"verdict": {"min_coverage": 1e-99}},
        {"scheduler": {"interval": 49437}},
        {"gpu_defaults": {"power_w": 1e-9}},
    ],
)
async def test_a_value_that_would_make_the_fleet_vanish_is_refused(fleet, change):
    before = await fleet.json("/config")
    answer = await fleet.client.post("/config/update", json=change)
    assert answer.status_code == 422
    assert await fleet.json("/config") == before


@pytest.mark.parametrize(
    "change",
    [
        {"analyzer": {"api_token": "x"}},
        {"thresholds": {"idle": 101}},
        {"thresholds": {"nope": 1}},
        {"thresholds": {"idle": 90, "high": 10}},
        {"scheduler": {"interval": 30}},
    ],
)
async def test_a_preview_of_what_cannot_be_is_refused(fleet, change):
    answer = await fleet.client.post("/api/v1/settings/preview", json=change)
    assert answer.status_code == 422


@pytest.mark.attack
async def test_a_preview_needs_the_token():
    async with running(source(), **HOURLY, **{"analyzer.api_token": TOKEN}) as analyzer:
        await analyzer.analysed()
        reads = analyzer.source.reads
        assert (await analyzer.client.post("/api/v1/settings/preview", json=CHANGE)).status_code == 401
        assert analyzer.source.reads == reads


async def test_the_timeline_tells_verdicts_and_settings_newest_first(fleet):
    fleet.source.answer = replace(fleet.source.answer, tracks=(track(0, util=IDLE), *fleet.source.answer.tracks[1:]))
    await fleet.analyse()
    assert (await fleet.client.post("/config/update", json={"verdict": {"idle_enter": 0.02}})).status_code == 200
    answer = await v1(fleet, "timeline")
    events = [(one["kind"], one["code"], one["before"], one["after"]) for one in answer["rows"]]
    assert ("verdict", "idle", "busy", "idle-held") in events
    assert [event for event in events if event[0] == "settings"] == [("settings", "verdict.idle_enter", "0.05", "0.02")]
    only = await v1(fleet, "timeline?kind=verdict&namespace=ml")
    assert {one["kind"] for one in only["rows"]} == {"verdict"}
    assert only["rows"][0]["gpu_id"] == uuid(0)
    moments = [one["at"] for one in answer["rows"]]
    assert moments == sorted(moments, reverse=True)


async def test_the_timeline_survives_a_restart_and_tells_what_changed_meanwhile(tmp_path):
    flags = {**HOURLY, "analyzer.history": str(tmp_path / "results.db")}
    async with running(source(), **flags) as analyzer:
        await analyzer.analysed()
        before = source().answer
        assert isinstance(before, Reading)
        analyzer.source.answer = reading(track(0, util=IDLE), *before.tracks[1:])
        await analyzer.analyse()
        await analyzer.client.post("/config/update", json={"verdict": {"idle_enter": 0.02}})
        before = await v1(analyzer, "timeline")
        await until(lambda: analyzer.analyzer._saving.outbox.waiting == 0)
    assert {one["kind"] for one in before["rows"]} >= {"verdict", "settings"}
    async with running(source(), **flags) as analyzer:
        await analyzer.analysed()
        after = await v1(analyzer, "timeline")
    kept = [one for one in after["rows"] if one in before["rows"]]
    assert kept == before["rows"]
    again = [one for one in after["rows"] if one not in kept and one["gpu_id"] == uuid(0)]
    assert [(one["kind"], one["after"]) for one in again] == [("verdict", "busy")]  # since before the restart
    assert after["since"] == min(one["at"] for one in kept)


def newest(values):
    """The last value there is: when an hour has just begun, its step has none yet."""
    return [value for value in values if value is not None][-1]


async def test_charts_come_from_the_stored_results(tmp_path):
    flags = {**HOURLY, "analyzer.history": str(tmp_path / "results.db"), "prometheus.query_condition": "{}"}
    async with running(source(), **flags) as analyzer:
        await analyzer.analysed()
        await analyzer.analyse()
        for by, groups in (("none", {None}), ("namespace", {"ml", "team-a", "team-b"}), ("node", {"node-0", "node-9"})):
            chart = await v1(analyzer, f"history/classes?range=2h&group_by={by}")
            assert {column["group"] for column in chart["columns"]} == groups
            assert all(len(column["gpus"]) == len(chart["times"]) for column in chart["columns"])
            assert (states(chart)["history"], chart["source"]) == ("ok", "analyses")
        mine = await v1(analyzer, "history/classes?range=2h&namespace=team-a")
        last = [newest(column["gpus"]) for column in mine["columns"]]
        assert [round(value, 2) for value in last if value] == [0.5]  # half of the GPU that two share
        one = await v1(analyzer, f"history/series?range=1h&gpu_id={uuid(0)}&quantity=use,memory_used")
        assert {column["quantity"]: newest(column["values"]) for column in one["columns"]} == {
            "use": 0.95,
            "memory_used": pytest.approx(40.0 * GIB, abs=100),  # a mean of pieces, in floating point
        }
        pod = await v1(analyzer, "history/series?range=1h&namespace=team-a&pod=web-a&quantity=memory_used")
        assert [newest(column["values"]) for column in pod["columns"]] == [pytest.approx(4.0 * GIB, abs=100)]
        assert (await v1(analyzer, "overview"))["waste"] is not None


@pytest.mark.attack
async def test_a_flood_of_charts_does_not_fill_the_queue_of_the_store(tmp_path):
    """Each request asks for another chart. The store sees two of them at once, so that results can still be saved."""
    flags = {**HOURLY, "analyzer.history": str(tmp_path / "results.db"), "analyzer.rate_limit": 1e6}
    async with running(source(), **flags) as analyzer:
        await analyzer.analysed()
        most, now, let_go = [0], [0], asyncio.Event()

        async def points(_):
            now[0] += 1
            most[0] = max(most[0], now[0])
            await let_go.wait()
            now[0] -= 1
            return []

        analyzer.analyzer.points = points
        charts = [asyncio.create_task(v1(analyzer, f"history/classes?range={n}m")) for n in range(1, 100)]
        rejected = await until(lambda: [one for one in charts if one.done()])
        let_go.set()
        answers = await asyncio.gather(*charts)
        assert most[0] <= 2
        assert rejected
        down = [part for answer in answers for part in answer["parts"] if part["state"] == "down"]
        assert {part["code"] for part in down} <= {"HISTORY_DOWN", "QUERY_TIMEOUT"}


async def test_without_a_store_charts_are_empty_and_say_why(fleet):
    for path in ("history/classes", "history/series"):
        chart = await v1(fleet, path)
        assert (chart["times"], chart["columns"], chart["source"], states(chart)) == (
            [],
            [],
            "none",
            {"history": "absent"},
        )


async def test_every_code_has_words_in_both_languages(fleet):
    words = await v1(fleet, "words")
    assert all(word["name"]["en"] and word["name"]["zh"] for found in words.values() for word in found)
    rows = (await v1(fleet, "gpus"))["rows"]
    for kind in ("use_class", "status", "verdict"):
        assert {row[kind] for row in rows} <= {word["code"] for word in words[kind]}
