"""The bill of materials of the image, as CycloneDX JSON: `python -m tools.sbom FILE`.

It is made from the lock files alone: requirements/run.txt (Python packages), web/package-lock.json (packages bundled in
the console) and the Swagger UI that is in the package. The same lock files give the same bytes.
"""

import base64
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vgpuscope.version import __version__

ROOT = Path(__file__).parent.parent
_SWAGGER = ROOT / "src" / "vgpuscope" / "http" / "assets" / "swagger-ui-bundle.js"
_PYTHON_LOCK, _CONSOLE_LOCK = ROOT / "requirements" / "run.txt", ROOT / "web" / "package-lock.json"

Component = dict[str, Any]


def bill() -> str:
    """The whole document; ValueError if it does not follow the schema."""
    made = _of_the_python_lock()
    components = [*map(_tidied, made["components"]), *_console(), _swagger()]
    components.sort(key=lambda one: str(one["purl"]))
    main = made["metadata"]["component"]
    main |= {"version": __version__, "bom-ref": f"pkg:pypi/vgpuscope@{__version__}"}
    made["components"] = components
    made["dependencies"] = [
        {"ref": main["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]},
        *({"ref": one["bom-ref"]} for one in components),
    ]
    text = json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415  here, because its import takes seconds of CPU
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    if found := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"not CycloneDX 1.6: {found}")
    return text


def console_packages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and entry of each package whose code is in the built console."""
    packages = json.loads(_CONSOLE_LOCK.read_text())["packages"]
    for place, entry in sorted(packages.items()):
        if place and not entry.get("dev") and not entry.get("optional"):
            yield place.rpartition("node_modules/")[2], entry


def _of_the_python_lock() -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", str(_PYTHON_LOCK)]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--short-PURLs"]
    done = subprocess.run([*command, "--spec-version", "1.6", "--of", "JSON"], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _tidied(component: Component) -> Component:
    """Without the line of the lock file, which holds the hashes of all platforms, and without addresses."""
    purl = component["purl"]
    return {
        "type": "library",
        "name": component["name"],
        "version": component["version"],
        "purl": purl,
        "bom-ref": purl,
    }


def _console() -> Iterator[Component]:
    for name, entry in console_packages():
        kind, _, digest = entry["integrity"].partition("-")
        assert kind == "sha512", entry
        purl = f"pkg:npm/{quote(name, safe='/')}@{entry['version']}"
        yield {
            "type": "library",
            "name": name,
            "version": entry["version"],
            "purl": purl,
            "bom-ref": purl,
            "licenses": [{"license": {"id": entry["license"]}}],
            "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
        }


def _swagger() -> Component:
    found = re.search(r'PACKAGE_VERSION:"([\d.]+)', _SWAGGER.read_text())
    assert found is not None
    purl = f"pkg:npm/swagger-ui-dist@{found[1]}"
    return {
        "type": "library",
        "name": "swagger-ui-dist",
        "version": found[1],
        "purl": purl,
        "bom-ref": purl,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def main(argv: list[str]) -> int:
    """Writes the file that is named."""
    warnings.simplefilter("ignore")
    target = Path(argv[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    text = bill()
    target.write_text(text)
    print(f"sbom: {target}, {len(json.loads(text)['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
