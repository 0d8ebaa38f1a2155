"""The rules we ship, as Prometheus reads them."""

import subprocess
from typing import Any

import pytest

from tests.needed import needed
from tests.paths import REPOSITORY
from tests.store import fleets
from vgpuscope.catalog.analyzer import TENANT_CLASS, TENANT_IDLE
from vgpuscope.views.fleet.metrics import gpus_page

pytestmark = pytest.mark.real
FOLDER = REPOSITORY / "charts" / "vgpuscope" / "rules"
RULES = FOLDER / "recording.yaml"
TESTS = sorted((REPOSITORY / "tests" / "rules").glob("*.yaml"))


@pytest.fixture
def promtool():
    needed("promtool", package="prometheus")
    return lambda *words: subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_rule_file_is_one(promtool, file):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_the_alerts_fire_and_stay_silent_as_worked_out_by_hand(promtool, file):
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_recorded_mean_is_the_mean_of_ten_minutes_and_of_one_series_each(promtool, tmp_path):
    labels = 'UUID="GPU-1",pod="a"'
    test = f"""
rule_files: [{RULES}]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - {{series: 'DCGM_FI_DEV_GPU_UTIL{{{labels}}}', values: '0x20 100x20'}}
      - {{series: 'vgpuscope_gpu_memory_used_bytes{{gpu_uuid="GPU-1"}}', values: '7x60'}}
    promql_expr_test:
      - expr: vgpuscope:DCGM_FI_DEV_GPU_UTIL:mean_10m
        eval_time: 15m
        exp_samples: [{{labels: 'vgpuscope:DCGM_FI_DEV_GPU_UTIL:mean_10m{{{labels}}}', value: 50}}]
      - expr: vgpuscope:vgpuscope_gpu_memory_used_bytes:mean_10m
        eval_time: 15m
        exp_samples: [{{labels: 'vgpuscope:vgpuscope_gpu_memory_used_bytes:mean_10m{{gpu_uuid="GPU-1"}}', value: 7}}]
"""
    file = tmp_path / "test.yaml"
    file.write_text(test)
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alert_on_idle_tenants_names_who_has_held_memory_for_an_hour_and_nobody_else(promtool, tmp_path):
    page = gpus_page([_shared(hold=3660), _shared(hold=3540, number=2)], end=fleets.NOON).text().decode()
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(TENANT_FAMILIES)]
    series = "\n".join(f"      - {{series: '{name}', values: '{value}x4'}}" for name, value in lines)
    gpu = fleets.gpu(1).gpu_id
    test = f"""
rule_files: [{FOLDER / "usage.yaml"}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
{series}
    promql_expr_test:
      - expr: ALERTS
        eval_time: 2m
        exp_samples:
          - labels: 'ALERTS{{alertname="GPUTenantIdleHeld",alertstate="firing",severity="info",gpu_id="{gpu}",
              hostname="node-0",namespace="nb",pod="carol-0",owner="Notebook/carol"}}'
            value: 1
"""
    (tmp_path / "test.yaml").write_text(test)
    done = promtool("test", "rules", str(tmp_path / "test.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines) == 2 * (4 + 3)  # the class of each, and the idle time of those whose verdict is known


TENANT_FAMILIES = (TENANT_CLASS.name, TENANT_IDLE.name)


def _shared(*, hold: float, number: int = 1):
    """A notebook that has been idle with memory for so long, an idle pod without, and one that works."""
    since: dict[str, Any] = {"verdict": "idle", "idle_since": fleets.NOON - hold}
    return fleets.gpu(
        number,
        tenants=(
            fleets.tenant("carol-0", namespace="nb", owner="Notebook/carol", use_class="idle-held", **since),
            fleets.tenant("empty-0", namespace="nb", owner="Job/empty", use_class="idle", **since),
            fleets.tenant("work-0", namespace="nb", owner="Job/work", verdict="in_use", use_class="busy"),
            fleets.tenant("new-0", namespace="nb", owner="Job/new", use_class="idle-held", idle_since=0.0),
        ),
    )


# --- what is wrong with the handbook's own words, which rules/compat keeps ------------------------------------------


def literally(promtool, tmp_path, *, name: str, series: dict[str, str], minutes: int) -> tuple[int, str]:
    """How many alerts the handbook's own rule has fired after so many minutes, and what promtool says."""
    lines = "\n".join(f"      - {{series: '{metric}', values: '{values}'}}" for metric, values in series.items())
    test = f"""
rule_files: [{FOLDER}/compat/*.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
{lines}
    promql_expr_test:
      - {{expr: 'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', eval_time: {minutes}m,
          exp_samples: [{{labels: '{{}}', value: NUMBER}}]}}
"""
    file = tmp_path / "literal.yaml"
    said = ""
    for number in range(3):
        file.write_text(test.replace("NUMBER", str(number)))
        done = promtool("test", "rules", str(file))
        said += done.stdout + done.stderr
        if done.returncode == 0:
            return number, said
    return -1, said


def test_the_handbooks_failure_rate_is_silent_when_every_attempt_fails(promtool, tmp_path):
    series = {"hami_scheduler_bind_failure_total": "0+5x40"}
    assert literally(promtool, tmp_path, name="ScheduleFailureRate", series=series, minutes=30)[0] == 0


def test_the_handbooks_rule_fires_for_every_container_without_a_limit(promtool, tmp_path):
    labels = '{podnamespace="ml",podname="free",ctrname="main",vdeviceid="0",deviceuuid="GPU-1"}'
    series = {
        f"vGPU_device_memory_usage_in_bytes{labels}": "1x9",
        f"vGPU_device_memory_limit_in_bytes{labels}": "0x9",  # as HAMi writes: no limit
    }
    assert literally(promtool, tmp_path, name="ContainerVGPUMemoryNearLimit", series=series, minutes=5)[0] == 1


def test_the_handbooks_rule_never_sees_a_full_gpu_whose_memory_is_scaled(promtool, tmp_path):
    series = {
        'HostGPUMemoryUsage{deviceidx="0",deviceuuid="GPU-1",devicetype="A100"}': "80x9",
        'GPUDeviceMemoryLimit{nodeid="a",deviceidx="0",deviceuuid="GPU-1",devicetype="A100"}': "160x9",
    }
    assert literally(promtool, tmp_path, name="GPUMemoryUsageHigh", series=series, minutes=7)[0] == 0


def test_the_handbooks_join_is_an_error_with_two_replicas(promtool, tmp_path):
    device = 'nodeid="a",deviceidx="0",deviceuuid="GPU-1",devicetype="A100"'
    series = {
        'HostGPUMemoryUsage{deviceidx="0",deviceuuid="GPU-1",devicetype="A100"}': "79x9",
        f'GPUDeviceMemoryLimit{{{device},instance="r1"}}': "80x9",
        f'GPUDeviceMemoryLimit{{{device},instance="r2"}}': "80x9",
    }
    fired, said = literally(promtool, tmp_path, name="GPUMemoryUsageHigh", series=series, minutes=7)
    assert fired < 1
    assert "many-to-many" in said or "found duplicate series" in said
