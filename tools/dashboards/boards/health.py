"""Do the GPUs fail, and do our own services see everything?"""

from tools.dashboards.boards.parts import ANY_IS_BAD, ANY_IS_WORTH_A_LOOK, HOT, STALE, figure, lines, table
from tools.dashboards.promql import WINDOW, each, increase, named, or_zero, quantile, rate, select, share_below
from tools.dashboards.spec import NO_AGENT, NO_ANALYSIS, NO_CLUSTER, NO_PLUGIN, Board, Query, Row
from tools.dashboards.variables import CLUSTER, CONSOLE_URL, NODE
from tools.dashboards.words import BAD, GOOD, NEUTRAL, WARN, Text
from vgpuscope.catalog import agent as n
from vgpuscope.catalog import analyzer as a
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import plugin as d
from vgpuscope.catalog.metric import Metric

HERE = {"node": "$node"}
UNHEALTHY = f"{each(n.GPU_HEALTH, health='!ok', **HERE)} == 1"
BLIND = f"{each(n.SOURCE_UP, **HERE)} == 0 unless {each(n.SOURCE_ABSENT, **HERE)} == 1"
FINE = Text("nothing to report, or no agent is scraped", "没有异常，或没有抓取到 agent")


def of_agents(metric: Metric, *, counter: bool = False) -> str:
    """A metric of the agent's process. Every Go and Python program exports these names; only agents are kept."""
    series = select(metric)
    found = f"rate({series}[{WINDOW}])" if counter else series
    who = f"max by (cluster, job, instance, node) ({select(n.SAMPLES, **HERE)} * 0 + 1)"
    return f"max by (cluster, node) ({found} * on (cluster, job, instance) group_left (node) {who})"


FIGURES = Row(
    None,
    (
        figure(
            Text("Healthy GPUs", "健康 GPU"),
            Text("GPUs whose health is ok.", "健康状态为正常的 GPU。"),
            f"sum({each(n.GPU_HEALTH, health='ok', **HERE)})",
            empty=NO_AGENT,
            decimals=0,
            width=3,
        ),
        figure(
            Text("Not healthy", "异常 GPU"),
            Text(
                "GPUs that are lost, need a reset, do not answer or cannot be read.",
                "丢失、需要重置、无响应或无法读取的 GPU。",
            ),
            f"sum({each(n.GPU_HEALTH, health='!ok', **HERE)})",
            empty=NO_AGENT,
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("XID errors", "XID 错误"),
            Text(
                "XID errors in the time range shown. 0 is shown only while agents report.",
                "所选时间范围内的 XID 错误。只有 agent 在线时才显示 0。",
            ),
            or_zero(f"sum({increase(n.GPU_XIDS, **HERE)})", n.SAMPLE_TIME),
            empty=NO_AGENT,
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Uncorrected ECC errors", "未纠正 ECC 错误"),
            Text(
                "Uncorrected ECC errors since the drivers were loaded.",
                "驱动加载以来未纠正的 ECC 错误。",
            ),
            f"sum({each(n.GPU_ECC_UNCORRECTED, **HERE)})",
            empty=NO_AGENT,
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Sources down", "失效的数据来源"),
            Text(
                "Sources of agents whose last read failed: driver, HAMi regions, kubelet, processes. "
                "A source that a node does not have is not counted.",
                "最近一次读取失败的数据来源：驱动、HAMi region、kubelet、进程。节点上本不存在的来源不计。",
            ),
            or_zero(f"count({BLIND})", n.SAMPLE_TIME),
            empty=NO_AGENT,
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Watches down", "失效的 watch"),
            Text(
                "Kinds of objects that the cluster exporter cannot watch, because of RBAC or the API server.",
                "集群 exporter 因 RBAC 或 API server 而无法 watch 的对象种类。",
            ),
            f"sum(1 - {each(c.WATCH_UP)})",
            empty=NO_CLUSTER,
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Scrape targets down", "分析器失效的抓取目标"),
            Text("Targets that the analyzer expects and does not get.", "分析器期望却抓取不到的目标。"),
            f"sum({each(a.TARGETS, state='down')})",
            empty=Text(
                "no data: the analyzer's source does not know its targets", "无数据：分析器的数据源不知道抓取目标"
            ),
            decimals=0,
            width=3,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Age of the analysis", "分析结果的时效"),
            Text("Time since the last successful analysis began.", "距最近一次成功分析开始的时间。"),
            f"time() - max({each(a.LAST_SUCCESS)})",
            empty=NO_ANALYSIS,
            unit="s",
            decimals=0,
            width=3,
            steps=((None, GOOD), (900, WARN), (3600, BAD)),
        ),
    ),
)

