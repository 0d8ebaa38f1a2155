"""One object that nobody expected costs itself: the other objects, nodes and parts of the page go on."""

import asyncio
import logging

import pytest

from tests.contract.clusterrun import holder, registered
from tests.formats.test_strangers import CLAIMS, EVENT, KINDS, NODE, POD, QUOTA, compact
from tests.fuzz import survives
from tests.services.cluster.badapi import bad_api
from tests.services.cluster.test_kept import feed
from tests.waiting import until
from vgpuscope.catalog import cluster as m
from vgpuscope.config import ClusterConfig
from vgpuscope.formats.kube import objects
from vgpuscope.model.allocation import Controller
from vgpuscope.model.errors import KubeForbidden, KubeUnreadable, SourceDown
from vgpuscope.services.cluster import owners as owner_search
from vgpuscope.services.cluster import process as cluster_process
from vgpuscope.services.cluster.process import ClusterExporter

pytestmark = pytest.mark.attack
SOON = 60.0


def listed(**more):
    made = ClusterExporter(ClusterConfig(), **more)
    for kind in made._kinds:
        kind._take_list({})
    return made


@pytest.fixture
def exporter():
    made = listed()
    for kind in made._kinds:
        kind._units.count = made.counters.count
    return made


async def page(exporter):
    await exporter._settle_all()
    return exporter._page.text().decode()


def errors(caplog):
    return [record.fields["unit"] for record in caplog.records if record.levelno >= logging.ERROR]


def breaks_for(monkeypatch, owner, name, bad):
    """A function of ours that breaks a promise for arguments in which `bad` is."""
    usual = getattr(owner, name)

    def broken(*args, **more):
        if bad in repr((args, more)):
            raise ZeroDivisionError("a broken promise of our own")
        return usual(*args, **more)

    monkeypatch.setattr(owner, name, broken)


async def test_an_unexpected_error_about_one_pod_is_its_own_with_its_name_and_counted(exporter, monkeypatch, caplog):
    breaks_for(monkeypatch, exporter._state, "apply", "bad")
    feed(exporter, "nodes", registered("gpu-1", "GPU-a"))
    feed(exporter, "pods", holder("bad", "gpu-1", "GPU-a"), holder("good", "gpu-1", "GPU-a", memory=7))
    shown = await page(exporter)
    assert f"{m.HOLDER_MEMORY.name}{{" in shown
    assert 'pod="good"' in shown
    assert 'pod="bad"' not in shown
    assert errors(caplog) == ["pods uid-bad"]
    assert exporter.counters.errors["INTERNAL"] == 1


async def test_a_pod_that_breaks_while_it_is_deleted_is_gone_all_the_same(exporter, monkeypatch, caplog):
    feed(exporter, "nodes", registered("gpu-1", "GPU-a"))
    feed(exporter, "pods", holder("bad", "gpu-1", "GPU-a"))
    breaks_for(monkeypatch, exporter._scheduling, "drop_pod", "uid-bad")
    (kind,) = (kind for kind in exporter._kinds if kind.name == "pods")
    kind._take("uid-bad", None)
    assert 'pod="bad"' not in await page(exporter)
    assert errors(caplog) == ["pod uid-bad"]


async def test_an_unexpected_error_about_one_node_leaves_it_out_and_shows_the_others(exporter, monkeypatch, caplog):
    feed(exporter, "nodes", registered("gpu-1", "GPU-a"), registered("gpu-2", "GPU-b"))
    assert "GPU-a" in await page(exporter)
    breaks_for(monkeypatch, exporter._state, "node", "gpu-1")
    feed(exporter, "nodes", registered("gpu-1", "GPU-a", "GPU-c"), registered("gpu-2", "GPU-b", "GPU-d"))
    shown = await page(exporter)
    assert ("GPU-a" in shown, "GPU-d" in shown) == (False, True)
    assert errors(caplog) == ["node gpu-1"]


