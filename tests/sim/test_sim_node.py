"""A simulated node is a directory that a node agent cannot tell from a real one."""

import asyncio
import json
import re
import tempfile
from pathlib import Path

import grpc
import pytest

from vgpuscope.formats.podresources import decode_grants
from vgpuscope.sim.kinds import HAMI, MIG, PLANS, SLICED, WHOLE_GPUS
from vgpuscope.sim.node import Node
from vgpuscope.sim.podresources import Granted, list_response
from vgpuscope.sources.node.regions import Regions

BEGAN = 1_700_000_000.0


@pytest.fixture
def node():
    made = []

    def make(plan, seed=1, name="n"):
        made.append(Node(Path(root) / name, plan, seed=seed, now=BEGAN))
        return made[-1]

    # A socket's path has room for 107 bytes; pytest's own directories may be longer.
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        yield make
        for one in made:
            one.close()


def ticks(node, seconds, step=0.5):
    for n in range(1, int(seconds / step) + 1):
        node.tick(BEGAN + n * step)
        yield n * step


def live(node, seconds):
    for _ in ticks(node, seconds):
        pass


def contents(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def pods(node):
    return {p["metadata"]["name"]: p for p in json.loads((node.directory / "pods.json").read_bytes())["items"]}


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: p.name)
def test_the_same_seed_gives_the_same_bytes(node, plan):
    first, second, other = node(plan, name="a"), node(plan, name="b"), node(plan, seed=2, name="c")
    for one in (first, second, other):
        live(one, 20)
    assert contents(first.directory) == contents(second.directory)
    assert contents(first.directory) != contents(other.directory)


def test_every_process_of_the_driver_stands_in_proc_with_its_start_time(node):
    n = node(HAMI)
    for _ in ticks(n, 70):
        listed = {p.pid for life in n.world.lives.values() for p in life.running()}
        there = {int(p.name) for p in (n.directory / "proc").iterdir() if p.name.isdigit()}
        assert listed == there - {1, 871}
    for pid in listed:
        fields = (n.directory / "proc" / str(pid) / "stat").read_text().rpartition(")")[2].split()
        assert len(fields) == 50
        assert int(fields[19]) > 0


def test_each_runtime_spells_cgroups_its_own_way(node):
    shapes = {
        HAMI: r"0::/kubepods\.slice/.*-pod[0-9a-f_]{36}\.slice/cri-containerd-[0-9a-f]{64}\.scope",
        WHOLE_GPUS: r"0::/kubepods\.slice/.*/crio-[0-9a-f]{64}\.scope/container",
        SLICED: r"4:memory:/kubepods/burstable/pod[0-9a-f-]{36}/[0-9a-f]{64}",
    }
    for plan, shape in shapes.items():
        n = node(plan, name=plan.name)
        texts = [p.read_text() for p in (n.directory / "proc").glob("*/cgroup")]
        assert any(re.search(shape, text) for text in texts), plan.name


def test_a_static_pods_cgroup_carries_the_hash_and_not_the_uid(node):
    n = node(WHOLE_GPUS)
    static = pods(n)["gpu-health-whole-b"]["metadata"]
    text = "".join(p.read_text() for p in (n.directory / "proc").glob("*/cgroup"))
    assert static["annotations"]["kubernetes.io/config.hash"] in text
    assert static["uid"].replace("-", "_") not in text


def test_every_hami_pod_that_works_has_one_region_and_the_decoder_agrees_with_it(node):
    n = node(HAMI)
    live(n, 5)
    reading = Regions(str(n.hook_path / "containers")).read()
    assert reading.refusals == ()
    layouts = {c.region.layout for c in reading.containers if c.region}
    assert layouts == {"v0", "v1", "v1s"}
    found = {c.pod_uid: c.region for c in reading.containers}
    for life in (life for life in n.world.lives.values() if life.job.hami):
        region = found[life.uid]
        if life.job.shape is None:
            assert region is None
            continue
        for at, gpu in enumerate(life.job.gpus):
            device = region.devices[at]
            assert device.uuid == n.world.gpus[gpu].uuid
            assert device.memory_limit == life.job.hami.memory << 20
            assert sum(s.devices[at].total for s in region.live_slots()) == sum(p.memory[gpu] for p in life.running())


