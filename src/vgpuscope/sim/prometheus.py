"""An optional real Prometheus beside the demo, which scrapes all of the demo's services.

`python -m vgpuscope.sim.prometheus PROGRAM FLAGS…` runs it for as long as standard input is open.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from vgpuscope.sim.leash import end_with_stdin

PROGRAM = "prometheus"
WANTED = "DEMO_PROMETHEUS"  # the environment variable that requests it


def found() -> str | None:
    """The program, if it is installed."""
    return shutil.which(PROGRAM)


def command(program: str, root: Path, *, urls: Sequence[str], port: int, seconds: int) -> tuple[str, ...]:
    """The command that scrapes these addresses every `seconds`; writes the configuration file to `root`."""
    hosts = [urlsplit(url).netloc for url in urls]
    content = {
        "global": {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s"},
        "scrape_configs": [{"job_name": "vgpuscope", "honor_labels": True, "static_configs": [{"targets": hosts}]}],
    }
    file = root / "prometheus.yml"
    file.write_text(yaml.safe_dump(content))
    return (
        sys.executable,
        "-m",
        "vgpuscope.sim.prometheus",
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={root / 'prometheus-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )


def main(command: Sequence[str]) -> int:
    """Runs it; a signal or the end of standard input ends both processes."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        end_with_stdin()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
