"""What does each GPU of a node do?"""

from tools.dashboards.boards.parts import ANY_IS_BAD, FULL, HOT, STALE, class_timeline, figure, lines, table
from tools.dashboards.promql import WINDOW, each, increase, named, rate, shortened, with_labels
from tools.dashboards.spec import NO_AGENT, NO_ANALYSIS, Board, Panel, Query, Row
from tools.dashboards.variables import CLUSTER, CONSOLE_URL, GPU, ONE_NODE
from tools.dashboards.words import LABELS, Text
from vgpuscope.catalog import agent as n
from vgpuscope.catalog.metric import Metric

HERE = {"node": "$node", "gpu_uuid": "$gpu"}
NAME = "{{node}} / {{gpu_index}} {{model}}"
ANALYSED = {"hostname": "$node", "gpu_id": "$gpu"}


def of_gpus(metric: Metric) -> str:
    """A metric of the chosen GPUs, with index and model."""
    return named(each(metric, **HERE), **HERE)


def share(part: Metric, whole: Metric) -> str:
    """One metric of a GPU as a share of another."""
    return f"{each(part, **HERE)} / {each(whole, **HERE)}"


FIGURES = Row(
    None,
    (
        figure(
            Text("GPUs", "GPU 数"),
            Text("Physical GPUs of the chosen nodes.", "所选节点上的物理 GPU。"),
            f"count({each(n.GPU_INFO, 'gpu_uuid', **HERE)})",
            empty=NO_AGENT,
            width=3,
            decimals=0,
        ),
        figure(
            Text("Not healthy", "异常 GPU"),
            Text("GPUs whose health is not ok.", "健康状态不是正常的 GPU。"),
            f"sum({each(n.GPU_HEALTH, health='!ok', **HERE)})",
            empty=NO_AGENT,
            width=3,
            decimals=0,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("Utilisation", "利用率"),
            Text(
                "Mean share of time in which a kernel ran. It does not show how many SMs were busy.",
                "有 kernel 运行的时间占比的平均值，不反映有多少 SM 在工作。",
            ),
            f"avg({each(n.GPU_UTILIZATION, **HERE)})",
            empty=NO_AGENT,
            width=3,
            unit="percentunit",
            decimals=1,
        ),
        figure(
            Text("Memory in use", "显存使用率"),
            Text("Memory in use, as a share of the physical memory.", "已用显存占物理显存的比例。"),
            f"sum({each(n.GPU_MEMORY_USED, **HERE)}) / sum({each(n.GPU_MEMORY_TOTAL, **HERE)})",
            empty=NO_AGENT,
            width=3,
            unit="percentunit",
            decimals=1,
            steps=FULL,
        ),
        figure(
            Text("Power", "功率"),
            Text("Power draw of the chosen GPUs.", "所选 GPU 的功率之和。"),
            f"sum({each(n.GPU_POWER, **HERE)})",
            empty=NO_AGENT,
            width=3,
            unit="watt",
            decimals=1,
        ),
        figure(
            Text("Hottest GPU", "最高温度"),
            Text("The highest core temperature.", "最高的核心温度。"),
            f"max({each(n.GPU_TEMPERATURE, **HERE)})",
            empty=NO_AGENT,
            width=3,
            unit="celsius",
            decimals=0,
            steps=HOT,
        ),
        figure(
            Text("Containers", "容器数"),
            Text("Containers that hold or use the chosen GPUs.", "持有或使用所选 GPU 的容器。"),
            f"sum({each(n.GPU_SHARERS, **HERE)})",
            empty=NO_AGENT,
            width=3,
            decimals=0,
        ),
        figure(
            Text("Oldest sample", "最旧的采样"),
            Text(
                "Time since the last sample of the node that has been silent for longest. "
                "The agent samples every second by default.",
                "沉默最久的节点距最近一次采样的时间。agent 默认每秒采样一次。",
            ),
            f"max(time() - {each(n.SAMPLE_TIME, node='$node')})",
            empty=NO_AGENT,
            width=3,
            unit="s",
            decimals=0,
            steps=STALE,
        ),
    ),
)

MODE = with_labels(
    each(n.GPU_SHARERS, **HERE),
    "cluster, node, gpu_uuid",
    "mode, health",
    with_labels(
        f"{each(n.GPU_MODE, **HERE)} == 1",
        "cluster, node, gpu_uuid",
        "health",
        f"{each(n.GPU_HEALTH, **HERE)} == 1",
    ),
)

