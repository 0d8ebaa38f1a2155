"""`vgpuscope doctor --audit` as a process of its own."""

import json
import os
import subprocess
import sys
from typing import Any


def audited(*arguments: str, token: str | None = None) -> dict[str, Any]:
    """What `vgpuscope doctor --audit` says."""
    environ = os.environ | ({"VGPUSCOPE_TOKEN": token} if token else {})
    command = [sys.executable, "-m", "vgpuscope", "doctor", "--audit", "--json", "--deadline", "100", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=900)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert sum(check["compared"] for check in report["checks"]) > 100
    return report