DEVICES = Row(
    Text("GPUs", "GPU 健康"),
    (
        table(
            Text("GPUs that are not healthy", "异常的 GPU"),
            Text(
                "lost: the driver no longer answers for it. unresponsive: a driver call hangs. "
                "docs/xid.md says what to do.",
                "丢失：驱动不再响应该卡。无响应：驱动调用卡住。处置方法见 docs/xid.md。",
            ),
            ("node", "gpu_index", "model", "gpu_uuid", "health"),
            Query(expr=f"({named(UNHEALTHY, **HERE)}) or on (cluster, node, gpu_uuid) ({UNHEALTHY})"),
            empty=Text("every GPU is healthy, or no agent is scraped", "所有 GPU 正常，或没有抓取到 agent"),
            width=12,
            links=(("gpu_uuid", "gpu"), ("node", "node")),
            labels_words=("health",),
        ),
        table(
            Text("XID errors in the time range", "所选时间内的 XID 错误"),
            Text(
                "Action is the advice of NVIDIA's catalogue; with restart-app only the application is affected. "
                "docs/xid.md explains each code.",
                "处置建议来自 NVIDIA 目录；restart-app 表示只影响应用。各代码见 docs/xid.md。",
            ),
            ("node", "gpu_uuid", "xid", "action", "fatal"),
            Query(expr=f"{increase(n.GPU_XIDS, **HERE)} > 0", name=Text("Count", "次数"), decimals=0),
            empty=Text("no XID error, or no agent is scraped", "没有 XID 错误，或没有抓取到 agent"),
            width=12,
            links=(("gpu_uuid", "gpu"), ("node", "node")),
            sort=Text("Count", "次数"),
        ),
        lines(
            Text("GPUs by health", "各健康状态的 GPU 数"),
            Text("Health over time; a gap: no agent reported.", "健康状态随时间的变化；空白表示没有 agent 上报。"),
            (f"sum by (health) ({each(n.GPU_HEALTH, **HERE)})", "{{health}}"),
            empty=NO_AGENT,
            kind="stack",
            words="health",
            decimals=0,
        ),
        lines(
            Text("Hottest GPU of each node", "各节点最高温度"),
            Text("The highest core temperature of the node.", "节点上最高的核心温度。"),
            (f"max by (node) ({each(n.GPU_TEMPERATURE, **HERE)})", "{{node}}"),
            few=True,
            empty=NO_AGENT,
            unit="celsius",
            least=None,
            steps=HOT,
            link="node",
        ),
        table(
            Text("Memory errors", "显存错误"),
            Text(
                "Rows remapped over the life of the GPU, whether a remap waits for a reset, and whether one failed. "
                "A failed remap: replace the GPU.",
                "GPU 生命周期内重映射的行数、是否有重映射等待重置，以及是否失败。重映射失败应更换 GPU。",
            ),
            ("node", "gpu_uuid"),
            Query(
                expr=each(n.GPU_ECC_UNCORRECTED, **HERE),
                name=Text("Uncorrected", "未纠正"),
                decimals=0,
                steps=((None, NEUTRAL), (1, BAD)),
            ),
            Query(expr=each(n.GPU_ECC_CORRECTED, **HERE), name=Text("Corrected", "已纠正"), decimals=0),
            Query(
                expr=each(n.GPU_REMAPPED_UNCORRECTED, **HERE),
                name=Text("Rows, uncorrected", "重映射行（未纠正）"),
                decimals=0,
            ),
            Query(
                expr=each(n.GPU_REMAPPED_CORRECTED, **HERE),
                name=Text("Rows, corrected", "重映射行（已纠正）"),
                decimals=0,
            ),
            Query(
                expr=each(n.GPU_REMAP_PENDING, **HERE),
                name=Text("Remap pending", "待重映射"),
                decimals=0,
                steps=((None, NEUTRAL), (1, WARN)),
            ),
            Query(
                expr=each(n.GPU_REMAP_FAILED, **HERE),
                name=Text("Remap failed", "重映射失败"),
                decimals=0,
                steps=((None, NEUTRAL), (1, BAD)),
            ),
            empty=Text(
                "no data: no GPU reports ECC, or no agent is scraped", "无数据：没有 GPU 上报 ECC，或没有抓取到 agent"
            ),
            links=(("gpu_uuid", "gpu"), ("node", "node")),
            sort=Text("Uncorrected", "未纠正"),
        ),
    ),
)

