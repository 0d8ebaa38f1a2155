"""Programs that some tests talk to, which not every machine has."""

import os
import shutil

import pytest


def needed(program: str, *, package: str, there: bool | None = None) -> None:
    """Without the program a developer's test is left out, and says so; with CI=true that is a failure."""
    if shutil.which(program) is None if there is None else not there:
        assert os.environ.get("CI") != "true", f"{program} is missing in CI"
        pytest.skip(f"{program} is not installed (Debian package {package})")
