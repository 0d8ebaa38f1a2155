"""What pyproject.toml says of the project."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
REPOSITORY_URL: str = _PROJECT["urls"]["Repository"]