AGENTS = Row(
    Text("Node agents", "节点 agent"),
    (
        lines(
            Text("Age of the last sample", "最近采样的时效"),
            Text(
                "Time since the agent's last sample of the node. It grows if the agent hangs or is not scraped.",
                "距 agent 最近一次采样的时间。agent 卡住或未被抓取时会增长。",
            ),
            (f"time() - {each(n.SAMPLE_TIME, **HERE)}", "{{node}}"),
            few=True,
            empty=NO_AGENT,
            unit="s",
            steps=STALE,
            link="node",
        ),
        table(
            Text("Sources that fail", "失效的数据来源明细"),
            Text(
                "Sources whose last read failed, and the age of the last good read. Their values are absent, not 0.",
                "最近一次读取失败的来源，以及上次成功读取的时间。其数值缺失，而不是 0。",
            ),
            ("node", "source"),
            Query(
                expr=f"{each(n.SOURCE_AGE_SECONDS, **HERE)} and ({BLIND})",
                name=Text("Last good read", "上次成功读取"),
                unit="s",
                decimals=0,
                steps=STALE,
            ),
            empty=Text("every source is read, or no agent is scraped", "所有来源正常，或没有抓取到 agent"),
            width=12,
            links=(("node", "node"),),
        ),
        lines(
            Text("Errors of agents", "agent 的错误"),
            Text("New errors by code; docs/errors.md explains each.", "新增错误，按代码；含义见 docs/errors.md。"),
            (f"sum by (node, code) ({increase(n.ERRORS, window=WINDOW, **HERE)})", "{{node}} {{code}}"),
            few=True,
            empty=FINE,
            decimals=0,
        ),
        lines(
            Text("Duration of a sample", "单次采样耗时"),
            Text("How long the last sample took, end to end.", "最近一次采样的总耗时。"),
            (each(n.SAMPLE_SECONDS, **HERE), "{{node}}"),
            few=True,
            empty=NO_AGENT,
            unit="s",
        ),
        table(
            Text("HAMi regions and dropped values", "HAMi region 与丢弃的值"),
            Text(
                "Regions read; regions left behind by ended pods; values that were impossible and dropped, and values "
                "corrected, in the time range.",
                "读取的 region；已结束 Pod 留下的 region；所选时间内因不可能而丢弃的值与被纠正的值。",
            ),
            ("node",),
            Query(expr=each(n.REGIONS, **HERE), name=Text("Regions", "region 数"), decimals=0),
            Query(
                expr=each(n.REGIONS_ORPHANED, **HERE),
                name=Text("Left behind", "遗留"),
                decimals=0,
                steps=((None, NEUTRAL), (1, WARN)),
            ),
            Query(
                expr=f"sum by (cluster, node) ({increase(n.DROPPED, **HERE)})",
                name=Text("Dropped", "丢弃"),
                decimals=0,
                steps=((None, NEUTRAL), (1, WARN)),
            ),
            Query(
                expr=f"sum by (cluster, node) ({increase(n.CORRECTIONS, **HERE)})",
                name=Text("Corrected", "纠正"),
                decimals=0,
            ),
            Query(
                expr=f"sum by (cluster, node) ({each(n.WITHOUT_SERIES, **HERE)})",
                name=Text("Without series", "无序列"),
                decimals=0,
                steps=((None, NEUTRAL), (1, WARN)),
            ),
            empty=NO_AGENT,
            width=12,
            links=(("node", "node"),),
        ),
        table(
            Text("Regions that are refused", "被拒绝的 region"),
            Text(
                "Refused: the layout is unknown or broken. Their containers have no HAMi numbers.",
                "被拒绝：格式未知或损坏。这些容器没有 HAMi 数据。",
            ),
            ("node", "reason"),
            Query(expr=f"{each(n.REGIONS_REFUSED, **HERE)} > 0", name=Text("Refused", "被拒绝"), decimals=0),
            empty=Text("no region is refused, or no agent is scraped", "没有被拒绝的 region，或没有抓取到 agent"),
            width=12,
            links=(("node", "node"),),
        ),
        lines(
            Text("Memory of agents", "agent 的内存"),
            Text("Resident memory of each agent.", "各 agent 的常驻内存。"),
            (of_agents(n.PROCESS_RSS), "{{node}}"),
            few=True,
            empty=NO_AGENT,
            unit="bytes",
        ),
        lines(
            Text("CPU of agents", "agent 的 CPU"),
            Text("CPU time in a second; 1 is one core.", "每秒占用的 CPU 时间；1 表示一个核。"),
            (of_agents(n.PROCESS_CPU, counter=True), "{{node}}"),
            few=True,
            empty=NO_AGENT,
            decimals=3,
        ),
    ),
)

