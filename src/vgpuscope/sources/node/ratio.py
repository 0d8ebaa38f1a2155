"""The virtualisation ratio from gpu_allocation.txt: one number above 0."""

import math
import os

from vgpuscope.model.errors import RatioInvalid

_LIMIT = 4096  # bytes; a file with one number is never longer


def parse_ratio(text: str, where: str) -> float:
    """The ratio in the text; RatioInvalid gives the reason and the place."""
    word = text.strip()
    try:
        ratio = float(word)
    except ValueError:
        raise RatioInvalid(f"{where}: {word[:40]!r} is not a number") from None
    if not math.isfinite(ratio) or ratio <= 0:
        raise RatioInvalid(f"{where}: {word} is not above 0")
    return ratio


class RatioFile:
    """The file, read again when it changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._ratio: float | None = None

    def read(self) -> float:
        """The ratio now in the file; RatioInvalid at each call while the file has none."""
        try:
            status = os.stat(self.path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen or self._ratio is None:
                self._seen, self._ratio = seen, None
                with open(self.path, "rb") as file:
                    self._ratio = parse_ratio(file.read(_LIMIT).decode("utf-8", "replace"), self.path)
        except OSError as e:
            raise RatioInvalid(f"{self.path}: {e.strerror}") from e
        return self._ratio
