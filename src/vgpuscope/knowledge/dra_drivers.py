"""Drivers of dynamic resource allocation whose devices are GPUs."""

import re

_NAMED_BY_MINOR = re.compile("nvidia|hami")
_GPU_DRIVER = re.compile("gpu|npu|dcu|hcu|mlu|ascend")


def is_gpu_driver(name: str) -> bool:
    """Whether all devices of the driver are GPUs, by its name."""
    return _GPU_DRIVER.search(name) is not None


def is_hami_driver(name: str) -> bool:
    """Whether the driver shares GPUs by HAMi's library, by its name."""
    return "hami" in name


def names_by_minor(name: str) -> bool:
    """Whether the driver names a GPU after its minor number at NVIDIA's kernel driver."""
    return _NAMED_BY_MINOR.search(name) is not None
