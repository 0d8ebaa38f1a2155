"""The rules we ship, as Prometheus reads them."""

import subprocess
from pathlib import Path

import pytest

from tests.needed import needed

pytestmark = pytest.mark.real
RULES = Path(__file__).parents[2] / "deploy" / "recording-rules.yaml"


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
