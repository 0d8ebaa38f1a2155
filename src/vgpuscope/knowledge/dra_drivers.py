"""Drivers of dynamic resource allocation whose devices are GPUs."""

import re

_GPU_DRIVER = re.compile("gpu|npu|dcu|hcu|mlu|ascend")


def is_gpu_driver(name: str) -> bool:
    """Whether all devices of the driver are GPUs, by its name."""
    return _GPU_DRIVER.search(name) is not None