def region_of(n, job):
    """The life of a job's pod, and its region as the decoder reads it."""
    life = next(life for life in n.world.lives.values() if life.job.name == job)
    reading = Regions(str(n.hook_path / "containers")).read()
    return life, next(c.region for c in reading.containers if c.pod_uid == life.uid)


def test_a_notebook_that_idles_since_hours_ran_its_last_kernel_then(node):
    n = node(HAMI)
    live(n, 30)
    assert region_of(n, "notebook-alice")[1].last_kernel == BEGAN - 4 * 3600
    assert region_of(n, "etl-leaky-0")[1].last_kernel >= BEGAN


def test_a_killed_worker_stays_in_its_region_until_another_attaches(node):
    n = node(HAMI)
    left_behind = []
    for _ in ticks(n, 70):
        life, region = region_of(n, "train-bert-0")
        left_behind.append(len(region.live_slots()) - len(life.running()))
    assert set(left_behind) == {0, 1}
    assert left_behind[-1] == 0


def test_a_watcher_is_sometimes_met_between_zeroing_and_refilling(node):
    n = node(HAMI)
    zero = []
    for _ in ticks(n, 30):
        _, region = region_of(n, "sweep-unlimited")
        zero.append(all(s.devices[0].driver_used == 0 for s in region.live_slots()))
    assert 0 < sum(zero) < len(zero) / 3


def test_a_finished_pod_is_listed_as_such_then_gone_and_its_directory_goes_later(node):
    n = node(HAMI)
    phases, orphans = [], 0
    for _ in ticks(n, 120):
        phases += [p["status"]["phase"] for name, p in pods(n).items() if name.startswith("finetune")]
        known = {p["metadata"]["uid"] for p in pods(n).values()}
        directories = {d.name.partition("_")[0] for d in (n.hook_path / "containers").iterdir()}
        orphans = max(orphans, len(directories - known))
    assert {"Pending", "Running", "Succeeded"} <= set(phases)
    assert 1 <= orphans <= 3


def test_hamis_mig_pod_says_which_instance_it_has_and_gets_no_region(node):
    n = node(MIG)
    note = json.loads(pods(n)["hami-mig-0"]["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"])
    assert note[0]["migUUID"] == next(i.uuid for i in n.world.gpus[0].instances if i.index == 6)
    assert list((n.hook_path / "containers").iterdir()) == []


async def test_the_kubelets_socket_answers_a_real_grpc_client(node):
    n = node(SLICED)
    server = await n.serve()

    def ask():
        with grpc.insecure_channel(f"unix:{n.socket}") as channel:
            return channel.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=60)

    try:
        answer = await asyncio.to_thread(ask)
    finally:
        server.close()
        await server.wait_closed()
    ids = {g.device_id for g in decode_grants(answer)}
    t4, l4, a30 = n.world.gpus
    replicas = {f"{t4.uuid}::{i}" for i in range(4)} | {f"{l4.uuid}::{i}" for i in range(3)}
    assert ids == replicas | {a30.instances[0].uuid}


def test_claims_and_long_lists_are_spelled_right():
    many = tuple(f"GPU-{n:036d}" for n in range(20))
    spelled = list_response(
        [
            Granted("ns", "pod", "c", resource="nvidia.com/gpu", device_ids=many),
            Granted("ns", "claimer", "c", claim="h100", pool="node", device="gpu-3"),
        ]
    )
    *devices, claim = decode_grants(spelled)
    assert [d.device_id for d in devices] == list(many)
    assert (claim.claim, claim.device_id, claim.resource) == ("ns/h100", "gpu-3", "gpu.nvidia.com")
