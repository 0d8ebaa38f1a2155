"""The messages of the kubelet's PodResources API, generated from its own definition."""

import importlib.util
import warnings
from typing import Any

from tests.paths import TESTS


def _generated() -> Any:
    path = TESTS / "fixtures/podresources/podresources_pb2.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # protobuf warns when its generator is older than its runtime
        spec.loader.exec_module(module)
    return module


pb = _generated()
