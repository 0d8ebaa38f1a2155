"""A whole page of a whole node, reviewed like code. `make golden` writes it anew; read the diff."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.native.scenario import GIB, gpu_uuid
from tests.needed import needed
from tests.paths import TESTS
from tests.services.agent.noderoot import NodeRoot

GOLDEN = TESTS / "golden" / "node.prom"

# what differs from run to run, whatever the node says
CHANGING = re.compile(
    r"^((?:process_|vgpuscope_sample_|vgpuscope_source_(?:read|age)_|hami_container_last_kernel|"
    r"Device_last_kernel)\w*(?:\{[^}]*\})?) .*$",
    re.M,
)
BUILD = re.compile(r'(version|platform|go_version|python_version)="[^"]*"')


def a_node(path: Path) -> NodeRoot:
    """HAMi sharing on GPU 0, MIG on GPU 1, a pod that took GPU 2 without asking, and GPU 3 lost."""
    node = NodeRoot(path)
    hami, mig = gpu_uuid(0), gpu_uuid(1)
    node.nvml.gpu(0, memory_used=20 * GIB, utilization=80)
    node.nvml.process(0, 101, memory=6 * GIB).process(0, 102, memory=10 * GIB).process(0, 103, memory=2 * GIB)
    node.nvml.sample(0, 101, sm=20).sample(0, 102, sm=50).sample(0, 103, sm=4)
    train = node.pod("train", annotations={"hami.io/vgpu-devices-allocated": f"{hami},NVIDIA,8192,30:;"})
    infer = node.pod("infer", "web", "model", namespace="serving")
    node.pod(
        "waiting",
        annotations={"hami.io/vgpu-devices-allocated": f"{hami},NVIDIA,4096,10:;"},
    )
    node.region(train, "main", hami, limit=8 * GIB, sm_limit=30, p7=(101, 5 * GIB, 20))
    node.region(infer, "model", hami, p9=(102, 9 * GIB, 50))
    node.process(101, train)
    node.process(102, infer, "model")
    node.process(103, command="Xorg")
    node.nvml.gpu(1, memory_used=5 * GIB, utilization=None, memory_controller=None)
    node.nvml.mig(1, 0, gi=1, memory_used=3 * GIB).mig(1, 2, gi=5, memory_used=0)
    node.nvml.process(1, 201, memory=2 * GIB, gi=1, ci=0)
    given = (
        f'[{{"containerIndex":0,"deviceIndex":0,"gpuUUID":"{mig}","profile":"1g.10gb",'
        f'"placement":{{"start":0,"size":1}},"migUUID":"MIG-00000001-0000-5000-8000-000000000000",'
        f'"gpuInstanceID":1,"computeInstanceID":0}}]'
    )
    tenant = node.pod("tenant", annotations={"hami.io/vgpu-mig-allocations": given})
    node.process(201, tenant)
    node.nvml.gpu(2, memory_used=3 * GIB, utilization=10).process(2, 301, memory=2 * GIB).sample(2, 301, sm=10)
    node.process(301, node.pod("sneaky"))
    node.nvml.gpu(3).lost(3)
    node.host()
    node.network(101)
    node.beside(train, cpu=5400.25, memory=24 * GIB, limit=str(32 * GIB), moved=700 * GIB)
    node.beside(infer, "model", cpu=12.5, memory=3 * GIB)
    (node.region_dir("gone-pod", "main") / "x.cache").write_bytes(b"short")
    return node


def steady(page: str) -> str:
    return BUILD.sub(r'\1="…"', CHANGING.sub(r"\1 …", page))


def test_the_page_of_a_node_is_the_golden_one(tmp_path):
    page = steady(a_node(tmp_path).once("--families", "all"))
    if os.environ.get("VGPUSCOPE_GOLDEN") == "write":
        GOLDEN.write_text(page)
    assert page == GOLDEN.read_text()


@pytest.mark.real
def test_promtool_finds_nothing_to_complain_about_in_our_own_names(tmp_path):
    needed("promtool", package="prometheus")
    page = a_node(tmp_path).once("--families", "native")
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
