"""The low tenants of an analysis: each with numbers that are its own, or those of the GPU that only is measured."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.store.fleets import gpu, tenant
from vgpuscope.model.analysis import Analysis, Window
from vgpuscope.views.fleet.low_parts import control_body, low_parts
from vgpuscope.views.fleet.results.results import ResultRow, rows

LOW: dict[str, Any] = {"verdict": "in_use", "status": "low", "score": 15.0}


def row(*pods: str, **more) -> ResultRow:
    """A low GPU with tenants of whom nothing is measured."""
    found = gpu(0, tenants=tuple(tenant(pod) for pod in pods))
    analysis = Analysis(number=1, started=600, seconds=1, window=Window(begin=0, end=600, interval=30), gpus=(found,))
    [made] = rows(analysis)
    tenants = tuple(replace(one, own_numbers=False, verdict="unknown", status="unknown") for one in made.tenants)
    if len(tenants) == 1:
        tenants = tuple(replace(one, **(LOW | more)) for one in tenants)
    return replace(made, tenants=tenants, **(LOW | more))


def pods(*found: ResultRow, **more) -> list[str]:
    return [part.pod for part in low_parts(found, threshold=20, **more).low]


def test_a_verdict_that_is_not_known_is_never_low_whatever_its_score():
    assert pods(row("a")) == ["a"]
    assert pods(row("a", verdict="unknown")) == []
    assert low_parts([row("a", verdict="unknown")], threshold=20).in_use == frozenset()


def test_every_tenant_of_a_shared_gpu_that_only_is_measured_as_a_whole_has_its_numbers():
    found = low_parts([row("a", "b")], threshold=20).low
    assert {part.pod: (one.pod, one.score) for part, one in found.items()} == {"a": ("a", 15.0), "b": ("b", 15.0)}
    busy = low_parts([row("a", "b", score=60.0, status="normal")], threshold=20)
    assert (busy.low, {part.pod for part in busy.in_use}) == ({}, {"a", "b"})


def test_only_those_of_the_verdict_idle_can_be_asked_for():
    assert pods(row("a"), only_idle=True) == []
    assert pods(row("a", verdict="idle"), only_idle=True) == ["a"]


@pytest.mark.parametrize(("score", "sent"), [(11.449, 11.4), (0.04, 0.0), (None, None)])
def test_a_call_has_the_score_as_results_show_it(score, sent):
    body = control_body(
        gpu_id="GPU-1", pod="nb", namespace="ml", hostname="gpu-1", score=score, status="idle", at=1_761_474_600.5
    )
    assert (body["score"], body["timestamp"]) == (sent, "2025-10-26T10:30:00")