EXPORTER = Row(
    Text("Cluster exporter", "集群 exporter"),
    (
        table(
            Text("Watches", "watch 状态"),
            Text(
                "What the exporter watches, how many objects it knows, and when the API server last said anything.",
                "exporter 正在 watch 的种类、已知对象数，以及 API server 最近一次消息的时间。",
            ),
            ("kind",),
            Query(expr=each(c.WATCH_UP), name=Text("Up", "正常"), words="yes"),
            Query(expr=each(c.WATCH_OBJECTS), name=Text("Objects", "对象数"), decimals=0),
            Query(expr=each(c.WATCH_AGE), name=Text("Last message", "最近消息"), unit="s", decimals=0),
            Query(
                expr=each(c.WATCH_FAULTS),
                name=Text("Not readable", "无法读取"),
                decimals=0,
                steps=((None, NEUTRAL), (1, WARN)),
            ),
            empty=NO_CLUSTER,
            width=12,
        ),
        lines(
            Text("Findings", "对账发现"),
            Text(
                "Findings by kind over time. docs/reconciliation.md explains each.",
                "各种矛盾随时间的变化。含义见 docs/reconciliation.md。",
            ),
            (f"sum by (kind) ({each(c.FINDINGS)})", "{{kind}}"),
            empty=Text(
                "no contradiction, or the cluster exporter is not scraped", "没有矛盾，或没有抓取到集群 exporter"
            ),
            decimals=0,
        ),
    ),
)

