"""The table in the log."""

from hypothesis import given
from hypothesis import strategies as st

from tests.store import fleets
from vgpuscope.model.analysis import Score, Stat
from vgpuscope.model.quantity import MIB
from vgpuscope.views.fleet.log.table import low_lines, table_lines
from vgpuscope.views.fleet.results.results import low, rows

# as the README of gpu-oour shows it, without the time, the logger and the level
OOUR = """\
============================================================
GPU Utilization Analysis Results
============================================================
Namespace/Pod GPU Score Util Mem(MB) Status
------------------------------------------------------------
test/idle-pod-xxx GPU-abc123-... 5.2% 2.1% 128.0 idle
comfyui/comfyui-xuanwu-deploy-xxx GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838 68.4% 78.5% 18432.5 normal
"""
OOUR_LOW = """\
⚠️ Found 1 GPU(s) with utilization below 20%:
 - test/idle-pod-xxx (5.2%) - GPU-abc123-...
"""


def gpu(number: int, score: float | None, **more):
    terms = {"gpu_util": Stat(mean=0.5, max=0.5)}
    return fleets.gpu(number, **({"score": Score(value=score), "status": "low", "terms": terms} | more))


def used(util: float, mib: float) -> dict:
    return {"gpu_util": Stat(mean=util), "mem_used": Stat(mean=mib * MIB)}


def own(pod: str, sm: float, mib: float, **more):
    terms = {"process_sm": Stat(mean=sm), "mem_used": Stat(mean=mib * MIB)}
    return fleets.tenant(pod, own=True, terms=terms, **more)


def shown(*gpus) -> list[str]:
    active = {gpu.gpu_id for gpu in gpus if gpu.last_seen is None}
    return list(table_lines(rows(fleets.analysis(fleets.NOON, *gpus)), active=len(active)))


def oours():
    """The two GPUs of gpu-oour's example."""
    normal, idle = "GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838", "GPU-abc123-..."
    yield gpu(
        0,
        5.2,
        gpu_id=idle,
        status="idle",
        verdict="idle",
        terms=used(0.021, 128),
        tenants=(fleets.tenant("idle-pod-xxx", namespace="test"),),
    )
    yield gpu(
        1,
        68.4,
        gpu_id=normal,
        status="normal",
        verdict="in_use",
        terms=used(0.785, 18432.5),
        tenants=(fleets.tenant("comfyui-xuanwu-deploy-xxx", namespace="comfyui"),),
    )


def test_the_table_is_gpu_oours_with_the_verdict_behind_it():
    found, *table = shown(*oours())
    assert found == "Found 2 active GPUs"
    verdicts = [[], [], [], ["Verdict"], [], ["idle"], ["in_use"]]
    assert [line.split() for line in table] == [
        [*line.split(), *verdict] for line, verdict in zip(OOUR.splitlines(), verdicts, strict=True)
    ]
    assert table[:3] == OOUR.splitlines()[:3]
    assert table[-1][:40].rstrip() == "comfyui/comfyui-xuanwu-deploy-xxx"


def test_the_warning_is_gpu_oours_with_the_verdict_behind_it():
    made = rows(fleets.analysis(fleets.NOON, *oours()))
    first, second = (" ".join(line.split()) for line in low_lines(made, threshold=20))
    assert first == OOUR_LOW.splitlines()[0]
    assert second == f"{OOUR_LOW.splitlines()[1].strip()}, verdict idle"


def test_what_is_not_known_is_a_dash():
    assert shown(fleets.gpu(0))[-1].split()[:6] == ["(no", "pod)", fleets.gpu(0).gpu_id, "–", "–", "–"]


def test_the_tenants_of_a_shared_gpu_are_named_with_their_own_numbers():
    worker = own("worker", 0.7, 20000, verdict="in_use", score=Score(value=58.1), status="normal")
    notebook = own("notebook", 0.0, 20480, namespace="lab", verdict="idle", score=Score(value=5.1), status="idle")
    both = (worker, notebook)
    shared = gpu(0, 63.3, status="normal", verdict="in_use", tenants=both, terms=used(0.7, 40480))
    *_, of_gpu, first, second = shown(shared)
    assert of_gpu.split() == ["(2", "tenants)", shared.gpu_id, "63.3%", "70.0%", "40480.0", "normal", "in_use"]
    assert first.split() == ["ml/worker", shared.gpu_id, "58.1%", "70.0%", "20000.0", "normal", "in_use"]
    assert second.split() == ["lab/notebook", shared.gpu_id, "5.1%", "0.0%", "20480.0", "idle", "idle"]
    assert {line.index("GPU-") for line in (of_gpu, first, second)} == {41}


def test_the_tenants_of_a_shared_gpu_are_named_in_the_warning():
    many = tuple(fleets.tenant(name) for name in "abcde")
    [_, line] = low_lines(rows(fleets.analysis(fleets.NOON, gpu(0, 5.0, tenants=many))), threshold=20)
    assert line.startswith("  - ml/a, ml/b, ml/c and 2 more (5.0%) - GPU-")


