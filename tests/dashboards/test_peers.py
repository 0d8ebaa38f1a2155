"""Queries of other programs and published dashboards, answered by a real Prometheus over the demo's services.

`peers` has each query as its program sends it, with its source. Every one has data, or a reason; and what they say of a
GPU is what our own metrics say of it, in their units.
"""

import json
import re
from collections.abc import Callable
from string import Template
from typing import Any

import pytest

from tests.console.processes import eventually
from tests.dashboards.engine import Engine, Series
from tests.paths import TESTS

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("dashboards")]
PEERS = {path.stem: json.loads(path.read_text()) for path in (TESTS / "dashboards" / "peers").glob("*.json")}
WEBUI = PEERS["hami_webui"]
BOARDS = [(name, query) for name, peer in PEERS.items() for query in peer.get("queries", ())]
RELEASES = json.loads((TESTS / "fixtures" / "hami" / "metric_names.json").read_text())


def ids(found: Any) -> str:
    return f"{found['title']}" if isinstance(found, dict) else str(found)


def asked(engine: Engine, expression: str, at: float | None = None, **values: str) -> list[Series]:
    """The answer to a query; a variable that is not given is Grafana's "All"."""
    named = set(re.findall(r"\$(\w+)", expression))
    return engine.ask(Template(expression).substitute(dict.fromkeys(named, ".*") | values), at=at)


def settled(check: Callable[[], object]) -> None:
    """The check holds within two minutes: a pod may have ended between two of its queries."""
    why: list[AssertionError] = []

    def holds() -> bool:
        try:
            check()
        except AssertionError as e:
            why[:] = [e]
            return False
        return True

    try:
        eventually(holds)
    except AssertionError:
        raise (why[0] if why else AssertionError("not checked")) from None


@pytest.mark.parametrize(("board", "query"), BOARDS, ids=ids)
def test_every_query_of_a_published_dashboard_has_data(engine: Engine, board: str, query: dict[str, Any]):
    def check():
        assert asked(engine, query["expr"]), f"{board}: {query['expr']}"

    settled(check)


@pytest.mark.parametrize("name", sorted({name for names in RELEASES.values() for name in names}))
def test_every_name_of_every_release_of_hami_has_data(engine: Engine, name: str):
    def check():
        assert engine.ask(name)

    settled(check)


def gpus(engine: Engine, at: float) -> list[str]:
    """One GPU of each node and model that is not divided: of MIG instances dcgm-exporter has series of their own."""
    found = engine.ask('vgpuscope_gpu_info{replica="a"} unless on (gpu_uuid) vgpuscope_mig_info', at=at)
    return list({(one.labels["node"], one.labels["model"]): one.labels["gpu_uuid"] for one in found}.values())


def now(engine: Engine) -> float:
    """A moment whose samples are all there."""
    return engine.ask("vector(time())")[0].value - 3


@pytest.mark.parametrize("query", WEBUI["gpu"], ids=ids)
def test_what_hami_webui_shows_of_a_gpu_is_what_we_measure(engine: Engine, query: dict[str, Any]):
    def check():
        at, compared = now(engine), 0
        for uuid in gpus(engine, at):
            here = f'vgpuscope_gpu_info{{gpu_uuid="{uuid}"}}'
            own = engine.ask(f"avg(({query['ours']}) and on (gpu_uuid) {here})", at=at)
            theirs = asked(engine, query["expr"], at, uuid=uuid)
            assert bool(theirs) is bool(own), uuid
            if own:
                mean = sum(one.value for one in theirs) / len(theirs)  # of two replicas
                assert mean == pytest.approx(own[0].value * query["scale"], rel=1e-6, abs=1e-6), uuid
                assert all(theirs[0].labels.get(label) for label in query.get("labels", ()))
                compared += 1
        assert compared or query["title"] == "fan"  # GPUs of servers have no fan

    settled(check)


def test_hami_webui_finds_the_last_xid_of_every_gpu(engine: Engine):
    (query,) = WEBUI["gpu_state"]

    def check():
        at = now(engine)
        assert all(asked(engine, query["expr"], at, uuid=uuid) for uuid in gpus(engine, at))

    settled(check)


@pytest.mark.parametrize("query", WEBUI["container"], ids=ids)
def test_what_hami_webui_shows_of_a_container_is_what_we_measure(engine: Engine, query: dict[str, Any]):
    labels = {"uuid": "gpu_uuid", "namespace": "namespace", "pod": "pod", "container": "container"}
    shown = 'vgpuscope_vgpu_memory_used_bytes{replica="a"}'

    def check():
        at = now(engine)
        old = f" and {shown} offset {query['older_than']}" if "older_than" in query else ""
        rows = engine.ask(f"{shown}{old}", at=at)
        assert rows
        for row in rows:
            theirs = asked(engine, query["expr"], at, **{name: row.labels[ours] for name, ours in labels.items()})
            assert theirs, row.labels
            if "ours" in query:
                pairs = ", ".join(f'{ours}="{row.labels[ours]}"' for ours in labels.values())
                (own,) = engine.ask(f"avg({query['ours']}{{{pairs}}})", at=at)
                assert theirs[0].value == own.value

    settled(check)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("sum by (replica) (DCGM_FI_DEV_POWER_USAGE)", "sum by (replica) (vgpuscope_gpu_power_watts)"),
        ("avg by (replica) (DCGM_FI_DEV_GPU_TEMP)", "avg by (replica) (vgpuscope_gpu_temperature_celsius)"),
        (
            "sum by (replica) (DCGM_FI_DEV_FB_USED{GPU_I_ID=''}) * 2^20",
            "sum by (replica) (vgpuscope_gpu_memory_used_bytes unless on (gpu_uuid) vgpuscope_mig_info)",
        ),
    ],
)
def test_sums_and_means_over_all_gpus_count_each_once(engine: Engine, theirs: str, ours: str):
    def check():
        at = now(engine)
        own = {one.labels["replica"]: one.value for one in engine.ask(ours, at=at)}
        found = {one.labels["replica"]: pytest.approx(one.value) for one in engine.ask(theirs, at=at)}
        assert own == found
        assert len(own) == 2

    settled(check)


def test_the_demo_shows_what_gpu_allocation_txt_does(engine: Engine):
    """On the node with the file, a tenant of a time-sliced GPU may use the GPU's memory divided by the ratio."""

    def check():
        at = now(engine)
        (node,) = engine.ask('vgpuscope_virtualization_ratio{replica="a"} > 1', at=at)
        (pod,) = engine.ask('pod_total_gpu_memory{pod="web-a-0", replica="a"}', at=at)
        (gpu,) = engine.ask(
            f'vgpuscope_gpu_memory_total_bytes{{replica="a"}} and on (gpu_uuid) '
            f'vgpuscope_gpu_info{{node="{node.labels["node"]}", gpu_index="{pod.labels["gpu_id"]}"}}',
            at=at,
        )
        assert pod.value == pytest.approx(gpu.value / 2**20 / node.value)

    settled(check)
