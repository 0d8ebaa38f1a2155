"""A caller who sees some namespaces learns nothing about the pods of others."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.store import fleets
from vgpuscope.logic.console.details import scoped_ledger
from vgpuscope.logic.console.gpus import gpu_rows
from vgpuscope.logic.console.scope import allowed, findings_in, gpus_in, pods_in
from vgpuscope.model.analysis import Stat
from vgpuscope.model.caller import Caller
from vgpuscope.model.cluster import Finding
from vgpuscope.model.console.gpus import LedgerRow, MemoryLedger
from vgpuscope.model.pending import PendingPod

MINE, THEIRS = frozenset({"mine"}), "theirs-secret"


def test_others_on_a_shared_gpu_are_a_sum_without_names():
    own: dict[str, Any] = {"own": True, "terms": {"mem_used": Stat(mean=4.0)}}
    tenants = [
        fleets.tenant("a", namespace="mine", **own),
        *(fleets.tenant(pod, namespace=THEIRS, owner=f"Job/{THEIRS}", **own) for pod in ("secret-b", "secret-c")),
    ]
    rows = gpu_rows(
        fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=tuple(tenants))), stale=False, cluster=None, facts=None
    )
    (row,) = gpus_in(rows, MINE)
    assert [one.pod for one in row.tenants] == ["a"]
    assert (row.others.tenants, row.others.memory_used) == (2, 8)
    assert b"secret" not in msgspec.json.encode(row)
    assert gpus_in(rows, None) == rows
    assert gpus_in(rows, frozenset({"nobody"})) == []


@pytest.mark.attack
@given(fleets.analyses(), st.sampled_from(("a", "ml", "日本")))
def test_no_name_of_another_namespace_is_sent(analysis, mine):
    """Every name of the others is made unmistakable first; a GPU, a node and a model are nobody's names."""
    gpus = tuple(
        replace(gpu, tenants=tuple(_marked(use, mine) for use in gpu.tenants), former=()) for gpu in analysis.gpus
    )
    rows = gpu_rows(replace(analysis, gpus=gpus), stale=False, cluster=None, facts=None)
    shown = gpus_in(rows, frozenset({mine}))
    assert b"OTHERS-" not in msgspec.json.encode(shown)
    assert {one.namespace for row in shown for one in row.tenants} <= {mine}
    hidden = sum(len(row.tenants) for row in rows if any(t.namespace == mine for t in row.tenants))
    assert sum(len(row.tenants) + (row.others.tenants if row.others else 0) for row in shown) == hidden


def _marked(use, mine):
    who = use.tenant
    if who.namespace == mine:
        return use
    names = {name: f"OTHERS-{getattr(who, name)}" for name in ("namespace", "pod", "container", "pod_uid")}
    return replace(use, tenant=replace(who, **names), owner=f"OTHERS-{use.owner}")


def test_a_ledger_keeps_its_sum_and_loses_the_names():
    rows = (
        LedgerRow(kind="container", memory=5, namespace="mine", pod="a", container="c"),
        LedgerRow(kind="container", memory=7, namespace=THEIRS, pod="b", container="c"),
        LedgerRow(kind="container", memory=8, namespace=THEIRS, pod="c", container="c"),
        LedgerRow(kind="free", memory=80),
    )
    found = scoped_ledger(MemoryLedger(total=100, rows=rows), MINE)
    assert sum(row.memory for row in found.rows) == found.total == 100
    assert THEIRS not in msgspec.json.encode(found).decode()


def test_waiting_pods_and_findings_of_others_are_left_out():
    pods = [PendingPod(namespace=name, pod="p", pod_uid="u") for name in ("mine", THEIRS)]
    assert [pod.namespace for pod in pods_in(pods, MINE)] == ["mine"]
    found = [Finding(kind="ghost", node="n", namespace=name, pod="p") for name in ("mine", THEIRS, "")]
    assert [one.namespace for one in findings_in(found, MINE)] == ["mine"]


@pytest.mark.parametrize(
    ("forced", "asked", "seen"),
    [
        (None, (), None),
        (None, ("a", "b"), {"a", "b"}),
        (None, ("",), None),
        (("a",), ("",), {"a"}),
        (("a",), (), {"a"}),
        (("a",), ("a", "b"), {"a"}),
        (("a",), ("b",), set()),
        ((), (), set()),
    ],
)
def test_a_role_that_is_bound_to_namespaces_cannot_ask_for_more(forced, asked, seen):
    found = allowed(Caller(name="x", namespaces=forced), asked)
    assert found == (None if seen is None else frozenset(seen))
