"""docs/security.md names, for every label, who can write it, and for every threat a test that exists."""

import re

import pytest

from tests.paths import REPOSITORY
from tools.writers.families import FAMILY_HELP
from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin

PAGE = (REPOSITORY / "docs" / "security.md").read_text()
PROCESSES = {
    "agent": agent.METRICS,
    "cluster exporter": cluster.METRICS,
    "analyzer": analyzer.METRICS,
    "extender": extender.METRICS,
    "device plugin": plugin.METRICS,
}
ALL = frozenset(FAMILY_HELP)
STRANGERS = {"tenant", "pod author", "exporter owner", "network neighbour", "reader", "operator"}


def labels(exposed):
    """What the labels hold, under our own names for it; one has a name in other families only."""
    named = {attribute for _, attribute in exposed.labels} | set(exposed.extra)
    return {"device_type" if name == "hami_type" else name for name in named}


def table(heading):
    """The rows of the table below a heading, as cells."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@pytest.mark.parametrize("process", PROCESSES)
def test_every_label_is_in_the_table_of_who_can_write_it(process):
    told = {name for who, cell, *_ in table("Who can write a label") if who == process for name in _code(cell)}
    for metric in PROCESSES[process]:
        for exposed in metric.exposed(ALL):
            assert labels(exposed) <= told, f"{exposed.name}: {labels(exposed) - told}"


def test_no_label_is_in_the_table_that_does_not_exist():
    for process, metrics in PROCESSES.items():
        exist = {name for metric in metrics for one in metric.exposed(ALL) for name in labels(one)}
        told = {name for who, cell, *_ in table("Who can write a label") if who == process for name in _code(cell)}
        assert told <= exist, f"{process}: {told - exist}"


def test_every_stranger_has_a_row_and_every_test_that_is_named_exists():
    rows = table("Threat model")
    assert {row[0] for row in rows} == STRANGERS
    for name in re.findall(r"`(tests/[^`]+)`", PAGE):
        path, _, test = name.partition("::")
        assert (REPOSITORY / path).exists(), name
        assert not test or f"def {test}(" in (REPOSITORY / path).read_text(), name


def test_every_threat_that_is_described_names_its_test():
    for row in table("Threat model"):
        assert bool(row[2]) == bool(row[3]) == ("`tests/" in row[4]), row


def _code(text):
    return re.findall(r"`([^`]+)`", text)
