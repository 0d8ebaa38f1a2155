"""`python -m bench.library_page FILE ROUNDS`: the cost of writing the same page with prometheus_client, as JSON.

A collector passes prepared families to the library; the cost of making them is not measured.
"""

import gc
import gzip
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class _Ready:
    def __init__(self, text: str) -> None:
        self._families: list[Metric] = []
        for line in text.splitlines():
            if line.startswith("# HELP "):
                _, _, name, documentation = line.split(" ", 3)
            elif line.startswith("# TYPE "):
                kind = line.rpartition(" ")[2]
                self._families.append(Metric(name, documentation, kind if name.endswith("_total") else "gauge"))
            elif found := _LINE.fullmatch(line):
                labels = dict(_LABEL.findall(found[2])) if found[2] else {}
                self._families[-1].add_sample(found[1], labels, float(found[3]))

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)

    def describe(self) -> Iterator[Metric]:
        return iter(())


def main() -> None:
    """Measure and print."""
    text = Path(sys.argv[1]).read_text()
    gc.disable()  # otherwise making the families takes minutes; it makes little difference to the measurement
    registry = CollectorRegistry()
    registry.register(_Ready(text))
    del text
    made, packed = [], []
    for _ in range(int(sys.argv[2])):
        began = time.process_time()
        page = generate_latest(registry)
        made.append(time.process_time() - began)
        gzip.compress(page)  # as its own HTTP handler does
        packed.append(time.process_time() - began)
    print(json.dumps({"plain": min(made), "gzip": min(packed), "bytes": len(page)}))


main()
