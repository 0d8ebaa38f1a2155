"""The rules we ship, as Prometheus reads them."""

import re
import subprocess
from typing import Any

import pytest

from tests.needed import needed
from tests.paths import REPOSITORY
from tests.store import fleets
from vgpuscope.catalog.analyzer import TENANT_CLASS, TENANT_IDLE
from vgpuscope.views.fleet.metrics import cards_page

pytestmark = pytest.mark.real
RULES = REPOSITORY / "deploy" / "recording-rules.yaml"


@pytest.fixture
def promtool():
    needed("promtool", package="prometheus")
    return lambda *words: subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def test_the_recording_rules_are_rules(promtool):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
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
    manual = (RULES.parents[1] / "docs" / "analyzer.md").read_text()
    (rules,) = [block for block in re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL) if "alert:" in block]
    (tmp_path / "rules.yaml").write_text(rules)
    page = cards_page([_shared(hold=3660), _shared(hold=3540, number=2)], end=fleets.NOON).text().decode()
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(TENANT_FAMILIES)]
    series = "\n".join(f"      - {{series: '{name}', values: '{value}x4'}}" for name, value in lines)
    test = f"""
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
{series}
    alert_rule_test:
      - alertname: GPUTenantIdleHeld
        eval_time: 2m
        exp_alerts:
          - exp_labels:
              severity: info
              gpu_id: {fleets.gpu(1).gpu_id}
              hostname: node-0
              namespace: nb
              pod: carol-0
              owner: Notebook/carol
            exp_annotations:
              summary: nb/carol-0 (Notebook/carol) holds memory of an idle GPU on node-0 for 1h 1m 0s
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
