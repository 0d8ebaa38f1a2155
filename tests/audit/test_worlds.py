"""Random fleets: what pages show is what the plan adds up to, for callers of all namespaces, of one and of two.

Run more of them by `AUDIT_WORLDS=200 pytest tests/audit/test_worlds.py`; one of them by `AUDIT_SEED=17`.
"""

import math
import os
from typing import Any

import msgspec
import pytest

from tests.audit import truth
from tests.audit.known import unknown
from tests.audit.plan import plan
from tests.audit.stage import Caller, World, audited, world

CALLERS: tuple[Caller, ...] = ("all", "mine", "two")
SEEDS = range(1, 11)
if "AUDIT_SEED" in os.environ:
    SEEDS = range(int(os.environ["AUDIT_SEED"]), int(os.environ["AUDIT_SEED"]) + 1)
elif "AUDIT_WORLDS" in os.environ:
    SEEDS = range(1, int(os.environ["AUDIT_WORLDS"]) + 1)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_fleet_is_shown_as_it_is(seed: int) -> None:
    async with world(plan(seed)) as found:
        assert await differences(found) == []
        for caller in CALLERS:
            report = await audited(found, caller=caller)
            assert sum(check.compared for check in report.checks) > 100
            assert unknown(msgspec.to_builtins(report)["differences"]) == []


async def differences(found: World) -> list[str]:
    """Where the administrator's pages do not show what the plan adds up to."""
    plan_, wrong = found.plan, list[str]()
    overview = await found.get("/api/v1/overview")
    wrong += _compared("fleet", truth.fleet(plan_), overview["now"])
    wrong += _compared("overview", truth.counts(plan_), overview)
    for path, rows in (("nodes", truth.nodes(plan_)), ("namespaces", truth.namespaces(plan_))):
        shown = {row["name"]: row for row in (await found.get(f"/api/v1/{path}"))["rows"]}
        if shown.keys() != rows.keys():
            wrong.append(f"{path}: {sorted(shown)} are shown, {sorted(rows)} are there")
        for name in shown.keys() & rows.keys():
            wrong += _compared(f"{path[:-1]} {name}", rows[name], shown[name])
    waste = await found.get("/api/v1/waste?since=72h&group_by=namespace&limit=1000")
    wrong += _compared("waste", {"gpu_hours": truth.gpu_hours(plan_)}, waste, within=0.01)
    by_namespace = {row["namespace"]: row for row in waste["rows"]}
    for name, (held, idle) in truth.held_hours(plan_).items():
        row = by_namespace.get(name, {"idle_gpu_hours": 0.0, "in_use_gpu_hours": 0.0, "unknown_gpu_hours": 0.0})
        hours = {
            "idle": row["idle_gpu_hours"],
            "held": sum(row[f"{one}_gpu_hours"] for one in ("idle", "in_use", "unknown")),
        }
        wrong += _compared(f"waste of {name}", {"held": held, "idle": idle}, hours, within=0.01)
    return wrong + await _charted(found) + await _scoped(found)


async def _charted(found: World) -> list[str]:
    """Where the last step of a chart is not what the pages show now: the fleet stands still."""
    now = (await found.get("/api/v1/overview"))["now"]
    subjects = [("", {name: now[name] for name in ("use", "power")})]
    for path, quantities in (("nodes", ("use", "power", "memory_used")), ("namespaces", ("power", "memory_used"))):
        rows = (await found.get(f"/api/v1/{path}"))["rows"]
        named = [row for row in rows if row["name"]]  # the pods of a process may not be known
        subjects += [(f"&{path[:-1]}={row['name']}", {one: row[one] for one in quantities}) for row in named]
    wrong = []
    for subject, shown in subjects:
        columns = (await found.get(f"/api/v1/history/series?range=1h&points=60{subject}"))["columns"]
        drawn = {one["quantity"]: [value for value in one["values"] if value is not None] for one in columns}
        last = {name: (drawn[name] or [None])[-1] for name, value in shown.items() if value is not None}
        wrong += _compared(f"chart of {subject}", {name: shown[name] for name in last}, last, within=2e-3)
    return wrong


async def _scoped(found: World) -> list[str]:
    """Where the pages of a caller of one namespace differ from what the plan adds up to."""
    mine, name = found.mine, found.namespace
    overview = await found.get("/api/v1/overview", mine)
    rows = {row["name"]: row for row in (await found.get("/api/v1/namespaces", mine))["rows"]}
    true = truth.namespaces(found.plan).get(name)
    if rows.keys() - {name} or (true is not None) != (name in rows):
        return [f"caller of {name}: sees the namespaces {sorted(rows)}"]
    if true is None:
        return []
    wrong = _compared(f"caller of {name}, namespace", true, rows[name])
    totals = {part: true[part] for part in ("tenants",)}
    wrong += _compared(f"caller of {name}, overview", totals, overview)
    held = {"gpus": true["gpus"], "gpus_or_instances": true["gpus_or_instances"], "pending_pods": true["pending_pods"]}
    return wrong + _compared(f"caller of {name}, fleet", held, overview["now"])


def _compared(subject: str, true: dict[str, float], shown: dict[str, Any], *, within: float = 0.0) -> list[str]:
    wrong = []
    for name, value in true.items():
        found: Any = shown
        for part in name.split("."):
            found = found.get(part, 0 if "." in name else None)
        same = found is not None and math.isclose(
            found, value, rel_tol=1e-3, abs_tol=max(within, 0.3 if name == "power" else 1e-9)
        )
        if not same:
            wrong.append(f"{subject}: {name} is {found}, by the plan {value}")
    return wrong
