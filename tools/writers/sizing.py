"""The series of the sizing guide, from the catalog: whoever adds a metric writes no figure there.

The guide's other figures are measured, and stay as they are written: docs/performance.md has the measurements.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tools.writers.series import series_per
from vgpuscope.catalog import agent, analyzer, cluster
from vgpuscope.catalog.metric import DEFAULT_FAMILIES, Scope
from vgpuscope.model.words import Language

GPUS, SHARED, WHOLE = 8, 32, 8  # on one node: GPUs, and containers on them
SOURCES = 7  # of an agent with all of them
_NATIVE = ("native",)
_SCRAPE = 30  # seconds
_SAMPLE = 1.5  # bytes on disk
_NODES = (10, 100, 1_000, 5_000, 10_000)
_SERVICES = {
    "en": ("agent", "cluster exporter", "analyzer"),
    "zh": ("agent", "集群 exporter", "分析器"),
}
_FORMULAS = {
    "en": (
        "{gpu} × GPUs + {container} × containers on a GPU + {region} × HAMi regions + {node} for each node",
        "{device} × GPUs that HAMi or DRA registers + {holder} × containers that hold one + {place} for each node + "
        "about 250 for the cluster",
        "{subject} × GPUs + {tenant} × pods on a GPU + {fleet} for the fleet",
    ),
    "zh": (
        "{gpu} × GPU + {container} × GPU 上的容器 + {region} × HAMi region + 每个节点 {node}",
        "{device} × 由 HAMi 或 DRA 注册的 GPU + {holder} × 持有它们的容器 + 每个节点 {place} + 整个集群约 250",
        "{subject} × GPU + {tenant} × GPU 上的 Pod + 全局 {fleet}",
    ),
}


def sizing_page(page: Path, language: Language) -> str:
    """The hand-written page with current series in its tables."""
    text = page.read_text()
    for pattern, row in (*_formulas(language), *_one_node(language), *_fleets(language), *_prometheus(language)):
        text, found = re.subn(pattern, row, text, flags=re.M)
        assert found == 1, f"{page.name}: {found} rows are {pattern}"
    return text


def _formulas(language: Language) -> Iterator[tuple[str, str]]:
    per = {
        "gpu": _agent("gpu"),
        "container": _agent("container", "pod", "host"),
        "region": _agent("vgpu"),
        "node": _agent("node") + SOURCES * _agent("source"),
        "device": _cluster("device"),
        "holder": _cluster("holder"),
        "place": _cluster("place"),
        "subject": _analyzer("subject"),
        "tenant": _analyzer("gpu-of-pod", "tenant", "gpupod"),
        "fleet": _analyzer("fleet"),
    }
    for service, formula in zip(_SERVICES[language], _FORMULAS[language], strict=True):
        yield rf"^\| {service} \| \d+ ×.*\|$", f"| {service} | {formula.format(**per)} |"


def _one_node(language: Language) -> Iterator[tuple[str, str]]:
    shared, native, whole = _of_a_node(SHARED), _of_a_node(SHARED, _NATIVE), _of_a_node(WHOLE, hami=False)
    for at, service in enumerate(_SERVICES[language]):
        cells = " | ".join(f"{column[at]:,}" for column in (shared, native, whole))
        yield rf"^\| {service} \| [\d,]+ \| [\d,]+ \| [\d,]+ \|$", f"| {service} | {cells} |"


def _fleets(language: Language) -> Iterator[tuple[str, str]]:
    shared, whole = sum(_of_a_node(SHARED)), sum(_of_a_node(WHOLE, hami=False))
    for nodes in _NODES:
        head = f"| {nodes:,} | {nodes * GPUS:,} |"
        cells = " | ".join(_rounded(nodes * one, language) for one in (shared, whole))
        yield rf"^{re.escape(head)} [\d,.]+ ?[M万]? \| [\d,.]+ ?[M万]? \|", f"{head} {cells} |"


def _prometheus(language: Language) -> Iterator[tuple[str, str]]:
    series = 1_000 * sum(_of_a_node(SHARED))
    rate = series / _SCRAPE
    shown, gigabytes = _rounded(series, language), round(rate * 86_400 * _SAMPLE / 1e9)
    yield r"[\d.]+ ?[M万] ÷ 30 s = [\d,.]+ ?万? \|$", f"{shown} ÷ 30 s = {_samples(rate, language)} |"
    yield r"(?<=[)）] \| )\d+ GB \|$", f"{gigabytes} GB |"


def _of_a_node(
    containers: int, families: tuple[str, ...] = DEFAULT_FAMILIES, *, hami: bool = True
) -> tuple[int, int, int]:
    """Series of the three services for one node; without HAMi the kubelet only counts GPUs."""
    regions = containers * _agent("vgpu", families=families) if hami else 0
    own = _agent("node", families=families) + SOURCES * _agent("source", families=families)
    held = containers * _agent("container", "pod", "host", families=families)
    counted = _cluster("offer", "place", families=families)
    known = GPUS * _cluster("device", families=families) + containers * _cluster("holder", families=families)
    return (
        GPUS * _agent("gpu", families=families) + held + regions + own,
        known + _cluster("place", families=families) if hami else counted,
        GPUS * _analyzer("subject") + containers * _analyzer("gpu-of-pod", "tenant", "gpupod"),
    )


def _agent(*scopes: Scope, families: tuple[str, ...] = DEFAULT_FAMILIES) -> int:
    return sum(series_per(scope, agent.METRICS, families) for scope in scopes)


def _cluster(*scopes: Scope, families: tuple[str, ...] = DEFAULT_FAMILIES) -> int:
    return sum(series_per(scope, cluster.METRICS, families) for scope in scopes)


def _analyzer(*scopes: Scope) -> int:
    return sum(series_per(scope, analyzer.METRICS, analyzer.FAMILIES) for scope in scopes)


def _rounded(series: float, language: Language) -> str:
    """Two or three digits; in Chinese by ten thousands."""
    if language == "zh":
        return f"{series / 1e4:.1f} 万" if series < 1e5 else f"{round(series / 1e4, -1 if series >= 1e6 else 0):.0f} 万"
    if series < 1e5:
        return f"{round(series, -3):,.0f}"
    return f"{series / 1e6:.1f} M" if series < 2e7 else f"{series / 1e6:.0f} M"


def _samples(rate: float, language: Language) -> str:
    return f"{rate / 1e4:.1f} 万" if language == "zh" else f"{round(rate, -3):,.0f}"
