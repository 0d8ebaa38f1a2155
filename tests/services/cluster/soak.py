"""`python -m tests.services.cluster.soak PODS`: the cluster exporter without its network, a pod a second; prints looks.

Every pod, every second namespace and now and then a node has a name that never was before. What the API server would
say goes through the exporter's own decoders and watches, its own loop makes the page of it, and by its clocks a second
passes with each pod. Runs in a process of its own, so that its memory is its own.
"""

import asyncio
import gc
import json
import logging
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tests.blocks import blocks
from tests.contract.clusterrun import holder, quota, registered
from tests.controlplane import pod
from vgpuscope.config import ClusterConfig
from vgpuscope.services.cluster import process as cluster
from vgpuscope.services.cluster.process import ClusterExporter

NODES, LIFE = 50, 60  # nodes; seconds that a pod lives
LOOKS = 40
_START = 1_800_000_000.0


class World:
    """Nodes, pods, quotas and events as lines of a watch; each with a version of its own."""

    def __init__(self) -> None:
        self.random, self.now, self.version = random.Random(7), _START, 1
        self.lines: list[tuple[str, bytes]] = []
        self._pods: deque[dict] = deque()
        self._nodes = 0
        self._names: deque[str] = deque()
        for _ in range(NODES):
            self.new_node()

    def second(self, number: int) -> None:
        """A pod comes, is placed, runs, and the one that came a minute ago goes; some nodes and quotas with them."""
        self.now += 1
        where = self.random.choice(self._names)
        namespace = f"run-{number // 2}" if number % 4 else "ml"
        name, gpu = f"job-{number}", f"GPU-{where}-{self.random.randrange(8)}"
        # other requests than those of the pod that holds a GPU: so the caches of requests are full after 2,048 pods
        waits = pod(name, namespace=namespace, containers=[f"step-{number}"], limits={"nvidia.com/gpu": "2"})
        given = holder(name, where, gpu, memory=1000 + number % 77, namespace=namespace, containers=[f"step-{number}"])
        self.tell("ADDED", waits, uid=f"pod-{number}")
        if number % 5 == 0:
            self.refused(waits, number)
        self.tell("MODIFIED", given, uid=f"pod-{number}")
        if number % 17 == 0:  # broken for good: it costs itself, and nothing when it is gone
            given["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = f"noise-{number}"
        self._pods.append(self.tell("MODIFIED", {**given, "status": {"phase": "Running"}}, uid=f"pod-{number}"))
        if number % 3 == 0:
            limits = quota(namespace, name=f"limits-{number}", gpumem="9000")
            self.tell("ADDED", limits)
            self.tell("DELETED", limits)
        if len(self._pods) > LIFE:
            self.end(self._pods.popleft())
        if number % 200 == 0:
            self.new_node()
            self.old_node()

    def calm(self) -> None:
        """All pods are gone, and some time passes."""
        while self._pods:
            self.end(self._pods.popleft())
        self.now += 3600

    def end(self, one: dict) -> None:
        self.tell("MODIFIED", {**one, "status": {"phase": "Succeeded"}}, uid=one["metadata"]["uid"])
        self.tell("DELETED", one, uid=one["metadata"]["uid"])

    def refused(self, one: dict, number: int) -> None:
        meta = {"name": f"event-{number}", "namespace": one["metadata"]["namespace"]}
        about = {"kind": "Pod", "uid": f"pod-{number}", **{k: one["metadata"][k] for k in ("name", "namespace")}}
        event = {"kind": "Event", "metadata": meta, "involvedObject": about, "reason": "FilteringFailed", "count": 1}
        event |= {"type": "Warning", "message": "CardInsufficientMemory", "source": {"component": "hami-scheduler"}}
        event |= {"firstTimestamp": _stamp(self.now), "lastTimestamp": _stamp(self.now)}
        self.tell("ADDED", event, uid=f"event-{number}")
        self.tell("DELETED", event, uid=f"event-{number}")

    def new_node(self) -> None:
        self._nodes += 1
        name = f"node-{self._nodes}"
        self._names.append(name)
        self.tell("ADDED", registered(name, *(f"GPU-{name}-{i}" for i in range(8))))

    def old_node(self) -> None:
        name = self._names.popleft()
        self.tell("DELETED", registered(name))

    def tell(self, word: str, item: dict, **meta: str) -> dict:
        self.version += 1
        created = {"creationTimestamp": _stamp(self.now), "resourceVersion": str(self.version), **meta}
        made = {**item, "metadata": {**item["metadata"], **created}}
        self.lines.append((f"{item['kind'].lower()}s", json.dumps({"type": word, "object": made}).encode()))
        return made


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Rounds:
    """asyncio for the exporter's loop: its pause between two rounds lasts until the next one is wanted."""

    def __init__(self) -> None:
        self._go, self._done = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self._done.set()
            await self._go.wait()
            self._go.clear()
        else:
            await asyncio.sleep(0)

    async def one(self) -> None:
        self._done.clear()
        self._go.set()
        await self._done.wait()


async def run(pods: int) -> None:
    """Looks at what is held, each time when all pods are gone."""
    world, rounds = World(), Rounds()
    vars(cluster)["asyncio"] = rounds
    exporter = ClusterExporter(ClusterConfig(), clock=lambda: world.now, wall=lambda: world.now)
    kinds = {kind.name: kind for kind in exporter._kinds}
    for kind in kinds.values():
        kind._take_list({})
    settling = asyncio.create_task(exporter._settle_forever())
    for number in range(pods):
        world.second(number)
        if number % 10 == 0:
            feed(kinds, world)
            await rounds.one()
        if number % (pods // LOOKS) == 0:
            scrape(exporter)
            world.calm()
            feed(kinds, world)
            await rounds.one()
            await rounds.one()
            scrape(exporter)  # so that as much is kept compressed as there can be
            print(json.dumps({"pods": number, **held(exporter), **resources()}), flush=True)
    settling.cancel()


def feed(kinds: Mapping, world: World) -> None:
    for kind, line in world.lines:
        watch = kinds[kind]._watch
        watch.take(watch._decode_event(line))
    world.lines.clear()


def scrape(exporter: ClusterExporter) -> None:
    """In all four forms."""
    page = exporter._page
    page.text(), page.openmetrics(), page.gzipped(True), page.gzipped(False)


def resources() -> dict[str, int]:
    gc.collect()
    with open("/proc/self/statm") as file:
        return {"blocks": blocks(), "resident": int(file.read().split()[1]) * 4096}


def held(exporter: ClusterExporter) -> dict[str, int]:
    """How many things each part of the exporter holds, whatever it calls them."""
    found = {name.strip("_"): _entries(value, set()) for name, value in vars(exporter).items()}
    return {"series": exporter._page.series, **{f"held.{name}": count for name, count in found.items()}}


def _entries(value: object, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, Mapping):
        return len(value) + sum(_entries(one, seen) for pair in value.items() for one in pair)
    if isinstance(value, set | frozenset | list | tuple | deque):
        return len(value) + sum(_entries(one, seen) for one in value)
    if type(value).__module__.startswith("vgpuscope") and not isinstance(value, type):
        return sum(_entries(one, seen) for one in _parts(value))
    return 0


def _parts(value: object) -> Iterator[object]:
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        yield from (getattr(value, name, None) for name in ([slots] if isinstance(slots, str) else slots))


if __name__ == "__main__":
    logging.disable()
    asyncio.run(run(int(sys.argv[1])))
