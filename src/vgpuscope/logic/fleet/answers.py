"""What the rows of answers say about targets and about the number of series."""

from collections.abc import Iterable, Mapping
from math import inf

from vgpuscope.formats.prom.promql import VectorRow, decode_labels, decode_named
from vgpuscope.knowledge.exporters import GROUPS, Group
from vgpuscope.logic.fleet.series_table import target_of
from vgpuscope.model.analysis import Target


def clocks(present: frozenset[str]) -> dict[str, Group]:
    """The metrics whose number of series is that of their group."""
    return {name: group for group in GROUPS for name in group.clocks & present}


def group_sizes(rows: Iterable[VectorRow], groups: Mapping[str, Group]) -> dict[tuple[str, str], int]:
    """The number of series of each group, from the counts of its clocks; without those that are no number."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        group, count = groups.get(decode_named(row.metric)[0]), row.value[1]
        if group and 0 < count < inf:
            key = (group.schema, group.kind)
            found[key] = max(found.get(key, 0), int(count))
    return found


def targets_of(rows: Iterable[VectorRow]) -> set[str]:
    """The scrape targets of some series."""
    return {target_of(decode_labels(row.metric)) for row in rows}


def fold_targets(found: Mapping[str, Target], rows: Iterable[VectorRow]) -> dict[str, Target]:
    """The targets by name; one that several jobs scrape is up if one of them reaches it."""
    known = dict(found)
    for row in rows:
        name = target_of(decode_labels(row.metric))
        up = row.value[1] == 1 or (name in known and known[name].up)
        known[name] = Target(name=name, up=up, reason="" if up else "its last scrape failed")
    return known
