"""How is the cluster doing?"""

from tools.dashboards.boards.parts import (
    ANY_IS_BAD,
    ANY_IS_WORTH_A_LOOK,
    CLASSES_OVER_TIME,
    FULL,
    HOT,
    PENDING_FIGURE,
    bars,
    figure,
    lines,
    table,
)
from tools.dashboards.promql import each, increase
from tools.dashboards.spec import NO_AGENT, NO_ANALYSIS, NO_CLUSTER, Board, Query, Row
from tools.dashboards.variables import CLUSTER, CONSOLE_URL
from tools.dashboards.words import BAD, NEUTRAL, QUIET, WARN, Text
from vgpuscope.catalog import agent as n
from vgpuscope.catalog import analyzer as a
from vgpuscope.catalog import cluster as c

ALLOCATABLE = f"sum({each(c.CLUSTER_CAPACITY.memory)})"
ALLOCATED = f"sum({each(c.CLUSTER_CAPACITY.memory_allocated)})"
PHYSICAL = f"sum({each(n.GPU_MEMORY_TOTAL)})"
USED = f"sum({each(n.GPU_MEMORY_USED)})"

FIGURES = Row(
    None,
    (
        figure(
            Text("GPUs", "GPU 总数"),
            Text(
                "Physical GPUs that the agents see. A GPU that is shared or in MIG mode counts once.",
                "agent 看到的物理 GPU。共享或启用 MIG 的 GPU 只计一次。",
            ),
            f"count({each(n.GPU_INFO, 'gpu_uuid')})",
            empty=NO_AGENT,
            decimals=0,
        ),
        figure(
            Text("GPUs not healthy", "异常 GPU"),
            Text(
                "GPUs whose health is not ok: lost, reset required, unresponsive, or not readable.",
                "健康状态不是正常的 GPU：丢失、需要重置、无响应或无法读取。",
            ),
            f"sum({each(n.GPU_HEALTH, health='!ok')})",
            empty=NO_AGENT,
            decimals=0,
            steps=ANY_IS_BAD,
        ),
        figure(
            Text("GPU utilisation", "GPU 利用率"),
            Text(
                "Mean over all GPUs of the share of time in which a kernel ran. "
                "It does not show how many SMs were busy. "
                "GPUs in MIG mode do not report it and are not counted.",
                "所有 GPU 上有 kernel 运行的时间占比的平均值。它不反映有多少 SM 在工作。"
                "启用 MIG 的 GPU 不上报，不计在内。",
            ),
            f"avg({each(n.GPU_UTILIZATION)})",
            empty=NO_AGENT,
            unit="percentunit",
            decimals=1,
        ),
        figure(
            Text("Memory that can be allocated", "集群总显存（可分配）"),
            Text(
                "Memory of usable GPUs as the device plugins register it. With memory scaling it exceeds the physical "
                "memory. Lost and cordoned GPUs are not included.",
                "可用 GPU 的显存，以设备插件的注册为准。开启显存超分时大于物理显存；不含丢失和被隔离的 GPU。",
            ),
            ALLOCATABLE,
            empty=NO_CLUSTER,
            unit="bytes",
            decimals=1,
        ),
        figure(
            Text("Memory allocated", "集群已分配显存"),
            Text("Memory that the scheduler has allocated to containers.", "调度器已分配给容器的显存。"),
            ALLOCATED,
            empty=NO_CLUSTER,
            unit="bytes",
            decimals=1,
        ),
        figure(
            Text("Allocation rate", "集群 GPU 分配率"),
            Text(
                "Memory allocated, as a share of the memory that can be allocated.",
                "已分配显存占可分配显存的比例。",
            ),
            f"{ALLOCATED} / {ALLOCATABLE}",
            empty=NO_CLUSTER,
            unit="percentunit",
            decimals=1,
            steps=FULL,
        ),
        figure(
            Text("Memory in use", "显存使用率"),
            Text(
                "Physical memory in use, as a share of the physical memory of all GPUs. "
                "What the driver reserves is not counted as used.",
                "实际使用的显存占全部物理显存的比例，不含驱动保留部分。",
            ),
            f"{USED} / {PHYSICAL}",
            empty=NO_AGENT,
            unit="percentunit",
            decimals=1,
            steps=FULL,
        ),
        figure(
            Text("Idle GPUs that hold memory", "空闲但占用显存的 GPU"),
            Text(
                "GPUs on which nothing ran in the whole window of the analyzer, while pods hold memory of them.",
                "在分析器的整个窗口内没有任何计算，却仍被 Pod 占用显存的 GPU。",
            ),
            f"sum({each(a.CLASSES, **{'class': 'idle-held'})})",
            empty=NO_ANALYSIS,
            decimals=0,
            steps=ANY_IS_WORTH_A_LOOK,
        ),
        figure(
            Text("GPUs without a verdict", "无法判断的 GPU"),
            Text(
                "GPUs with too few samples to judge. They are not idle; they are unknown.",
                "样本不足、无法判断的 GPU。它们不是空闲，而是未知。",
            ),
            f"sum({each(a.GPUS, verdict='unknown')})",
            empty=NO_ANALYSIS,
            decimals=0,
            steps=ANY_IS_WORTH_A_LOOK,
        ),
        PENDING_FIGURE,
        figure(
            Text("Power", "功率"),
            Text("Power draw of all GPUs.", "所有 GPU 的功率之和。"),
            f"sum({each(n.GPU_POWER)})",
            empty=NO_AGENT,
            unit="watt",
            decimals=1,
        ),
        figure(
            Text("Energy in the time range", "所选时间内的能耗"),
            Text("Energy of all GPUs in the time range shown.", "所选时间范围内所有 GPU 的能耗。"),
            f"sum({increase(n.GPU_ENERGY)}) / 3600000",
            empty=NO_AGENT,
            unit="kwatth",
            decimals=2,
        ),
    ),
)

