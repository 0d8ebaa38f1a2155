"""Looks at what containers really have, over and over: no device twice, no memory twice."""

import threading
from typing import Self

from tests.e2e.product import Product
from tests.native.scenario import gpu_uuid
from tools.cluster.errors import Failed

TOTAL = 40 * 1024  # MiB of each whole GPU


class Oracle:
    """A thread that compares the kubelet's checkpoint and the environment of running containers with the GPUs."""

    def __init__(self, product: Product) -> None:
        self.faults: list[str] = []
        self.looks = 0
        self._product = product
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._end.wait(1.0):
            try:
                self._look()
            except (OSError, Failed):  # kubelet or containerd is down, or a container has just gone
                continue

    def _look(self) -> None:
        holders: dict[str, tuple[str, str]] = {}
        for holder, devices in self._product.checkpoint().items():
            for device in devices:
                if device in holders and holders[device][0] != holder[0]:
                    self.faults.append(f"{device} is held by {holders[device]} and {holder}")
                holders[device] = holder
        whole = {gpu_uuid(slot) for slot in (0, 1, 2)}
        for gpu, containers in self._product.given().items():
            total = sum(limit or 0 for (_, pod, _), limit in containers.items() if pod not in self._product.forced)
            if gpu in whole and total > TOTAL:
                self.faults.append(f"{gpu} has {TOTAL} MiB and {total} are given: {containers}")
        self.looks += 1