def test_two_containers_of_one_pod_are_one_holder():
    both = (fleets.tenant("a"), fleets.tenant("a", container="side"))
    assert shown(gpu(0, 1.0, tenants=both))[-1].startswith("ml/a ")


def test_many_tenants_take_few_lines():
    many = tuple(fleets.tenant(f"pod-{number}") for number in range(30))
    lines = shown(gpu(0, 1.0, tenants=many))
    assert len(lines) == 6 + 1 + 8 + 1
    assert "22 more tenants" in lines[-1]


def test_an_instance_is_named_with_its_gpu():
    assert shown(gpu(0, 1.0, mig="GI-3"))[-1].split()[2].endswith("/GI-3")


def test_an_empty_fleet_has_no_table():
    assert shown() == ["Found 0 active GPUs"]


def test_a_large_fleet_takes_few_lines_and_the_lowest_come_first():
    many = [gpu(number, 100 - number / 10) for number in range(900)]
    lines = shown(*many)
    assert lines[0] == "Found 900 active GPUs"
    assert len(lines) < 50
    assert lines[6].split()[3] == "10.1%"
    assert "860 more" in lines[-1]


def test_low_gpus_are_warned_of():
    made = rows(fleets.analysis(fleets.NOON, gpu(0, 5.0, tenants=(fleets.tenant("a"),)), gpu(1, 50.0), fleets.gpu(2)))
    head, line = low_lines(made, threshold=20)
    assert head == "⚠️  Found 1 GPU(s) with utilization below 20%:"
    assert line.startswith("  - ml/a (5.0%) - GPU-00000000")
    assert list(low_lines(made, threshold=1)) == []
    assert len(list(low_lines(rows(fleets.fleet(fleets.NOON, 500)), threshold=99))) == 42


@given(fleets.analyses())
def test_any_fleet_can_be_told(analysis):
    made = rows(analysis)
    assert all(isinstance(line, str) for line in (*table_lines(made, active=3), *low_lines(made, threshold=50)))


def heads(lines) -> list[tuple[int, str, list[str]]]:
    """Each head of the warning: its number, what it counts, and the lines below it."""
    found: list[tuple[int, str, list[str]]] = []
    for line in lines:
        if line.startswith("⚠️"):
            _, _, number, what, *_ = line.split()
            found.append((int(number), what, []))
        else:
            found[-1][2].append(line)
    return found


@given(fleets.analyses(), st.sampled_from((0, 5, 20, 50, 100)))
def test_each_head_of_the_warning_counts_the_lines_below_it(analysis, threshold):
    made = rows(analysis)
    groups = heads(low_lines(made, threshold=threshold))
    assert [number for number, _, _ in groups] == [len(lines) for _, _, lines in groups]
    assert sum(number for number, _, _ in groups) == len(low(made, threshold=threshold))
    gpus = {f"- {row.gpu_id}{'/' * (row.mig != '')}{row.mig}, verdict {row.verdict}": row for row in made}
    for _, what, lines in groups:
        for line in lines:
            if what == "GPU(s)":
                (row,) = [row for name, row in gpus.items() if line.endswith(name)]
                assert f"({'–' if row.score is None else f'{row.score:.1f}%'})" in line


def test_gpus_and_tenants_are_counted_apart_and_each_has_its_own_score():
    idle = {"verdict": "idle", "status": "idle"}
    notebook = own("notebook", 0.0, 20480, namespace="lab", score=Score(value=5.1), **idle)
    worker = own("worker", 0.7, 20000, verdict="in_use", score=Score(value=58.1), status="normal")
    shared = gpu(0, 63.3, status="normal", verdict="in_use", tenants=(worker, notebook))
    hoard = gpu(1, 23.5, status="normal", verdict="idle", tenants=(fleets.tenant("hoard"),))
    quiet = gpu(2, 4.0, tenants=(), **idle)
    found = heads(low_lines(rows(fleets.analysis(fleets.NOON, shared, hoard, quiet)), threshold=20))
    assert [(number, what) for number, what, _ in found] == [(1, "GPU(s)"), (1, "GPU(s)"), (1, "tenant(s)")]
    assert [line for _, _, (line,) in found] == [
        f"  - (no pod) (4.0%) - {quiet.gpu_id}, verdict idle",
        f"  - ml/hoard (23.5%) - {hoard.gpu_id}, verdict idle",
        f"  - lab/notebook (5.1%) - {shared.gpu_id}, verdict idle",
    ]


def test_a_gpu_that_is_missed_is_listed_and_not_counted_as_active():
    lines = shown(gpu(0, 40.0), gpu(1, None, last_seen=fleets.NOON - 400, status="unknown", tenants=()))
    assert lines[0] == "Found 1 active GPUs"
    assert len(lines) == len(shown(gpu(0, 40.0))) + 1
