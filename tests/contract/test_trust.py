"""The worst kinds of the labelled bench: a real Prometheus, a real analyzer, and workloads whose truth is known.

`make bench BENCH=trust` has all kinds, other stores and own scrapes; docs/performance.md has its figures.
"""

import pytest

from bench.trust_feed import world
from bench.trust_judge import score
from bench.trust_kinds import KINDS
from bench.trust_measure import OURS, PROMETHEUS, in_time
from tests.needed import needed

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("trust")]

WORST = (
    "one burst, one sample",
    "video, encoding only",
    "360 W and utilisation 0, the limit is not exported",
    "stalled collective: utilisation 100 %, power as if idle",
    "handover, busy to idle",
    "a pod of the same name takes over, with another UID",
    "a hole of 5 minutes in a job",
    "the beginning of the window is missing",
    "the exporter died 4 minutes ago",
    "HA replicas, both have the same hole",
    "lost GPU, XID 79",
    "DCGM 4.7 names, a burst of 60 %",
    "MIG, utilisation 0 is exported for every instance",
    "MIG, the agent has GPM, a seventh of the GPU works a little",
    "MIG, the agent has GPM, an instance only decodes video",
    "MIG, GPM was switched off 4 minutes ago",
    "MIG, the agent reads a dcgm-exporter, one busy, one idle",
    "one tenant prepares data, the other computes",
    "HAMi: a worker, a notebook that does nothing, and a pod that has not started",
)
IDLE = (
    "idle, nothing held",
    "idle, a notebook holds 20 GiB",
    "HAMi: all tenants do nothing",
    "MIG, the agent has GPM, all idle, one holds nearly nothing",
    "MIG, the agent reads a dcgm-exporter, both idle",
    "loads data: GPU idle, memory held, CPUs busy",
    "prepares data; the driver does not tell processes apart",
    "one tenant prepares data, the other is abandoned",
    "abandoned notebook with quiet CPUs",
)
DOWN = "Prometheus was down for 5 minutes"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Every judgement, by kind: of one analysis and of the third of a service."""
    needed("prometheus", package="prometheus")
    found: dict = {}
    for name, kinds in (("usual", frozenset((*WORST, *IDLE))), ("restarted", frozenset((DOWN,)))):
        chosen = world(name, kinds=kinds)
        for one in in_time(PROMETHEUS, chosen, tmp_path_factory.mktemp(name))[OURS]:
            found.setdefault(one.kind, []).append(one)
    return found


@pytest.mark.parametrize("kind", [*WORST, DOWN])
def test_a_gpu_that_worked_or_was_not_seen_is_never_idle(said, kind):
    assert [one for one in said[kind] if one.wrong] == []


@pytest.mark.parametrize("kind", [*WORST, DOWN])
def test_the_status_is_idle_only_where_the_verdict_may_be(said, kind):
    assert [one for one in said[kind] if one.wrong_status] == []


@pytest.mark.parametrize("kind", IDLE)
def test_an_idle_gpu_is_found_whoever_exports_it_and_however_often_it_is_scraped(said, kind):
    assert [one for one in said[kind] if one.missed] == []


def test_an_idle_tenant_beside_a_busy_one_is_found(said):
    tenants = [one for one in said[WORST[-1]] if one.tenant]
    assert score(tenants).idle_tenants > 0
    assert [one for one in tenants if one.missed] == []


def test_every_kind_has_a_name_of_its_own():
    names = [one.name for one in KINDS]
    assert sorted(set(names)) == sorted(names)
