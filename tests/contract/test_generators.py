"""Clients that common programs generate from our OpenAPI documents: they generate, import, and read real answers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.environment import uncovered
from tests.needed import needed
from tests.paths import REPOSITORY
from tests.services.analyzer.analyzing import IDLE, StubSource, reading, running, track
from tools.writers.operations import service_tables
from vgpuscope.http.answers import HttpAnswer
from vgpuscope.http.operations import Operation

pytestmark = pytest.mark.real


async def _document(operation: Operation) -> bytes:
    answer: HttpAnswer = await operation.handler(cast("Any", None))
    content = answer.make()
    assert isinstance(content.body, bytes)
    return content.body


DOCUMENTS: dict[str, bytes] = {
    table.service: asyncio.run(_document(operation))
    for table in service_tables()
    for operation in table.rows
    if operation.path == "/openapi.json"
}
TYPESCRIPT = REPOSITORY / "web" / "node_modules" / ".bin" / "openapi-typescript"
READ = """
import json
from analyzer_client import Client
from analyzer_client.api.apiv1 import get_api_v1_gpus
from analyzer_client.api.service import get_results

client = Client(base_url={url!r})
gpus = get_api_v1_gpus.sync(client=client)
results = get_results.sync(client=client)
print(json.dumps({{"gpus": [row.gpu_id for row in gpus.rows], "results": [row.gpu_id for row in results]}}))
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    found = subprocess.run(
        [REPOSITORY / "tools" / "clients" / "build"], capture_output=True, text=True, check=True, env=uncovered()
    )
    home = found.stdout.strip()
    needed("openapi-python-client", package="none: tools/clients/build installs it", there=bool(home))
    return Path(home)


def generated(programs: Path, name: str, document: bytes, into: Path) -> subprocess.CompletedProcess[str]:
    """A client of a document in the folder `name`; its code is not formatted, which takes longer than all the rest."""
    (into / "document.json").write_bytes(document)
    (into / "config.yaml").write_text("post_hooks: []\n")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "document.json", "--meta", "none"]
    command += ["--config", "config.yaml", "--output-path", name, "--fail-on-warning"]
    return subprocess.run(command, cwd=into, capture_output=True, text=True, check=False, env=with_programs(programs))


def with_programs(programs: Path, *more: Path) -> dict[str, str]:
    return {**uncovered(), "PYTHONPATH": os.pathsep.join(map(str, (programs, *more)))}


def test_there_are_documents_of_four_services():
    assert set(DOCUMENTS) == {"analyzer", "cluster exporter", "node agent", "extender"}


@pytest.mark.parametrize("service", DOCUMENTS)
def test_a_python_client_is_generated_without_a_warning_and_all_of_it_can_be_imported(programs, tmp_path, service):
    made = generated(programs, "client", DOCUMENTS[service], tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in made.stdout + made.stderr
    modules = [path.relative_to(tmp_path).with_suffix("") for path in (tmp_path / "client").rglob("*.py")]
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in modules)
    imports = "\n".join(f"import {name}" for name in names)
    subprocess.run([sys.executable, "-c", imports], check=True, env=with_programs(programs, tmp_path))


@pytest.mark.parametrize("service", DOCUMENTS)
def test_types_for_typescript_are_generated(tmp_path, service):
    needed("openapi-typescript", package="none: make console installs it", there=TYPESCRIPT.exists())
    (tmp_path / "document.json").write_bytes(DOCUMENTS[service])
    command = [TYPESCRIPT, tmp_path / "document.json", "--output", tmp_path / "types.ts"]
    node = subprocess.run([REPOSITORY / "tools" / "console" / "node"], capture_output=True, text=True, check=True)
    path = os.pathsep.join((node.stdout.strip(), os.environ["PATH"]))
    subprocess.run(command, check=True, capture_output=True, env={**uncovered(), "PATH": path})
    text = (tmp_path / "types.ts").read_text()
    assert all(f'"{path}"' in text for path in json.loads(DOCUMENTS[service])["paths"])


async def test_a_generated_client_reads_what_the_analyzer_answers(programs, tmp_path):
    made = await asyncio.to_thread(generated, programs, "analyzer_client", DOCUMENTS["analyzer"], tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    source = StubSource(reading(track(0), track(1, util=IDLE)))
    async with running(source, **{"scheduler.interval": 3600}) as analyzer:
        await analyzer.analysed()
        shown: list[dict[str, Any]] = await analyzer.json("/results")
        code = READ.format(url=str(analyzer.client.base_url))
        found = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env=with_programs(programs, tmp_path),
        )
    assert found.returncode == 0, found.stderr
    gpus = [row["gpu_id"] for row in shown]
    assert gpus
    answer = json.loads(found.stdout)
    assert sorted(answer["results"]) == sorted(gpus)
    assert sorted(answer["gpus"]) == sorted(gpus)