USE = Row(
    Text("Use", "使用情况"),
    (
        CLASSES_OVER_TIME,
        lines(
            Text("Utilisation and memory", "利用率与显存"),
            Text(
                "Means over all GPUs; allocated memory is of the GPUs that are registered with HAMi or DRA. "
                "Allocated far above used: memory that others cannot get.",
                "所有 GPU 的平均；分配率只统计已向 HAMi 或 DRA 注册的 GPU。分配率远高于使用率，说明有显存别人拿不到。",
            ),
            (f"avg({each(n.GPU_UTILIZATION)})", Text("utilisation", "利用率")),
            (f"{USED} / {PHYSICAL}", Text("memory used", "显存使用率")),
            (f"{ALLOCATED} / {ALLOCATABLE}", Text("memory allocated", "显存分配率")),
            empty=NO_AGENT,
            unit="percentunit",
            fixed=(
                (Text("utilisation", "利用率"), NEUTRAL),
                (Text("memory used", "显存使用率"), "#3d8f5f"),
                (Text("memory allocated", "显存分配率"), WARN),
            ),
        ),
        lines(
            Text("Memory: allocatable, allocated, used", "显存：可分配、已分配、已使用"),
            Text(
                "Of the GPUs that are registered with HAMi or DRA. "
                "Allocatable and allocated are the scheduler's numbers, used is the driver's.",
                "仅统计已向 HAMi 或 DRA 注册的 GPU。可分配与已分配来自调度器，已使用来自驱动。",
            ),
            (ALLOCATABLE, Text("allocatable", "可分配")),
            (ALLOCATED, Text("allocated", "已分配")),
            (
                f"sum({each(n.GPU_MEMORY_USED)} and on (cluster, node, gpu_uuid) {each(c.DEVICE_MEMORY)})",
                Text("used", "已使用"),
            ),
            empty=NO_CLUSTER,
            unit="bytes",
            fixed=(
                (Text("allocatable", "可分配"), QUIET),
                (Text("allocated", "已分配"), WARN),
                (Text("used", "已使用"), NEUTRAL),
            ),
        ),
        bars(
            Text("Allocation rate by node", "各节点分配率"),
            Text(
                "Memory allocated on usable GPUs of the node, as a share of what can be allocated there. "
                "The 20 highest.",
                "节点可用 GPU 上已分配显存占可分配显存的比例，取最高的 20 个。",
            ),
            f"sort_desc(topk(20, {each(c.NODE_CAPACITY.memory_allocated)} / ({each(c.NODE_CAPACITY.memory)} > 0)))",
            "{{node}}",
            empty=NO_CLUSTER,
            unit="percentunit",
            most=1,
            steps=FULL,
            link="node",
        ),
    ),
)

