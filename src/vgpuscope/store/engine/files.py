"""Whether a path is still the file that was opened: an open file lives on after its name is removed or replaced."""

import os
from pathlib import Path
from typing import TypeAlias

FileIdentity: TypeAlias = tuple[int, int]  # device and inode


def file_identity(file: Path | int) -> FileIdentity | None:
    """The file that a path or a descriptor names; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
