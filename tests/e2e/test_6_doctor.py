"""Faults that are made, and the codes by which doctor names them; then they are mended, and it names them no more."""

import json
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from tests.e2e.product import NAMESPACE, Product
from tests.native.scenario import UNKNOWN
from tools.cluster import layout

pytestmark = pytest.mark.e2e

LIBRARY, AWAY = layout.HOOK / "libvgpu.so", layout.HOOK / "libvgpu.so.away"


class Made(NamedTuple):
    """How a fault is made and mended."""

    make: Callable[[Product], object]
    mend: Callable[[Product], object]


def _scaled(deployment: str, replicas: int) -> Callable[[Product], object]:
    words = ("-n", NAMESPACE, "scale", f"deploy/{deployment}", f"--replicas={replicas}")
    return lambda product: product.cluster.kubectl(*words)


def _labelled(*labels: str) -> Callable[[Product], object]:
    return lambda product: product.cluster.kubectl("label", "node", layout.NODE, *labels)


FAULTS = {
    "GPU_UNHEALTHY": Made(lambda p: p.driver.lost(1).write(), lambda p: p.driver.heal().write()),
    "PLUGIN_GPU_UNHEALTHY": Made(lambda p: p.driver.lost(2).write(), lambda p: p.driver.heal().write()),
    "DRIVER_FAILED": Made(
        lambda p: p.driver.fail("nvmlDeviceGetHandleByIndex_v2", UNKNOWN).write(), lambda p: p.driver.heal().write()
    ),
    "PLUGIN_LIBRARY_MISSING": Made(lambda _: LIBRARY.rename(AWAY), lambda _: AWAY.rename(LIBRARY)),
    "PLUGIN_NOT_REGISTERED": Made(lambda p: p.cluster.stop_program("kubelet"), lambda p: p.cluster.start_kubelet()),
    "CLUSTER_EXPORTER_MISSING": Made(_scaled("vgpuscope-cluster", 0), _scaled("vgpuscope-cluster", 1)),
    "EXTENDER_DOWN": Made(_scaled("vgpuscope-extender", 0), _scaled("vgpuscope-extender", 2)),
    "ANALYZER_SOURCE_DOWN": Made(
        _labelled("gpu-", "vgpuscope.io/plugin-"), _labelled("gpu=on", "vgpuscope.io/plugin=on")
    ),
}
ALONE = ("DRIVER_FAILED", "PLUGIN_NOT_REGISTERED", "ANALYZER_SOURCE_DOWN")  # they hide others


@pytest.mark.parametrize("code", ALONE)
def test_doctor_names_a_fault_while_it_lasts(scheduling: Product, code: str) -> None:
    _made_and_mended(scheduling, [code])


def test_doctor_names_faults_of_different_services_at_the_same_time(scheduling: Product) -> None:
    _made_and_mended(scheduling, [code for code in FAULTS if code not in ALONE])


def _made_and_mended(product: Product, codes: list[str]) -> None:
    """Doctor names none of the codes, then all of them, then none."""
    product.wait(f"no {codes}", lambda: not _codes(product).intersection(codes))
    try:
        for code in codes:
            FAULTS[code].make(product)
        for code in codes:
            product.wait(code, partial(_names, product, code))
    finally:
        for code in codes:
            FAULTS[code].mend(product)
    product.wait(f"no {codes} any more", lambda: not _codes(product).intersection(codes))


def _names(product: Product, code: str) -> bool:
    return code in _codes(product)


def _codes(product: Product) -> set[str]:
    """By the analyzer's page: it can be read while the kubelet is down, which an exec needs."""
    report = json.loads(product.page("analyzer", 8080, "/api/v1/doctor"))
    return {finding["code"] for finding in report["findings"] if finding["status"] in {"fail", "warn"}}
