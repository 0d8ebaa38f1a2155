"""The image is built once for all tests of the release."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needed import needed
from tests.release import imagebuild

REVISION = "0123abc"


@pytest.fixture(scope="session")
def image() -> Iterator[imagebuild.Stage]:
    """What `docker build --build-arg REVISION=… .` makes, as a directory that every user may read."""
    needed("npm", package="npm")
    directory = Path(tempfile.mkdtemp(prefix="vgpuscope-image-"))
    directory.chmod(0o755)
    try:
        with _alone():
            built = imagebuild.build(directory, REVISION=REVISION, BUILD_DATE="2026-01-01T00:00:00Z")
        yield built
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One build at a time on this machine: each keeps a core busy."""
    with (Path(tempfile.gettempdir()) / "vgpuscope-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
