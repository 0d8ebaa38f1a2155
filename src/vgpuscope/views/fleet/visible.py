"""What a caller sees of the results: every GPU, but of the tenants only those in the caller's namespaces."""

from collections.abc import Iterable

from msgspec.structs import replace

from vgpuscope.model.caller import Caller
from vgpuscope.views.fleet.api import Summary
from vgpuscope.views.fleet.results.results import ResultRow


def visible_rows(rows: Iterable[ResultRow], caller: Caller) -> tuple[ResultRow, ...]:
    """The rows without tenants of other namespaces. A shared GPU stays one: its numbers are not a single tenant's."""
    return tuple([_visible(row, caller) for row in rows])


def visible_summary(summary: Summary, caller: Caller) -> Summary:
    """The figures; faults and targets name parts of the cluster that are not the caller's."""
    return replace(summary, faults=(), down_targets=()) if caller.restricted else summary


def _visible(row: ResultRow, caller: Caller) -> ResultRow:
    own = tuple([one for one in row.tenants if caller.sees(one.namespace)])
    return row if len(own) == len(row.tenants) else replace(row, tenants=own, namespace="", pod="", ai_analysis=None)