ANALYZER = Row(
    Text("Analyzer", "分析器"),
    (
        lines(
            Text("Analyses", "分析次数"),
            Text(
                "Analyses that ended, and those that failed completely or in part, per minute.",
                "每分钟完成的分析，以及全部或部分失败的分析。",
            ),
            (f"60 * sum({rate(a.ANALYSES)})", Text("ended", "完成")),
            (f"60 * sum({rate(a.ANALYSIS_ERRORS)})", Text("with errors", "有错误")),
            empty=NO_ANALYSIS,
            decimals=2,
            width=8,
            fixed=((Text("ended", "完成"), GOOD), (Text("with errors", "有错误"), BAD)),
        ),
        lines(
            Text("Duration of an analysis", "分析耗时"),
            Text("Median and 95th percentile over an hour.", "一小时内的中位数与 95 分位。"),
            (quantile(0.5, a.ANALYSIS_SECONDS, window="1h"), "p50"),
            (quantile(0.95, a.ANALYSIS_SECONDS, window="1h"), "p95"),
            empty=NO_ANALYSIS,
            unit="s",
            width=8,
        ),
        lines(
            Text("Scrape targets", "抓取目标"),
            Text("Targets that the analyzer expects, by state.", "分析器期望的抓取目标，按状态。"),
            (f"sum by (state) ({each(a.TARGETS)})", "{{state}}"),
            empty=Text(
                "no data: the analyzer's source does not know its targets", "无数据：分析器的数据源不知道抓取目标"
            ),
            kind="stack",
            decimals=0,
            width=8,
            fixed=((Text("up", "up"), GOOD), (Text("down", "down"), BAD)),
        ),
        table(
            Text("Faults of the last analysis", "最近一次分析的故障"),
            Text(
                "Parts of the last analysis that failed, by code (docs/errors.md).",
                "最近一次分析中失败的部分，按代码（docs/errors.md）。",
            ),
            ("code",),
            Query(expr=f"{each(a.FAULTS)} > 0", name=Text("Faults", "故障"), decimals=0),
            empty=Text(
                "the last analysis was complete, or the analyzer is not scraped", "最近一次分析完整，或没有抓取到分析器"
            ),
            width=12,
            height=5,
        ),
        figure(
            Text("Leaders", "主副本数"),
            Text(
                "Replicas of the analyzer that are the leader. More than one per cluster would write twice.",
                "担任主副本的分析器数。每个集群应为 1；多于 1 会重复写入。",
            ),
            f"sum by (cluster) (max by (cluster, job, instance) ({select(a.LEADER)}))",
            empty=NO_ANALYSIS,
            decimals=0,
            width=6,
            height=5,
            steps=((None, BAD), (1, GOOD)),
        ),
        figure(
            Text("Results not yet saved", "尚未保存的结果"),
            Text(
                "Analyses that wait in memory because the store of results is down.",
                "因结果存储不可用而留在内存中的分析。",
            ),
            f"sum({each(a.UNSAVED)})",
            empty=NO_ANALYSIS,
            decimals=0,
            width=6,
            height=5,
            steps=ANY_IS_WORTH_A_LOOK,
        ),
    ),
)

