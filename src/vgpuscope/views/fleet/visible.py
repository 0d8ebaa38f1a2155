"""What a caller sees of the results: the GPUs on which its namespaces have tenants, with these tenants only.

The console's lists show the same GPUs, so their counts are the same.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from vgpuscope.model.caller import Caller
from vgpuscope.views.fleet.api import Summary
from vgpuscope.views.fleet.results.results import ResultRow


def visible_rows(rows: Iterable[ResultRow], caller: Caller) -> tuple[ResultRow, ...]:
    """The rows with own tenants, without tenants of other namespaces.

    A shared GPU stays one: its numbers are not a single tenant's.
    """
    if not caller.restricted:
        return tuple(rows)
    return tuple([found for row in rows if (found := _visible(row, caller)).tenants])


def visible_summary(summary: Summary, caller: Caller) -> Summary:
    """The figures; faults and targets name parts of the cluster that are not the caller's."""
    return replace(summary, faults=(), down_targets=()) if caller.restricted else summary


def _visible(row: ResultRow, caller: Caller) -> ResultRow:
    own = tuple([one for one in row.tenants if caller.sees(one.namespace)])
    return row if len(own) == len(row.tenants) else replace(row, tenants=own, namespace="", pod="", ai_analysis=None)
