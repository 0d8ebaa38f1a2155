"""`python -m bench.nvitop_collection ROUNDS`: the cost of one collection by nvitop-exporter's own functions."""

import json
import sys
import time

from nvitop import Device
from nvitop_exporter.exporter import PrometheusExporter
from prometheus_client import CollectorRegistry


def main(rounds: int) -> None:
    """Print CPU and wall seconds per collection."""
    devices = Device.all()
    exporter = PrometheusExporter(devices, hostname="bench", registry=CollectorRegistry())
    _collect(exporter, devices)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        _collect(exporter, devices)
    figures = {"cpu": (time.process_time() - cpu) / rounds, "wall": (time.perf_counter() - wall) / rounds}
    print(json.dumps(figures))


def _collect(exporter: PrometheusExporter, devices: list[Device]) -> None:
    """The work of its loop between two pauses."""
    exporter.update_host()
    for device in devices:
        exporter.update_device(device)


main(int(sys.argv[1]))
