"""Over from HAMi and back, step by step as docs/migration.md has it, while pods run that either of the two has placed.

One story: each test begins where the one before it ended.
"""

import contextlib
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.more.hami import ACCOUNT, NAMESPACE, SCHEDULER, TOTAL, Hami
from tests.e2e.more.workloads import ML
from tests.e2e.product import SHARES, Product, gpu_pod
from tests.native.scenario import gpu_uuid
from tools.cluster import layout

pytestmark = pytest.mark.e2e

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
WHOLE = [gpu_uuid(slot) for slot in (0, 1, 2)]
REGISTER, FAULTS = "hami.io/node-nvidia-register", "vgpuscope.io/gpu-faults"


class Story:
    """HAMi's programs while they run, and what its pods had at the beginning."""

    def __init__(self, product: Product, hami: Hami) -> None:
        self.product, self.hami = product, hami
        self.programs = {"plugin": contextlib.ExitStack(), "scheduler": contextlib.ExitStack()}
        self.had: dict[tuple[str, str], tuple[Any, ...]] = {}

    def start(self, name: str) -> None:
        self.programs[name].enter_context(getattr(self.hami, name)())

    def stop(self, name: str) -> None:
        self.programs[name].close()

    def remember(self) -> None:
        """The pods that run now must not notice anything from now on."""
        self.had = self.has()

    def has(self) -> dict[tuple[str, str], tuple[Any, ...]]:
        """Process, environment and devices of each container, by the kernel, runc and the kubelet."""
        held = self.product.pod_resources()
        containers = [c for c in self.product.containers() if c.namespace == "ml"]
        return {(c.pod, c.name): (c.pid, dict(c.environ), held.get((c.pod, c.name))) for c in containers}

    def nobody_noticed(self) -> bool:
        return self.had.items() <= self.has().items()

    def free(self) -> int:
        """MiB that the emptiest GPU has left, by the limits that containers were started with."""
        given = self.product.given()
        return max(TOTAL - sum(filter(None, given.get(gpu, {}).values())) for gpu in WHOLE)

    def fills_up(self, name: str) -> None:
        """One MiB too much waits, and all that is left is given: the scheduler counts what everybody has."""
        free = self.free()
        self.product.run(_pod(f"{name}-too-big", {GPU: 1, MEMORY: free + 1}), ready=False)
        self.product.run(_pod(f"{name}-fits", {GPU: 1, MEMORY: free}))
        self.product.wait("a refusal", lambda: "FailedScheduling" in self.product.events(f"{name}-too-big"))
        assert self.product.pod(f"{name}-too-big")["status"]["phase"] == "Pending"
        self.product.remove(f"{name}-too-big", f"{name}-fits")
        self.product.wait("it is given back", lambda: self.free() == free)


