"""GPU metrics in loaded rules: which of them can be expected to exist."""

import re
from collections.abc import Iterable

from vgpuscope.catalog import agent as agent_catalog
from vgpuscope.catalog import cluster as cluster_catalog
from vgpuscope.catalog import extender as extender_catalog
from vgpuscope.catalog import plugin as plugin_catalog
from vgpuscope.knowledge.gpu_series import ANY_GPU_METRIC, LOOKED_AT

_METRIC = re.compile(rf"\b(?:{ANY_GPU_METRIC.removesuffix('.*')})[a-zA-Z0-9_]*")
_LEGACY = ("Device_", "vGPU", "HostGPU", "HostCore", "GPUDevice", "nodeGPU")
_PARTS = ("_bucket", "_count", "_sum")  # of a histogram
_FAMILIES = (("DCGM_FI_",), ("hami_",), _LEGACY, ("vgpuscope_",))


def unknown_names(rules: Iterable[tuple[str, str]], there: set[str]) -> tuple[tuple[str, str], ...]:
    """GPU metrics in the queries of rules that nothing exports, each with the name of the rule."""
    loaded = list(rules)
    recorded = {name for name, _ in loaded}
    found = dict.fromkeys(
        (rule, name)
        for rule, query in loaded
        for name in _metrics(query)
        if name not in recorded and is_unknown(name, there)
    )
    return tuple(found)


def _metrics(query: str) -> set[str]:
    return {found[0] for found in _METRIC.finditer(query)}


def is_unknown(name: str, there: Iterable[str]) -> bool:
    """Whether nothing exports a metric, and nothing can be expected to.

    A known metric may have no series for good reasons, such as no XID so far, unless its whole family has none.
    """
    there = set(there)
    if name in there or any(name.removesuffix(suffix) in there for suffix in _PARTS):
        return False
    family = next((one for one in _FAMILIES if name.startswith(one)), ())
    return name not in _KNOWN or not any(other.startswith(family) for other in there)


def _known_names() -> frozenset[str]:
    metrics = (*agent_catalog.METRICS, *cluster_catalog.METRICS, *extender_catalog.METRICS, *plugin_catalog.METRICS)
    parts = [f"{metric.name}{part}" for metric in metrics if metric.type == "histogram" for part in _PARTS]
    names = [name for metric in metrics for name in (metric.name, *(alias.name for alias in metric.aliases))]
    return LOOKED_AT | {*names, *parts}


_KNOWN = _known_names()