NODES = Row(
    Text("Nodes", "节点"),
    (
        table(
            Text("Nodes", "节点一览"),
            Text(
                "One row for each node with GPUs. An empty cell was not measured; it is not 0.",
                "每个有 GPU 的节点一行。空单元格表示未测到，而不是 0。",
            ),
            ("node",),
            Query(
                expr=f"count by (cluster, node) ({each(n.GPU_INFO, 'node', 'gpu_uuid')})", name=Text("GPUs", "GPU 数")
            ),
            Query(
                expr=f"avg by (cluster, node) ({each(n.GPU_UTILIZATION)})",
                name=Text("Utilisation", "利用率"),
                unit="percentunit",
                decimals=1,
                cell="gauge",
            ),
            Query(
                expr=f"sum by (cluster, node) ({each(n.GPU_MEMORY_USED)})"
                f" / sum by (cluster, node) ({each(n.GPU_MEMORY_TOTAL)})",
                name=Text("Memory used", "显存使用率"),
                unit="percentunit",
                decimals=1,
                cell="gauge",
                steps=FULL,
            ),
            Query(
                expr=f"{each(c.NODE_CAPACITY.memory_allocated)} / ({each(c.NODE_CAPACITY.memory)} > 0)",
                name=Text("Memory allocated", "显存分配率"),
                unit="percentunit",
                decimals=1,
                cell="gauge",
                steps=FULL,
            ),
            Query(expr=each(c.NODE_CAPACITY.free_slots), name=Text("Free slots", "空闲槽位"), decimals=0),
            Query(
                expr=f"sum by (cluster, node) ({each(n.GPU_POWER)})",
                name=Text("Power", "功率"),
                unit="watt",
                decimals=1,
            ),
            Query(
                expr=f"max by (cluster, node) ({each(n.GPU_TEMPERATURE)})",
                name=Text("Hottest GPU", "最高温度"),
                unit="celsius",
                decimals=0,
                steps=HOT,
            ),
            Query(expr=each(c.NODE_READY), name=Text("Ready", "就绪"), words="yes"),
            empty=NO_AGENT,
            links=(("node", "node"),),
            sort=Text("Utilisation", "利用率"),
        ),
    ),
)

ATTENTION = Row(
    Text("Needs attention", "需要关注"),
    (
        table(
            Text("Idle for longest", "空闲最久的 Pod"),
            Text(
                "The ten pods whose verdict has been idle for longest, on each of their GPUs.",
                "判定为空闲时间最长的十个 Pod（按其所在 GPU 分别列出）。",
            ),
            ("namespace", "pod", "hostname", "gpu_id"),
            Query(
                expr=f"topk(10, {each(a.TENANT_IDLE, 'namespace', 'pod', 'hostname', 'gpu_id')} > 0)",
                name=Text("Idle for", "已空闲"),
                unit="dtdurations",
                decimals=1,
                steps=((None, NEUTRAL), (3600, WARN), (86400, BAD)),
            ),
            empty=Text("no pod is idle, or the analyzer is not scraped", "没有空闲的 Pod，或没有抓取到分析器"),
            width=12,
            links=(("pod", "pod"), ("gpu_id", "gpu"), ("hostname", "node")),
            sort=Text("Idle for", "已空闲"),
        ),
        table(
            Text("Contradictions between scheduler, kubelet and nodes", "调度器、kubelet 与节点之间的矛盾"),
            Text(
                "Findings of the cluster exporter, for example an allocation of a pod that has ended (ghost). "
                "docs/reconciliation.md explains each kind.",
                "集群 exporter 的发现，例如已结束的 Pod 仍占着分配（ghost）。各种类的含义见 docs/reconciliation.md。",
            ),
            ("kind", "node", "reason"),
            Query(expr=f"{each(c.FINDINGS)} > 0", name=Text("Count", "数量"), decimals=0),
            empty=Text(
                "no contradiction, or the cluster exporter is not scraped", "没有矛盾，或没有抓取到集群 exporter"
            ),
            width=12,
            links=(("node", "node"),),
            sort=Text("Count", "数量"),
        ),
    ),
)

BOARD = Board(
    name="overview",
    title=Text("Cluster overview", "集群总览"),
    about=Text(
        "How many GPUs are there, how many are allocated, how many are used, and what needs attention?",
        "有多少 GPU，分配了多少，用了多少，哪里需要关注？",
    ),
    variables=(CLUSTER, CONSOLE_URL),
    rows=(FIGURES, USE, NODES, ATTENTION),
)
