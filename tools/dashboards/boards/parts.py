"""Short forms of panels, and the panels and colours that several dashboards share."""

from typing import Any

from tools.dashboards.promql import each, or_zero, shortened
from tools.dashboards.spec import NO_ANALYSIS, NO_CLUSTER, Panel, Query, Steps
from tools.dashboards.words import BAD, CLASSES, GOOD, NEUTRAL, QUIET, WARN, Text
from vgpuscope.catalog import analyzer as a
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import scheduling as s

ANY_IS_BAD: Steps = ((None, GOOD), (1, BAD))
ANY_IS_WORTH_A_LOOK: Steps = ((None, GOOD), (1, WARN))
FULL: Steps = ((None, NEUTRAL), (0.8, WARN), (0.95, BAD))
OVER: Steps = ((None, NEUTRAL), (0.9, WARN), (1.0001, BAD))  # above 100 % of a limit
HOT: Steps = ((None, NEUTRAL), (80, WARN), (90, BAD))
WASTE: Steps = ((None, NEUTRAL), (0.5, WARN), (0.8, BAD))
STALE: Steps = ((None, GOOD), (60, WARN), (300, BAD))
SCORES: Steps = ((None, BAD), (20, NEUTRAL), (70, GOOD))
MUTED = QUIET


def figure(title: Text, about: Text, expr: str, *, empty: Text, width: int = 4, height: int = 4, **more: Any) -> Panel:
    """One large number of now."""
    asked = (Query(expr=expr),)
    return Panel(kind="stat", title=title, about=about, queries=asked, empty=empty, width=width, height=height, **more)


MOST_LINES = 30
_FEW = Text(
    f" At most {MOST_LINES} lines: those with the highest values at each moment.",
    f"最多 {MOST_LINES} 条线：各时刻数值最高的。",
)


def lines(title: Text, about: Text, *queries: tuple[str, Text | str], empty: Text, **more: Any) -> Panel:
    """Lines over time. `few`: a large fleet would have thousands, so only the highest are drawn."""
    if more.pop("few", False):
        queries = tuple((f"topk({MOST_LINES}, {expr})", name) for expr, name in queries)
        about = Text(about.en + _FEW.en, about.zh + _FEW.zh)
    asked = tuple(Query(expr=expr, name=name) for expr, name in queries)
    return Panel(kind=more.pop("kind", "lines"), title=title, about=about, queries=asked, empty=empty, **more)


def bars(title: Text, about: Text, expr: str, name: str, *, empty: Text, **more: Any) -> Panel:
    """Horizontal bars of now, one for each series."""
    return Panel(kind="bars", title=title, about=about, queries=(Query(expr=expr, name=name),), empty=empty, **more)


def table(title: Text, about: Text, labels: tuple[str, ...], *queries: Query, empty: Text, **more: Any) -> Panel:
    """Rows of now: a column for each label, then one for each query."""
    return Panel(
        kind="table", title=title, about=about, labels=labels, queries=queries, empty=empty,
        width=more.pop("width", 24), **more,
    )  # fmt: skip


# ── shared by dashboards ─────────────────────────────────────────────────────────────────────────────────────────

PENDING = or_zero(f"sum({each(s.PENDING_PODS)})", c.WATCH_UP)

PENDING_FIGURE = figure(
    Text("Pending pods", "等待调度的 Pod"),
    Text(
        "Pods with GPU requests that wait for a node. 0 is shown only while the cluster exporter reports.",
        "申请 GPU 且仍在等待节点的 Pod。只有集群 exporter 在线时才显示 0。",
    ),
    PENDING,
    empty=NO_CLUSTER,
    decimals=0,
    steps=ANY_IS_WORTH_A_LOOK,
)

CLASSES_OVER_TIME = lines(
    Text("GPUs by class", "各类别的 GPU 数"),
    Text(
        "What the analyzer found out about each GPU: busy, idle, idle while memory is held, and so on. "
        "unknown: too few samples to judge. A GPU in MIG mode counts as its MIG instances.",
        "分析器对每张 GPU 的判定：繁忙、空闲、空闲但占用显存等。未知表示样本不足、无法判断。"
        "启用 MIG 的 GPU 按 MIG 实例计数。",
    ),
    (f"sum by (class) ({each(a.CLASSES)})", "{{class}}"),
    empty=NO_ANALYSIS,
    kind="stack",
    words="class",
    decimals=0,
)


def class_timeline(**matches: str) -> str:
    """The class of each GPU as the number of its word, for a timeline."""
    coded = [f"({each(a.USE_CLASS, 'gpu_id', 'mig', 'hostname', **matches, **{'class': word.value})} * {at})"
             for at, word in enumerate(CLASSES)]  # fmt: skip
    return shortened(shortened(" or ".join(coded), "gpu_id", "gpu"), "mig", "instance")
