"""Amounts as Kubernetes writes them: 8000, "8000", "8k", "1Ki", "2e3", "1500m".

The API server shortens amounts (8000 MiB of a GPU come back as "8k"), so the suffixes occur in practice.
"""

import re
from functools import lru_cache

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{0,40})(?:\.([0-9]{0,40}))?(?:(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE]([+-]?[0-9]{1,2}))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MOST = 2**63 - 1  # Kubernetes' own limit


def whole_number(value: object) -> int | None:
    """The exact integer value of a quantity, of either sign; None for a fraction or an invalid quantity."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) <= _MOST else None
    if not isinstance(value, str):
        return None
    if value.isdecimal() and value.isascii() and len(value) <= 18:  # the usual case
        return int(value)
    return _suffixed(value) if len(value) <= 40 else None


@lru_cache(maxsize=1024)  # a cluster has many pods and few sizes
def _suffixed(text: str) -> int | None:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, suffix, exponent = found.groups(default="")
    if not whole + fraction:
        return None
    power = _DECIMAL.get(suffix, 0) + int(exponent or 0) - len(fraction)
    amount = int(whole + fraction) << _BINARY.get(suffix, 0)
    over: int = 10 ** max(power, 0)
    under: int = 10 ** max(-power, 0)
    if amount % under or amount // under * over > _MOST:
        return None
    return (-1 if sign == "-" else 1) * amount // under * over
