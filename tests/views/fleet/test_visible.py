"""What a caller that is restricted to namespaces sees of one GPU and of the summary."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.model.analysis import Analysis, Fault, GpuUse, Target, Tenant, TenantUse, Window
from vgpuscope.model.caller import ANYONE, Caller
from vgpuscope.views.fleet.api import summary
from vgpuscope.views.fleet.results.results import rows, stats, units
from vgpuscope.views.fleet.visible import visible_rows, visible_summary

pytestmark = pytest.mark.attack

MINE = Caller(name="ann", namespaces=("mine",))
WINDOW = Window(begin=0.0, end=600.0, interval=30.0)

uses = st.lists(
    st.builds(
        TenantUse,
        tenant=st.builds(Tenant, namespace=st.sampled_from(["mine", "theirs"]), pod=st.sampled_from(["p-0", "p-1"])),
        owner=st.sampled_from(["", "Job/x"]),
        verdict=st.sampled_from(["idle", "in_use", "unknown"]),
    ).map(lambda use: msgspec.structs.replace(use, tenant=_named(use.tenant))),
    max_size=4,
).map(tuple)


def _named(tenant: Tenant) -> Tenant:
    """A pod whose name tells the namespace, so that it is found in any text."""
    return Tenant(namespace=tenant.namespace, pod=f"{tenant.namespace}-{tenant.pod}")


def analysis(*gpus: GpuUse, **more) -> Analysis:
    return Analysis(number=1, started=600.0, seconds=1.0, window=WINDOW, gpus=gpus, **more)


@given(uses, uses)
def test_no_namespace_but_ones_own_is_in_any_text(tenants, former):
    gpu = GpuUse(gpu_id="GPU-1", tenants=tenants, former=former)
    whole = rows(analysis(gpu))
    found = visible_rows(whole, MINE)
    shown = (found, [unit for row in found for unit in units(row)], stats(found, threshold=20, timestamp=None))
    assert b"theirs" not in msgspec.json.encode(shown)
    own = [use.tenant.pod for use in tenants if use.tenant.namespace == "mine"]
    assert [one.pod for row in found for one in row.tenants] == own
    assert [(row.shared, row.score) for row in found] == [(row.shared, row.score) for row in whole if own]


@given(uses, uses)
def test_who_is_not_restricted_sees_everything(tenants, former):
    gpu = GpuUse(gpu_id="GPU-1", tenants=tenants, former=former)
    assert visible_rows(rows(analysis(gpu)), ANYONE) == rows(analysis(gpu))


def test_the_summary_names_no_fault_and_no_target_of_others():
    fault = Fault(part="target http://theirs", code="SOURCE_DOWN", message="theirs does not answer")
    found = analysis(faults=(fault,), targets=(Target(name="http://theirs", up=False),))
    whole = summary(found, (), stats((), threshold=20, timestamp=None), stale=False, errors=0)
    shown = visible_summary(whole, MINE)
    assert b"theirs" not in msgspec.json.encode(shown)
    assert (shown.partial, shown.targets_down) == (True, 1)
    assert visible_summary(whole, ANYONE) == whole