GPUS = Row(
    Text("GPUs", "GPU 一览"),
    (
        table(
            Text("GPUs of the node", "节点的 GPU"),
            Text(
                "One row for each GPU. Power limit is the enforced limit of the GPU. An empty cell was not measured.",
                "每张 GPU 一行。功率上限是该 GPU 当前生效的上限。空单元格表示未测到。",
            ),
            ("node", "gpu_index", "model", "gpu_uuid"),
            Query(
                expr=named(each(n.GPU_UTILIZATION, **HERE), **HERE),
                name=Text("Utilisation", "利用率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
            ),
            Query(
                expr=named(share(n.GPU_MEMORY_USED, n.GPU_MEMORY_TOTAL), **HERE),
                name=Text("Memory", "显存使用率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
                steps=FULL,
            ),
            Query(expr=of_gpus(n.GPU_MEMORY_TOTAL), name=Text("Memory total", "显存总量"), unit="bytes", decimals=0),
            Query(expr=of_gpus(n.GPU_SHARERS), name=Text("Containers", "容器数"), decimals=0),
            Query(expr=of_gpus(n.GPU_POWER), name=Text("Power", "功率"), unit="watt", decimals=1),
            Query(expr=of_gpus(n.GPU_POWER_LIMIT), name=Text("Power limit", "功率上限"), unit="watt", decimals=1),
            Query(expr=of_gpus(n.GPU_TEMPERATURE), name=Text("Temp.", "温度"), unit="celsius", decimals=0, steps=HOT),
            empty=NO_AGENT,
            links=(("gpu_uuid", "gpu"), ("node", "node")),
            sort=LABELS["gpu_index"],
            ascending=True,
        ),
        table(
            Text("Mode and health", "共享方式与健康"),
            Text(
                "How each GPU is shared, its health, and how many containers hold or use it.",
                "每张 GPU 的共享方式、健康状态，以及持有或使用它的容器数。",
            ),
            ("node", "gpu_uuid", "mode", "health"),
            Query(expr=MODE, name=Text("Containers", "容器数"), decimals=0),
            empty=NO_AGENT,
            width=12,
            links=(("gpu_uuid", "gpu"),),
            labels_words=("health",),
            sort=Text("Containers", "容器数"),
        ),
        Panel(
            kind="timeline",
            title=Text("Class of each GPU", "各 GPU 的类别"),
            about=Text(
                "What the analyzer found out about each GPU or MIG instance, over time. A gap: no analysis.",
                "分析器对每张 GPU 或 MIG 实例的判定随时间的变化。空白表示当时没有分析结果。",
            ),
            queries=(Query(expr=class_timeline(**ANALYSED), name="{{hostname}} {{gpu}} {{instance}}"),),
            empty=NO_ANALYSIS,
            words="class",
            width=12,
            least=None,
        ),
    ),
)

USE = Row(
    Text("Use", "使用情况"),
    (
        lines(
            Text("GPU utilisation", "GPU 核心利用率"),
            Text(
                "Mean between two points, from the counter of busy seconds: nothing is missed between two scrapes. "
                "Share of time in which a kernel ran.",
                "两点之间的平均值，来自忙碌秒数计数器，不会漏掉两次抓取之间的活动。含义是有 kernel 运行的时间占比。",
            ),
            (named(rate(n.GPU_BUSY, **HERE), **HERE), NAME),
            empty=NO_AGENT,
            unit="percentunit",
            most=1,
            link="gpu",
        ),
        lines(
            Text("Memory in use by GPU", "物理显存使用率"),
            Text(
                "Memory in use, as a share of the physical memory of the same GPU, without what the driver reserves.",
                "已用显存占该 GPU 物理显存的比例，不含驱动保留部分。",
            ),
            (named(share(n.GPU_MEMORY_USED, n.GPU_MEMORY_TOTAL), **HERE), NAME),
            empty=NO_AGENT,
            unit="percentunit",
            most=1,
            link="gpu",
        ),
        lines(
            Text("Memory by owner", "显存归属"),
            Text(
                "Containers + system + unattributed + free add up to the memory of the GPUs. "
                "Unattributed: memory whose process no pod has.",
                "容器、驱动与系统、无归属、空闲之和等于显存总量。无归属：进程不属于任何 Pod 的显存。",
            ),
            (f"sum by (owner) ({each(n.GPU_MEMORY_LEDGER, **HERE)})", "{{owner}}"),
            empty=NO_AGENT,
            kind="stack",
            unit="bytes",
            words="owner",
        ),
        lines(
            Text("Memory traffic", "显存读写占比"),
            Text(
                "Share of time in which memory was read or written. It does not show how full the memory is.",
                "显存被读写的时间占比，不反映显存占用多少。",
            ),
            (of_gpus(n.GPU_MEMORY_CONTROLLER), NAME),
            empty=NO_AGENT,
            unit="percentunit",
            most=1,
            link="gpu",
        ),
    ),
)

POWER = Row(
    Text("Power, temperature, clocks", "功率、温度与频率"),
    (
        lines(
            Text("Power as a share of the limit", "功率占上限的比例"),
            Text(
                "Power draw divided by the enforced limit of the same GPU. "
                "300 W is impossible for an A10 and little for a B200.",
                "功率除以该 GPU 当前生效的功率上限：300 W 对 A10 不可能，对 B200 则很低。",
            ),
            (named(share(n.GPU_POWER, n.GPU_POWER_LIMIT), **HERE), NAME),
            empty=NO_AGENT,
            unit="percentunit",
            link="gpu",
        ),
        lines(
            Text("Temperature", "温度"),
            Text("Core temperature.", "核心温度。"),
            (of_gpus(n.GPU_TEMPERATURE), NAME),
            empty=NO_AGENT,
            unit="celsius",
            least=None,
            steps=HOT,
            link="gpu",
        ),
        lines(
            Text("SM clock as a share of the maximum", "SM 频率占最高频率的比例"),
            Text("SM clock divided by the maximum of the same GPU.", "SM 频率除以该 GPU 的最高频率。"),
            (named(share(n.GPU_SM_CLOCK, n.GPU_SM_CLOCK_LIMIT), **HERE), NAME),
            empty=NO_AGENT,
            unit="percentunit",
            most=1,
            link="gpu",
        ),
        lines(
            Text("GPUs with lowered clocks, by reason", "降频的 GPU 数（按原因）"),
            Text(
                "GPUs whose clocks are lowered for a reason other than idleness.",
                "因空闲以外的原因被降频的 GPU 数。",
            ),
            (f"sum by (reason) ({each(n.GPU_THROTTLE, reason='!idle', **HERE)})", "{{reason}}"),
            empty=NO_AGENT,
            decimals=0,
        ),
    ),
)

ERRORS = Row(
    Text("Errors and PCIe", "故障与 PCIe"),
    (
        lines(
            Text("New XID errors", "新增 XID 错误"),
            Text(
                "XID errors that appeared, by code and NVIDIA's advice (docs/xid.md). "
                "The last code is not shown as if it still held.",
                "新出现的 XID 错误，按代码与 NVIDIA 的处置建议（docs/xid.md）。不会把最近一次的代码当作仍然存在。",
            ),
            (
                f"sum by (node, xid, action) ({increase(n.GPU_XIDS, window=WINDOW, **HERE)})",
                "{{node}} XID {{xid}} {{action}}",
            ),
            empty=Text("no XID error was seen, or no agent is scraped", "没有 XID 错误，或没有抓取到 agent"),
            decimals=0,
        ),
        lines(
            Text("ECC errors since the driver was loaded", "驱动加载以来的 ECC 错误"),
            Text(
                "Corrected errors are normal in small numbers; uncorrected ones are not.",
                "少量已纠正的错误是正常的；未纠正的错误不是。",
            ),
            (f"sum by (node) ({each(n.GPU_ECC_UNCORRECTED, **HERE)})", Text("{{node}} uncorrected", "{{node}} 未纠正")),
            (f"sum by (node) ({each(n.GPU_ECC_CORRECTED, **HERE)})", Text("{{node}} corrected", "{{node}} 已纠正")),
            empty=NO_AGENT,
            decimals=0,
        ),
        lines(
            Text("PCIe traffic", "PCIe 流量"),
            Text("Bytes sent and received over PCIe.", "经 PCIe 发送与接收的字节。"),
            (f"sum by (node) ({rate(n.GPU_PCIE_SENT, **HERE)})", Text("{{node}} sent", "{{node}} 发送")),
            (f"sum by (node) ({rate(n.GPU_PCIE_RECEIVED, **HERE)})", Text("{{node}} received", "{{node}} 接收")),
            empty=NO_AGENT,
            unit="Bps",
        ),
        lines(
            Text("Memory in use by MIG instance", "各 MIG 实例的显存使用率"),
            Text(
                "Memory in use, as a share of the memory of the MIG instance.",
                "已用显存占该 MIG 实例显存的比例。",
            ),
            (
                shortened(
                    with_labels(
                        f"{each(n.MIG_MEMORY_USED, **HERE)} / {each(n.MIG_MEMORY_TOTAL, **HERE)}",
                        "cluster, node, gpu_uuid, mig_uuid",
                        "profile",
                        each(n.MIG_INFO, "node", "gpu_uuid", "mig_uuid", "profile", **HERE),
                    ),
                    "mig_uuid",
                    "instance",
                ),
                "{{node}} {{profile}} {{instance}}",
            ),
            empty=Text("no MIG instance, or no agent is scraped", "没有 MIG 实例，或没有抓取到 agent"),
            unit="percentunit",
            most=1,
            link="gpu",
        ),
    ),
)

BOARD = Board(
    name="node",
    title=Text("Node", "节点"),
    about=Text(
        "What does each GPU of a node do, how warm is it, and does it fail?",
        "节点上的每张 GPU 在做什么，温度如何，有没有故障？",
    ),
    variables=(CLUSTER, ONE_NODE, GPU, CONSOLE_URL),
    rows=(FIGURES, GPUS, USE, POWER, ERRORS),
)