PLUGIN = Row(
    Text("Device plugins", "设备插件"),
    (
        figure(
            Text("GPUs offered to kubelets", "向 kubelet 提供的 GPU"),
            Text("Physical GPUs that device plugins know.", "设备插件已知的物理 GPU 数。"),
            f"count({each(d.HEALTHY, node='$node')})",
            empty=NO_PLUGIN,
            decimals=0,
            width=6,
        ),
        figure(
            Text("Unhealthy to the plugin", "插件判定不健康"),
            Text(
                "GPUs that get no new pods, because the driver lost them or reported a severe XID.",
                "因驱动丢失或严重 XID 而不再接受新 Pod 的 GPU 数。",
            ),
            or_zero(f"count({each(d.HEALTHY, node='$node')} == 0)", d.HEALTHY),
            empty=NO_PLUGIN,
            decimals=0,
            width=6,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Kubelets without GPUs", "未注册的节点"),
            Text(
                "Nodes whose device plugin is not registered with the kubelet: no pod with a GPU starts there.",
                "设备插件未在 kubelet 注册的节点数：GPU Pod 无法在其上启动。",
            ),
            or_zero(f"count({each(d.KUBELET_UP, node='$node')} == 0)", d.KUBELET_UP),
            empty=NO_PLUGIN,
            decimals=0,
            width=6,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Nodes without limits", "没有上限的节点"),
            Text(
                "Nodes without HAMi's library: containers share GPUs by time only, and no limit is enforced.",
                "没有 HAMi 库的节点数：容器只按时间共享 GPU，上限不生效。",
            ),
            or_zero(f"count({each(d.LIMITS, node='$node')} == 0)", d.LIMITS),
            empty=NO_PLUGIN,
            decimals=0,
            width=6,
            steps=ANY_IS_WORTH_A_LOOK,
        ),
        table(
            Text("Device health", "设备健康"),
            Text(
                "Every GPU that a device plugin offers: 1 is healthy. docs/xid.md says which XIDs make one unhealthy.",
                "设备插件提供的每张 GPU：1 为健康。哪些 XID 会使其不健康见 docs/xid.md。",
            ),
            ("node", "device"),
            Query(expr=each(d.HEALTHY, node="$node"), name=Text("Healthy", "健康"), decimals=0, words="yes"),
            empty=NO_PLUGIN,
            width=12,
            links=(("node", "node"),),
            sort=Text("Healthy", "健康"),
            ascending=True,
        ),
        table(
            Text("Why GPUs are unhealthy", "不健康的原因"),
            Text(
                "The driver's state, or the XID. The GPU is healthy again when the fault is cleared (docs/plugin.md).",
                "驱动状态或 XID。故障清除后 GPU 恢复健康（docs/plugin.zh-CN.md）。",
            ),
            ("node", "gpu_uuid", "reason"),
            Query(expr=each(d.UNHEALTHY, node="$node"), name=Text("Reported", "已报告"), decimals=0, words="yes"),
            empty=Text("every GPU is healthy, or no device plugin is scraped", "所有 GPU 健康，或没有抓取到设备插件"),
            width=12,
            links=(("gpu_uuid", "gpu"), ("node", "node")),
        ),
        lines(
            Text("Duration of Allocate", "Allocate 耗时"),
            Text(
                "How long the kubelet's Allocate calls took, over an hour; a container starts after it.",
                "一小时内 kubelet 的 Allocate 调用耗时；容器在其之后启动。",
            ),
            *((share_below(q, d.ALLOCATE_SECONDS, window="1h"), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99)),
            empty=NO_PLUGIN,
            unit="s",
        ),
        lines(
            Text("Allocations and failures", "分配与失败"),
            Text(
                "Containers that got their GPUs, and Allocate calls that failed, by code (docs/errors.md), per hour.",
                "每小时成功分配的容器数，以及失败的 Allocate 调用（按代码，见 docs/errors.md）。",
            ),
            (f"sum({increase(d.ALLOCATIONS, window='1h', node='$node')})", Text("allocated", "已分配")),
            (f"sum by (code) ({increase(d.FAILURES, window='1h', node='$node')})", "{{code}}"),
            empty=NO_PLUGIN,
            decimals=0,
            fixed=((Text("allocated", "已分配"), GOOD),),
        ),
    ),
)

BOARD = Board(
    name="health",
    title=Text("Health", "健康"),
    about=Text(
        "Do GPUs fail, and do agents, device plugins, cluster exporter and analyzer see everything?",
        "GPU 有没有故障？agent、设备插件、集群 exporter 和分析器是否都工作正常？",
    ),
    variables=(CLUSTER, NODE, CONSOLE_URL),
    rows=(FIGURES, DEVICES, PLUGIN, AGENTS, EXPORTER, ANALYZER),
)
