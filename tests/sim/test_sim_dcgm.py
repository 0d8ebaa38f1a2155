"""The page of the simulated dcgm-exporter, in the spelling of the real one."""

import re

from vgpuscope.sim import dcgm
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.world import World

BEGAN = 1_700_000_000.0
_LINE = re.compile(r"(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")


def series(elapsed=20.0):
    worlds = [World(plan, seed=1, now=BEGAN) for plan in PLANS]
    for world in worlds:
        world.advance(BEGAN + elapsed)
    lines = [_LINE.fullmatch(line) for line in dcgm.page(worlds).splitlines() if not line.startswith("#")]
    return [
        (line["name"], dict(re.findall(r'(\w+)="([^"]*)"', line["labels"])), float(line["value"])) for line in lines
    ]


def instances():
    return {
        labels.get("pod", f"GI-{labels['GPU_I_ID']}"): (name, labels, value)
        for name, labels, value in series()
        if "GPU_I_ID" in labels and name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    }


def test_mig_instances_of_one_node_have_profiling_metrics_with_instance_profile_and_pod():
    found = instances()
    assert {labels["Hostname"] for _, labels, _ in found.values()} == {"mig-c"}
    _, labels, value = found["train-small-0"]
    assert value > 0.5
    assert labels | {"UUID": "", "gpu": "0", "device": "nvidia0"} == {
        "gpu": "0",
        "UUID": "",
        "device": "nvidia0",
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": "mig-c",
        "GPU_I_PROFILE": "3g.40gb",
        "GPU_I_ID": "2",
        "container": "train",
        "namespace": "ml-team",
        "pod": "train-small-0",
    }


def test_an_idle_instance_shows_zero_and_one_without_a_pod_names_none():
    found = instances()
    assert found["hami-mig-0"][2] == 0.0
    assert "pod" not in found["GI-9"][1]


def test_two_compute_instances_of_one_gpu_instance_have_no_metrics_of_their_own():
    assert not {"dev-dave", "dev-erin"} & instances().keys()


def test_no_series_is_there_twice_and_every_value_is_a_ratio():
    found = [(name, tuple(sorted(labels.items()))) for name, labels, _ in series()]
    assert len(found) == len(set(found))
    assert all(0 <= value <= 1 for _, _, value in series())


def test_a_gpu_that_runs_kernels_on_few_sms_shows_both():
    node, index = dcgm.STARVED
    at = {name: v for name, labels, v in series() if (labels["Hostname"], labels["gpu"]) == (node, str(index))}
    assert at["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] > 0.4
    assert at["DCGM_FI_PROF_SM_ACTIVE"] < 0.1
