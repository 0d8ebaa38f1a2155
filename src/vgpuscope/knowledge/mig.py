"""How large MIG instances are: a GPU has seven or four compute slices, and a profile names how many an instance has."""

import re
from typing import Final

from vgpuscope.model.quantity import Ratio

_SLICES: Final = re.compile(r"(?:^|\.)([1-7])g\.")  # "3g.40gb"; "2c.4g.40gb" is a part of an instance with four
_PART: Final = re.compile(r"^[1-7]c\.")
_FOUR: Final = re.compile(r"\bA30\b|\bRTX PRO\b")  # GPUs with four slices
_MOST = 7

# An instance's part of the SMs is not exactly its part of the slices: 64 of an H100's 132 SMs are four of seven slices.
SLICE_ERROR: Final[Ratio] = 0.18


def instance_profile(profile: str) -> str:
    """The profile of the GPU instance that a compute instance is a part of: 4g.40gb of 2c.4g.40gb."""
    return _PART.sub("", profile)


def instance_share(profile: str | None, model: str, *, slices: int | None = None) -> Ratio | None:
    """The part of a GPU that the GPU instance of this profile is; `slices` is used if the profile does not say."""
    found = _SLICES.search(profile or "")
    parts = int(found[1]) if found else slices
    if not parts:
        return None
    return min(1.0, parts / (4 if _FOUR.search(model) else _MOST))
