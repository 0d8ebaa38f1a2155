"""How a quantity went through the window, as a real Prometheus and our own scrapes tell it."""

import math
import time
from typing import Any

import pytest

from tests.contract.promworld import prometheus, write
from vgpuscope.logic.fleet.scrape_window import Cell, Pages
from vgpuscope.model.analysis import Window
from vgpuscope.model.opinion import PartId
from vgpuscope.services.analyzer.sources.courses import read_courses
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

GIB = 1024.0**3
BURSTS = (0.0, 0.0, 60.0, 0.0, 0.0, 0.0, 0.0, 70.0, 0.0, 0.0)  # percent, for each minute of ten


def busy_in(begin: float, at: float) -> float:
    """The level of a moment by BURSTS; the minute that ends at a moment includes it."""
    return BURSTS[min(9, max(0, math.ceil((at - begin) / 60) - 1))]


def labels(name: str, number: int, **more: str) -> dict[str, str]:
    gpu = {"UUID": f"GPU-{number}", "gpu": str(number), "modelName": "NVIDIA A100", "Hostname": "n", "job": "dcgm"}
    tenant = {"namespace": "ml", "pod": f"train-{number}", "container": "main"}
    return {"__name__": name, "instance": "n:9400", **gpu, **tenant, **more}


@pytest.fixture
def window():
    end = float(int(time.time()) // 60 * 60)
    return Window(begin=end - 600, end=end, interval=30)


async def test_the_course_of_a_real_prometheus(tmp_path, window):
    times = [window.begin - 60 + 15 * n for n in range(45)]
    series = []
    for number in (0, 1, 2):
        util = [(at, busy_in(window.begin, at) if number == 1 else 5.0) for at in times]
        series += [
            (labels("DCGM_FI_DEV_GPU_UTIL", number), util),
            (labels("DCGM_FI_DEV_FB_USED", number), [(at, 2048.0) for at in times]),
            (labels("DCGM_FI_DEV_POWER_USAGE", number), [(at, 60.0 + (at - window.begin) / 10) for at in times]),
        ]
    with prometheus(tmp_path) as url:
        write(url, series)
        async with PrometheusSource(url=url) as source:
            await source.read(end=window.end, seconds=600)
            found = await read_courses(source, window, {"GPU-1"})
    (part,) = found
    assert part == PartId("GPU-1", "", "ml", "train-1", "main"), "only the GPU that was asked for"
    assert [round(100 * (value or 0.0), 3) for value in found[part]["gpu_util"]] == list(BURSTS)
    assert set(found[part]["mem_used"]) == {2 * GIB}
    power = [value for value in found[part]["power"] if value is not None]
    assert len(power) == 10
    assert power == sorted(power)


async def test_the_course_of_our_own_scrapes(window):
    source = ScrapeSource(targets=_nobody, interval=15.0, keep=900.0)
    pages = Pages(instance="n")
    known: Any = _Known(pages)
    source._known["n"] = known
    for number in (0, 1):
        cell = pages.meaning("DCGM_FI_DEV_GPU_UTIL", labels("DCGM_FI_DEV_GPU_UTIL", number))
        assert isinstance(cell, Cell)
        for n in range(45):
            at = window.begin - 60 + 15 * n
            pages.take(at, [(cell, busy_in(window.begin, at) if number else 5.0)])
    found = await read_courses(source, window, {"GPU-1"})
    await source.close()
    assert set(found) == {PartId("GPU-1", "", "ml", "train-1", "main")}
    (course,) = [terms["gpu_util"] for terms in found.values()]
    assert [round(100 * (value or 0.0), 3) for value in course] == list(BURSTS)


async def test_another_source_has_no_course(window):
    class Other:
        async def read(self, *, end, seconds):
            raise NotImplementedError

    assert await read_courses(Other(), window, {"GPU-1"}) == {}


async def _nobody():
    return ()


class _Known:
    def __init__(self, pages: Pages) -> None:
        self.pages = pages
