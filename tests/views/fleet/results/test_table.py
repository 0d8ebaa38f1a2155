"""Results in the terminal."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.store import fleets
from vgpuscope.model.analysis import Evidence, Score, Stat
from vgpuscope.model.words import Language
from vgpuscope.views.fleet.results.results import low, rows
from vgpuscope.views.fleet.results.table import LowCounts, looked_at, results_table, short_names

GIB = fleets.GIB


def drawn(*gpus, width: int | None, color: bool = False, only_low: bool = False, language: Language = "en") -> str:
    out = io.StringIO()
    console = Console(file=out, width=width or 500, color_system="standard" if color else None, force_terminal=color)
    made = rows(fleets.analysis(fleets.NOON, *gpus))
    console.print(results_table(low(made, threshold=20) if only_low else made, width, language))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def one_gpu(number: int = 0, **more):
    terms = {"gpu_util": Stat(mean=0.5), "mem_used": Stat(mean=4.0 * GIB), "mem_total": Stat(mean=8.0 * GIB)}
    fields = {
        "gpu_index": "0",
        "score": Score(value=42.0),
        "status": "normal",
        "verdict": "in_use",
        "use_class": "busy",
        "terms": terms,
    }
    evidence = Evidence(coverage=0.95)
    return fleets.gpu(number, **(fields | {"tenants": (fleets.tenant("train-0"),), "evidence": evidence} | more))


def part(pod: str, namespace: str, util: float, memory: float, score: float, **more):
    terms = {"process_sm": Stat(mean=util), "mem_used": Stat(mean=memory * GIB)}
    fields: dict[str, Any] = {
        "own": True,
        "terms": terms,
        "score": Score(value=score),
        "status": "normal",
        "owner": f"Notebook/{pod}",
    }
    return fleets.tenant(pod, namespace=namespace, **(fields | more))


IDLE = {"status": "idle", "verdict": "idle", "use_class": "idle-held", "idle_since": fleets.NOON - 9 * 3600}


def shared(number: int = 0):
    tenants = (
        part("worker-0", "train", 0.7, 2.5, 55.0, verdict="in_use", use_class="busy"),
        part("notebook-carol-0", "notebooks", 0, 1.5, 7.1, memory_limit=2 * GIB, **IDLE),
    )
    return one_gpu(number, tenants=tenants)


def line_with(text: str, word: str) -> str:
    (found,) = [line for line in text.splitlines() if word in line]
    return found


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_what_matters_is_there_at_any_width(width):
    text = drawn(one_gpu(), shared(1), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("42", "50%", "normal", "in use", "ml/train-0", "node-0", "GPU-00000001", "9 h", "1.5/2.0Gi"):
        assert word in text, text


def test_the_node_comes_first_and_each_tenant_has_a_line_of_its_own_below_its_gpu():
    lines = drawn(shared(), width=80).splitlines()
    head, gpu, worker, notebook = lines[:4]
    assert head.split()[0] == "NODE"
    assert gpu.startswith("node-0  0 GPU-00000000…")
    assert worker.startswith("  train/worker-0 ")
    assert notebook.startswith("  notebooks/notebook-carol-0 ")
    assert worker.split()[1:] == ["55", "70%", "2.5Gi", "normal", "in", "use"]
    assert notebook.split()[1:] == ["7.1", "0%", "1.5/2.0Gi", "idle", "idle", "9", "h"]


def test_only_low_names_the_gpu_and_shows_the_idle_tenant_alone():
    text = drawn(shared(), one_gpu(1), width=80, only_low=True)
    assert "GPU-00000000" in text
    assert "worker-0" not in text
    assert "GPU-00000001" not in text
    assert line_with(text, "notebooks/").split()[1:] == ["7.1", "0%", "1.5/2.0Gi", "idle", "idle", "9", "h"]
    assert line_with(text, "GPU-00000000").split() == ["node-0", "0", "GPU-00000000…"]


def test_sums_stand_below_the_table():
    text = drawn(shared(), one_gpu(1), width=80)
    assert "2 GPUs on 1 node: 2 in use, 0 idle, 0 unknown." in text
    assert "3 tenants: 1 in use, 1 idle (1 holds memory), 1 unknown." in text


def test_every_class_of_idle_tenants_is_in_the_sum():
    """A tenant that prepares data may hold memory too: `1 holds memory` alone would deny it."""
    preparing = part("loader-0", "ml", 0.0, 2.5, 1.0, verdict="idle", use_class="idle-preparing")
    text = drawn(shared(), one_gpu(1, tenants=(preparing,)), width=80)
    assert "3 tenants: 1 in use, 2 idle (1 holds memory, 1 prepares data), 0 unknown." in text
    chinese = drawn(shared(), one_gpu(1, tenants=(preparing,)), width=80, language="zh")
    assert "3 个租户：1 个使用中，2 个空闲（1 个占用显存，1 个准备数据），0 个未知。" in chinese


def test_the_only_tenant_of_a_gpu_does_not_repeat_what_its_gpu_says():
    lone = part("train-0", "ml", 0.5, 3.9, 42.0, verdict="in_use", use_class="busy", memory_limit=6 * GIB)
    text = drawn(one_gpu(tenants=(lone,)), width=80)
    assert line_with(text, "ml/train-0").split() == ["ml/train-0", "3.9/6.0Gi"]
    other = part("train-0", "ml", 0.5, 3.9, 42.0, verdict="unknown", use_class="unknown")
    assert "unknown" in line_with(drawn(one_gpu(tenants=(other,)), width=80), "ml/train-0")


def test_a_long_name_is_broken_between_its_parts_and_a_part_loses_its_middle():
    pod = "inference-service-predictor-default-00001-deployment-7d9c5b8f6c-x2x9z"
    lone = fleets.tenant(pod, verdict="in_use")
    gpu = one_gpu(hostname="gpu-node-eu-central-1a-0001.internal", tenants=(lone,))
    lines = drawn(gpu, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.partition("   ")[0] if number == 0 else line for number, line in enumerate(lines[1:5])] == [
        "gpu-node-eu-cent…1a-0001.internal",
        "  0 GPU-00000000…",
        "  ml/",
        "    inference-serv…9c5b8f6c-x2x9z",
    ]
    assert "names shortened; --wide shows all" in "\n".join(lines)
    whole = drawn(gpu, width=None)
    assert pod in whole
    assert "--wide" not in whole


def test_a_file_has_whole_names():
    text = drawn(shared(), width=None)
    assert fleets.gpu(0).gpu_id in text
    assert "Notebook/notebook-carol-0" in text


def test_a_wide_terminal_shows_everything():
    text = drawn(one_gpu(), width=200)
    assert all(word in text for word in ("node-0", "NVIDIA A100", "50%", "4.0/8.0Gi", "normal", "95%"))


def test_names_cannot_draw_on_the_terminal():
    text = drawn(one_gpu(tenants=(fleets.tenant("\x1b[31mred\x07"),), hostname="[bold]x[/]"), width=200)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/]" in text


def test_what_is_not_known_is_shown_as_such():
    assert "unknown" in drawn(fleets.gpu(0), width=120)


def test_an_instance_is_named_by_its_own_uuid_where_it_has_one():
    assert "MIG-abc" in drawn(one_gpu(mig="MIG-abc"), width=160)
    assert "/GI-3" in drawn(one_gpu(mig="GI-3"), width=160)


def test_a_gpu_that_is_lost_or_silent_says_so():
    text = drawn(one_gpu(health="lost", xids=(48, 79), last_seen=fleets.NOON - 600), width=80)
    assert "\n  health: lost\n  XID 48, 79\n  no samples for 10 min\n" in text


def test_containers_of_one_pod_are_told_apart():
    both = (part("w", "a", 0.7, 1, 50.0, container="main"), part("w", "a", 0.1, 1, 9.0, container="side"))
    text = drawn(one_gpu(tenants=both), width=100)
    assert "  a/w/main " in text
    assert "  a/w/side " in text


def test_colours_repeat_what_words_say():
    plain, coloured = drawn(shared(), width=120), drawn(shared(), width=120, color=True)
    assert "\x1b[" in coloured
    assert all(word in plain for word in ("in use", "idle-held"))


def counted(count: int = 0, gpus: int = 21, unknown: int = 8, tenants: int = 30, **more) -> LowCounts:
    return LowCounts(
        count=count,
        threshold=20,
        total_gpus=gpus,
        unknown_count=unknown,
        tenants_total=tenants,
        tenants_unknown=2 if tenants else 0,
        **more,
    )


def test_an_empty_list_says_what_was_looked_at():
    assert looked_at(counted()) == "No GPU is below 20. 21 GPUs analysed, 8 unknown; 30 tenants, 2 unknown."
    assert looked_at(counted(gpus=1, unknown=0, tenants=0)) == "No GPU is below 20. 1 GPU analysed, 0 unknown."
    assert looked_at(counted(), kind="tenant").startswith("No tenant is below 20. 21 GPUs analysed")
    assert looked_at(counted(mig_instances=3)).startswith(
        "No GPU or MIG instance is below 20. 21 GPUs or MIG instances analysed, 8 unknown;"
    )


def test_the_lines_below_a_list_of_low_gpus_are_whole_sentences_in_chinese():
    analysed = "已分析 21 张 GPU，8 个未知；30 个租户，2 个未知。"
    assert looked_at(counted(), "zh") == f"没有评分低于 20 的 GPU。{analysed}"
    some = counted(14, gpu_rows=5, tenant_rows=9)
    assert looked_at(some, "zh") == f"14 项空闲或评分低于 20：5 张 GPU，9 个租户。{analysed}"


def test_a_list_of_low_gpus_says_how_many_are_gpus_and_how_many_are_tenants():
    assert looked_at(counted(14, gpu_rows=5, tenant_rows=9)).startswith(
        "14 are idle or below 20: 5 GPUs, 9 tenants. 21 GPUs analysed"
    )
    assert looked_at(counted(1, gpu_rows=1)).startswith("1 GPU is idle or below 20. ")
    assert looked_at(counted(2, tenant_rows=2)).startswith("2 tenants are idle or below 20. ")
    assert looked_at(counted(7)).startswith("7 are idle or below 20. ")  # from an older analyzer


uuids = st.text("0123456789abcdef-", min_size=1, max_size=40).map(lambda text: f"GPU-{text}")


@given(st.lists(uuids, unique=True, max_size=20))
def test_shortened_names_are_told_apart_and_are_the_beginning_of_the_whole(names):
    short = short_names(names)
    assert len(set(short.values())) == len(names)
    assert all(name.startswith(shown.removesuffix("…")) for name, shown in short.items())
