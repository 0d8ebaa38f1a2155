"""A real Prometheus beside the demo, for who asks for it: scrapes everything that the demo serves."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

PROGRAM = "prometheus"
WANTED = "DEMO_PROMETHEUS"  # the variable that asks for it


def found() -> str | None:
    """The program, if it is installed."""
    return shutil.which(PROGRAM)


def command(program: str, root: Path, *, urls: Sequence[str], port: int, seconds: int) -> tuple[str, ...]:
    """How it is started to scrape these addresses, each so many seconds; its configuration is written there."""
    hosts = [urlsplit(url).netloc for url in urls]
    content = {
        "global": {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s"},
        "scrape_configs": [{"job_name": "vgpuscope", "honor_labels": True, "static_configs": [{"targets": hosts}]}],
    }
    file = root / "prometheus.yml"
    file.write_text(yaml.safe_dump(content))
    return (
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={root / 'prometheus-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
