"""The variables that dashboards share."""

from tools.dashboards.promql import select
from tools.dashboards.spec import Variable
from tools.dashboards.words import LABELS, Text
from vgpuscope.catalog import agent, analyzer, cluster, scheduling
from vgpuscope.catalog.metric import Metric
from vgpuscope.model.service import ANALYZER_PORT

CONSOLE = f"http://localhost:{ANALYZER_PORT}"  # where a port-forward to the analyzer leads; the chart replaces it


def values(name: str, metric: Metric, label: str | None = None, *, everything: bool = True, **matches: str) -> Variable:
    """The values that a label of this metric has."""
    query = f"label_values({select(metric, **matches)}, {label or name})"
    return Variable(name=name, label=LABELS[label or name], query=query, everything=everything)


# Every metric gets this label from the scrape configuration, if several clusters share a Prometheus.
CLUSTER = Variable(name="cluster", label=LABELS["cluster"], query=f"label_values({agent.BUILD_INFO.name}, cluster)")
NODE = values("node", agent.SAMPLE_TIME)
ONE_NODE = values("node", agent.SAMPLE_TIME, everything=False)  # all GPUs of all nodes would be too many lines
GPU = Variable(
    name="gpu",
    label=Text("GPU", "GPU"),
    query=f"label_values({select(agent.GPU_INFO, node='$node')}, gpu_uuid)",
)
NAMESPACE = values("namespace", agent.CONTAINER_INFO)
POD = values("pod", agent.CONTAINER_INFO, namespace="$namespace")
CLUSTER_NODE = values("node", cluster.NODE_READY)
ANALYZED_NODE = values("node", analyzer.USE_CLASS, "hostname")
SCHEDULER = values("scheduler", scheduling.BINDS)
WINDOW = Variable(
    name="window",
    label=Text("Window", "统计窗口"),
    choices=("1h", "10m", "6h", "24h"),
    about=Text(
        "Pods with GPUs are scheduled rarely. Quantiles and rates are over this window.",
        "带 GPU 的 Pod 调度并不频繁，分位数与比率按此窗口统计。",
    ),
)
THRESHOLD = Variable(
    name="threshold",
    label=Text("Low below", "低利用率阈值"),
    text="20",
    about=Text(
        "GPUs and pods with a score below this number are listed. "
        "The analyzer's own threshold is thresholds.low_utilization.",
        "列出评分低于此值的 GPU 与 Pod。分析器自身的阈值是 thresholds.low_utilization。",
    ),
)
CONSOLE_URL = Variable(
    name="console",
    label=Text("Console", "控制台"),
    text=CONSOLE,
    about=Text(
        "Address of the analyzer as your browser reaches it. Links of rows lead to its console.",
        "浏览器能访问到的分析器地址；表格行中的链接指向它的控制台。",
    ),
)
