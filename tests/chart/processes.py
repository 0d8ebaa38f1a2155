"""Services as processes of this machine, with the settings and the accounts that Helm installed."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.chart.cluster import Object
from tests.environment import bare
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, RunningAgent


@contextlib.contextmanager
def analyzer(kubeconfig: str, settings: Object, path: Path) -> Iterator[RunningAgent]:
    """The analyzer with the settings that Helm installed, except for what only a pod has."""
    port, log, file = free_port(), path / "analyzer.log", path / "config.yaml"
    file.write_text(settings["data"]["config.yaml"])
    here = ["--listen", f"127.0.0.1:{port}", "--history", str(path / "history.db"), "--kubeconfig", kubeconfig]
    command = [sys.executable, "-m", "vgpuscope", "analyzer", "--config", str(file), *here]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=bare(HOME=str(path)), cwd=path)
    running = RunningAgent(process, f"http://127.0.0.1:{port}", log)
    try:
        running.wait(lambda: running.status("/healthz") == 200)
        yield running
        process.terminate()
        assert process.wait(WITHIN) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
