"""The answer to too many requests: 429, always with the time after which to retry."""

import math
from typing import NoReturn

from starlette.exceptions import HTTPException

from vgpuscope.model.quantity import Seconds


def too_many(seconds: Seconds = 1.0) -> NoReturn:
    """Raise 429. No other place does: a client learns from Retry-After when to try again."""
    raise HTTPException(429, headers={"retry-after": str(max(1, math.ceil(seconds)))})
