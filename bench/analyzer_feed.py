"""The analyzer's samples: in a real Prometheus, or the times of those of a stand-in."""

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from bench.analyzer_fleet import NAMES, STEP, WINDOW, Holder, holders, values
from tests.contract import promworld
from tests.services.analyzer.promstub import STALE, Labels, Samples

_AHEAD = 600  # seconds for which samples are written in advance, so that every window is full, whenever it ends
_AT_ONCE = 4000  # series kept in memory


@contextmanager
def prometheus(root: Path, gpus: int) -> Iterator[str]:
    """The address of a real Prometheus, filled by remote write."""
    if shutil.which("prometheus") is None:
        raise SystemExit("bench: the analyzer's bench needs Prometheus (Debian package prometheus)")
    with promworld.prometheus(root) as url:
        begin = int(time.time()) // STEP * STEP - WINDOW - STEP
        times = [float(at) for at in range(begin, begin + WINDOW + _AHEAD, STEP)]
        batch: list[tuple[Labels, Samples]] = []
        for one in _series(gpus, times):
            batch.append(one)
            if len(batch) >= _AT_ONCE:
                promworld.write(url, batch)
                batch = []
        promworld.write(url, batch)
        yield url


def renew(url: str) -> None:
    """Set the stand-in's samples to the present; this takes a while and must not be measured."""
    with urlopen(Request(f"{url}/renew", data=b"x"), timeout=120) as answer:
        answer.read()


def _series(gpus: int, times: list[float]) -> Iterator[tuple[Labels, Samples]]:
    """Each holder's series; its end has a stale marker, as when Prometheus no longer finds a series on a page."""
    dice, handover = random.Random(gpus), times[0] + WINDOW * 2 / 3
    for holder in holders(gpus, handovers=True):
        held = [at for at in times if holder.begins <= at - handover < holder.ends]
        rows = [values(holder, dice) for _ in held]
        for name, column in zip(NAMES, zip(*rows, strict=True), strict=True):
            yield {"__name__": name, **holder.labels}, [*zip(held, column, strict=True), *_end(holder, held)]


def _end(holder: Holder, held: list[float]) -> Samples:
    return [(held[-1] + STEP, STALE)] if holder.ends != float("inf") else []