@pytest.mark.parametrize(
    ("part", "unit"),
    [
        ("_settle_cluster", "metrics of the cluster"),
        ("_settle_pods", "metrics of waiting pods"),
        ("_report", "report of nodes"),
        ("_settle", "changes"),
    ],
)
async def test_an_unexpected_error_in_one_part_of_the_page_is_logged_once_and_the_loop_goes_on(
    exporter, monkeypatch, caplog, part, unit
):
    breaks_for(monkeypatch, exporter, part, "")
    for _ in range(3):
        await exporter._settle_all()
    assert errors(caplog).count(unit) == 1
    assert exporter.counters.errors["INTERNAL"] >= 3


async def test_an_unexpected_error_in_a_watch_lists_again_and_ends_nothing(tmp_path, caplog):
    left = [True]

    def broken(line):
        if left and left.pop():
            raise ZeroDivisionError("a broken promise of our own")
        return objects.decode_cluster_pod_event(line)

    made = ClusterExporter(ClusterConfig(), retry=(0.01, 0.01))
    (kind,) = (kind for kind in made._kinds if kind.name == "pods")
    kind._watch._decode_event = broken
    with bad_api(tmp_path) as api:
        following = asyncio.create_task(kind.follow(api.kubeconfig, made.counters.count))
        await until(lambda: kind.listed)
        api.put(holder("first", "gpu-1", "GPU-a"))
        await until(lambda: made._state.pods)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert errors(caplog) == ["watch of pods"]
    assert made.counters.errors == {"INTERNAL": 1}


async def test_an_unexpected_error_about_a_list_makes_it_be_listed_again(tmp_path, caplog):
    made = ClusterExporter(ClusterConfig(), retry=(0.01, 0.01))
    (kind,) = (kind for kind in made._kinds if kind.name == "pods")
    left, usual = [True], kind._watch._on_list

    def broken(found):
        if left and left.pop():
            raise ZeroDivisionError("a broken promise of our own")
        usual(found)

    kind._watch._on_list = broken
    with bad_api(tmp_path) as api:
        api.put(holder("first", "gpu-1", "GPU-a"))
        following = asyncio.create_task(kind.follow(api.kubeconfig, made.counters.count))
        await until(lambda: made._state.pods)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert errors(caplog) == ["watch of pods"]


# ── owners ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def owned(name, kind):
    made = holder(name, "gpu-1", "GPU-a")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": f"owner-{name}", "controller": True}
    ]
    return made


@pytest.mark.parametrize("error", [KubeUnreadable("503 the aggregated API is down"), ZeroDivisionError("ours")])
async def test_a_pod_whose_owner_cannot_be_read_hides_no_other_owner(exporter, monkeypatch, tmp_path, error):
    async def found(api, namespace, one):
        if one.kind == "Bad":
            raise error
        return Controller("example.com/v1", "Notebook", "top", "top") if one.name != "top" else None

    monkeypatch.setattr(owner_search, "controller_of", found)
    feed(exporter, "pods", owned("bad", "Bad"), *(owned(f"good-{n}", "Good") for n in range(5)))
    with bad_api(tmp_path) as api:
        search = owner_search.OwnerSearch(exporter._owners, api.kubeconfig, failed=exporter.counters.count)
        await search._ask_all(search._wanted())
        await search._ask_all(search._wanted())
        assert search._wanted() == []  # the bad one is asked for later
    owners = dict(exporter._owners.owners())
    assert {owners[f"ml/good-{n}"] for n in range(5)} == {"Notebook/top"}
    assert owners["ml/bad"] == "Bad/bad"
    assert sum(exporter.counters.errors.values()) == 1


async def test_if_the_api_server_is_down_a_search_for_owners_ends_soon(exporter, monkeypatch, tmp_path):
    asked = []

    async def down(api, namespace, one):
        asked.append(one)
        raise SourceDown("no answer")

    monkeypatch.setattr(owner_search, "controller_of", down)
    feed(exporter, "pods", *(owned(f"pod-{n}", "Any") for n in range(200)))
    with bad_api(tmp_path) as api:
        search = owner_search.OwnerSearch(exporter._owners, api.kubeconfig, failed=exporter.counters.count)
        assert await search._ask_all(search._wanted()) == owner_search._RETRY
    assert len(asked) <= owner_search._MOST_ERRORS + owner_search._AT_ONCE