@pytest.fixture(scope="module")
def story(scheduling: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A cluster with HAMi, and of vgpuscope only what reads."""
    _label(scheduling, "vgpuscope.io/plugin-", "gpu=on")
    scheduling.upgraded("extender.enabled=false", "plugin.enabled=false")
    scheduling.wait("no plugin and no extender", lambda: not (scheduling.pods("plugin") or scheduling.pods("extender")))
    scheduling.cluster.kubectl("annotate", "node", layout.NODE, f"{REGISTER}-", f"{FAULTS}-")
    story = Story(scheduling, Hami(scheduling, tmp_path_factory.mktemp("hami")))
    try:
        story.start("plugin")
        scheduling.wait("HAMi's shares", lambda: scheduling.allocatable() == 30)
        story.start("scheduler")
        scheduling.cluster.apply(ML)
        yield story
    finally:
        for name in story.programs:
            story.stop(name)
        scheduling.cluster.kubectl("-n", "ml", "delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
        story.hami.remove()
        _label(scheduling, "vgpuscope.io/plugin=on")
        scheduling.upgraded(
            *("extender.enabled=true", "plugin.enabled=true", "extender.schedulerName=vgpuscope-scheduler"),
            "admission.accounts=null",
        )
        scheduling.wait("our shares", lambda: scheduling.allocatable() == SHARES)
        scheduling.wait("the kubelet's records are empty", lambda: not scheduling.pod_resources())


def test_hami_places_and_serves_pods(story: Story) -> None:
    """Beside them, our agent names them as holders of their GPUs."""
    two = gpu_pod(
        "hami-two", containers={"a": {GPU: 1, MEMORY: 3000}, "b": {GPU: 1, MEMORY: 4000}}, schedulerName=SCHEDULER
    )
    story.product.run(_pod("hami-one", {GPU: 1, MEMORY: 30000, CORES: 30}))
    story.product.run(_pod("hami-pair", {GPU: 2, MEMORY: 9000}))
    story.product.run(two)
    story.remember()
    limits = {key: _limits(environ) for key, (_, environ, _) in story.had.items()}
    assert limits == {
        ("hami-one", "main"): [30000],
        ("hami-pair", "main"): [9000, 9000],
        ("hami-two", "a"): [3000],
        ("hami-two", "b"): [4000],
    }
    story.fills_up("by-hami")


def test_helm_refuses_hamis_name_while_its_scheduler_has_a_replica(story: Story) -> None:
    words = ("upgrade", "vgpuscope", str(layout.REPOSITORY / "charts" / "vgpuscope"), "-n", "vgpuscope")
    sets = ("--set", "extender.enabled=true", "--set", f"extender.schedulerName={SCHEDULER}")
    answer = story.product.cluster.helm(*words, "--reset-then-reuse-values", *sets, check=False)
    assert answer.returncode != 0
    assert "hami-scheduler" in answer.stderr
    assert story.nobody_noticed()


def test_the_extender_takes_over_and_hamis_plugin_serves_its_pods(story: Story) -> None:
    """A pod that was created in the gap gets its GPU; what HAMi's pods have is counted."""
    story.stop("scheduler")
    story.product.run(_pod("in-the-gap", {GPU: 1, MEMORY: 2000}), ready=False)
    story.product.upgraded("extender.enabled=true", f"extender.schedulerName={SCHEDULER}")
    story.product.wait("the pod of the gap", lambda: story.product.is_ready("in-the-gap"))
    assert story.nobody_noticed()
    story.fills_up("by-extender")


def test_our_plugin_takes_the_node_over(story: Story) -> None:
    story.remember()
    accounts = f"admission.accounts={{{NAMESPACE}/{ACCOUNT}}}"
    story.product.upgraded("plugin.enabled=true", accounts)
    _label(story.product, "gpu-")
    story.stop("plugin")
    _label(story.product, "vgpuscope.io/plugin=on")
    story.product.wait("our shares", lambda: story.product.allocatable() == SHARES)
    story.product.wait("the agent stays on the node", lambda: story.product.ready("agent", 9394))
    assert story.nobody_noticed()
    story.fills_up("by-both")


def test_hamis_pods_give_back_what_they_had(story: Story) -> None:
    before = story.free()
    story.product.remove("hami-one")
    story.product.wait("it is given back", lambda: story.free() > before)
    story.product.run(_pod("ours", {GPU: 1, MEMORY: story.free()}))


def test_an_account_that_nobody_named_writes_no_assignment(story: Story) -> None:
    """While both plugins serve, HAMi's needs its name in the values: docs/migration.md."""
    story.product.upgraded("admission.accounts=null")
    note = {"metadata": {"annotations": {REGISTER: "[]"}}}

    def denied() -> bool:
        try:
            story.hami.call("PATCH", f"/api/v1/nodes/{layout.NODE}?dryRun=All", note)
        except urllib.error.HTTPError as e:
            return e.code in {403, 422}
        return False

    story.product.wait("it is denied", denied, within=60)


def test_hami_takes_everything_back(story: Story) -> None:
    """First the node, then the scheduler. Pods that we placed run on, and HAMi counts them."""
    story.remember()
    story.product.upgraded(f"admission.accounts={{{NAMESPACE}/{ACCOUNT}}}")
    _label(story.product, "vgpuscope.io/plugin-")
    story.product.wait("our plugin is gone", lambda: not story.product.pods("plugin"))
    _label(story.product, "gpu=on")
    story.start("plugin")
    story.product.cluster.kubectl("annotate", "node", layout.NODE, f"{FAULTS}-")
    story.product.wait("HAMi's shares", lambda: story.product.allocatable() == 30)
    story.product.upgraded("extender.enabled=false", "plugin.enabled=false", "admission.accounts=null")
    story.start("scheduler")
    assert story.nobody_noticed()
    story.fills_up("by-hami-again")


def _pod(name: str, limits: dict[str, object]) -> dict[str, Any]:
    return gpu_pod(name, containers={"main": limits}, schedulerName=SCHEDULER)


def _label(product: Product, *labels: str) -> None:
    product.cluster.kubectl("label", "node", layout.NODE, "--overwrite", *labels)


def _limits(environ: dict[str, str]) -> list[int]:
    limits = sorted((name, value) for name, value in environ.items() if name.startswith("CUDA_DEVICE_MEMORY_LIMIT_"))
    return [int(value.rstrip("m")) for _, value in limits]
