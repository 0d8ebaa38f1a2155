"""The default power limit of each GPU model, for sources that do not report the GPU's own limit.

From the makers' data sheets, matched by the words of the name that the driver reports. A name that fits several
variants with different limits ("NVIDIA H100" alone) or none has no row: no limit is better than that of another GPU.
"""

import re
from functools import lru_cache

from vgpuscope.model.quantity import Watts

_NOT_A_WHOLE_GPU = frozenset({"GRID", "LAPTOP", "MOBILE", "MAX"})  # vGPU guests, or limits set by the builder

# All words must be in the name. The first row that fits is used, so variants come before their base model.
_ROWS: tuple[tuple[str, Watts], ...] = (
    ("GB200", 1200),
    ("B200", 1000),
    ("H200 NVL", 600),
    ("H200", 700),
    ("H800 PCIE", 350),
    ("H800", 700),
    ("H100 NVL", 400),
    ("H100 PCIE", 350),
    ("H100 HBM3", 700),  # the driver's name for SXM5
    ("H100 SXM5", 700),
    ("H100 SXM", 700),
    ("A100 SXM4", 400),
    ("A100 SXM", 400),
    ("A100 PCIE 80GB", 300),
    ("A100 PCIE 40GB", 250),
    ("A100 PCIE", 250),
    ("A800 SXM4", 400),
    ("A800 PCIE 80GB", 300),
    ("A800 PCIE 40GB", 250),
    ("V100 SXM3", 350),
    ("V100 SXM2", 300),
    ("V100 PCIE", 250),
    ("V100S PCIE", 250),
    ("V100S", 250),
    ("P100 SXM2", 300),
    ("P100 PCIE", 250),
    ("P40", 250),
    ("P4", 75),
    ("K80", 149),  # of each of its two GPUs
    ("T4", 70),
    ("L40S", 350),
    ("L40", 300),
    ("L20", 275),
    ("L4", 72),
    ("A40", 300),
    ("A30", 165),
    ("A16", 62.5),  # of each of its four GPUs
    ("A10G", 300),
    ("A10", 150),
    ("A2", 60),
    ("RTX PRO 6000 SERVER", 600),
    ("RTX 6000 ADA", 300),
    ("QUADRO RTX 6000", 260),
    ("QUADRO RTX 8000", 260),
    ("RTX A6000", 300),
    ("RTX A5000", 230),
    ("RTX A4000", 140),
    ("GEFORCE RTX 5090 D", 575),
    ("GEFORCE RTX 5090", 575),
    ("GEFORCE RTX 4090 D", 425),
    ("GEFORCE RTX 4090", 450),
    ("GEFORCE RTX 4080", 320),
    ("GEFORCE RTX 3090 TI", 450),
    ("GEFORCE RTX 3090", 350),
    ("GEFORCE RTX 3080 TI", 350),
    ("GEFORCE RTX 3080", 320),
    ("GEFORCE RTX 2080 TI", 250),
)
_TABLE = tuple((frozenset(words.split()), watts) for words, watts in _ROWS)


@lru_cache(maxsize=1024)
def factory_limit(model: str) -> Watts | None:
    """The default power limit of this model; None if the model is not certain."""
    words = frozenset(re.findall(r"[A-Z0-9]+", model.upper()))
    if words & _NOT_A_WHOLE_GPU:
        return None
    return next((watts for needed, watts in _TABLE if needed <= words), None)