@pytest.mark.parametrize(
    ("error", "rest"),
    [(KubeUnreadable("503"), owner_search._LATER), (KubeForbidden("not allowed"), owner_search._AGAIN)],
)
async def test_an_owner_that_could_not_be_read_is_requested_again_after_its_rest(
    exporter, monkeypatch, tmp_path, error, rest
):
    async def refused(api, namespace, one):
        raise error

    now = 1000.0
    monkeypatch.setattr(owner_search, "controller_of", refused)
    feed(exporter, "pods", owned("pod", "Any"))
    with bad_api(tmp_path) as api:
        search = owner_search.OwnerSearch(
            exporter._owners, api.kubeconfig, failed=exporter.counters.count, clock=lambda: now
        )
        await search._ask_all(search._wanted())
    now += rest - 1.0
    assert search._wanted() == []
    now += 1.0
    assert [one.controller.name for one in search._wanted()] == ["pod"]


# ── whatever is written into an object ──────────────────────────────────────────────────────────────────────────────

OBJECTS = {
    "nodes": NODE,
    "pods": POD,
    "resourcequotas": QUOTA,
    "events": EVENT,
    "resourceslices": KINDS["slices"][1][0],
    "resourceclaims": CLAIMS[0],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_any_object_that_is_read_can_be_shown(name):
    """All of them together, one of them changed: nothing of it is unexpected, up to the page and the API."""
    made = listed()
    watches = {kind.name: kind for kind in made._kinds}
    for other, found in OBJECTS.items():
        watches[other]._watch.take(watches[other]._watch._decode_event(compact({"type": "ADDED", "object": found})))
    watch, failed = watches[name]._watch, []
    for kind in made._kinds:
        kind._units.failed = lambda unit, error: failed.append((unit, error))
    made._units.failed = lambda unit, error: failed.append((unit, error))

    def shown(data):
        watch.take(watch._decode_event(data))
        asyncio.run(made._settle_all())
        made._page.text()
        assert not failed, failed

    line = compact({"type": "MODIFIED", "object": {"kind": KINDS_OF[name], **OBJECTS[name]}})
    survives(shown, line, KubeUnreadable, cases=len(OBJECTS))


KINDS_OF = {
    "nodes": "Node",
    "pods": "Pod",
    "resourcequotas": "ResourceQuota",
    "events": "Event",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
}


async def test_a_watch_that_broke_and_is_back_before_the_next_look_is_logged(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    exporter = listed(retry=(0.001, 0.001))
    await exporter._settle_all()
    pods = next(kind for kind in exporter._kinds if kind.name == "pods")
    back = asyncio.Event()

    async def once(_):
        if not exporter.counters.errors:
            raise KubeUnreadable("the connection was closed")
        pods._alive()
        back.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(pods, "_once", once)
    follow = asyncio.create_task(pods.follow(None, exporter.counters.count))
    async with asyncio.timeout(SOON):
        await back.wait()
    for _ in range(2):
        await exporter._settle_all()
    follow.cancel()
    told = [(record.message, record.fields.get("error_code")) for record in caplog.records]
    assert told[-2:] == [("watch down", KubeUnreadable.code), ("watch up", None)]
    assert [word for word, _ in told].count("watch down") == 1


def test_the_age_of_a_watch_is_counted_by_the_clock_that_the_exporter_got():
    now = 1000.0
    kind = ClusterExporter(ClusterConfig(), clock=lambda: now)._kinds[0]
    assert kind.state().age_seconds is None
    kind._alive()
    now += 45.0
    assert kind.state().age_seconds == 45.0


async def test_while_changes_keep_coming_the_page_is_updated_after_the_longest_pause():
    now = 1000.0
    exporter = ClusterExporter(ClusterConfig(), clock=lambda: now)
    pausing = asyncio.create_task(exporter._pause(0.0))
    for _ in range(100):
        exporter._kinds[0].told += 1
        await asyncio.sleep(0)
        assert not pausing.done()
    now += cluster_process._LONGEST_PAUSE
    exporter._kinds[0].told += 1
    await asyncio.sleep(0)
    assert pausing.done()
