"""Who uses what?"""

from tools.dashboards.boards.parts import ANY_IS_WORTH_A_LOOK, OVER, bars, figure, lines, table
from tools.dashboards.promql import each, increase, or_zero, rate, shortened, with_labels
from tools.dashboards.spec import NO_AGENT, NO_ANALYSIS, NO_CLUSTER, Board, Query, Row
from tools.dashboards.variables import CLUSTER, CONSOLE_URL, NAMESPACE, POD
from tools.dashboards.words import BAD, NEUTRAL, WARN, Text
from vgpuscope.catalog import agent as n
from vgpuscope.catalog import analyzer as a
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog.metric import Metric

WHO = {"namespace": "$namespace", "pod": "$pod"}
TEAM = {"namespace": "$namespace"}
NAME = "{{namespace}}/{{pod}} {{container}} {{gpu}}"
ON_GPU = "cluster, node, namespace, pod, gpu_uuid"
NO_HAMI = Text("no data: no HAMi container is measured", "无数据：没有测到 HAMi 容器")
_VGPU = ("node", "namespace", "pod", "container", "gpu_uuid")


def of_pods(metric: Metric) -> str:
    """Amounts of pods on GPUs; a pod counts with all its containers and MIG instances there."""
    return f"sum by ({ON_GPU}) ({each(metric, **WHO)})"


def vgpu_share(part: Metric, whole: Metric) -> str:
    """Use of a vGPU as a share of its own limit; without a limit there is no share."""
    own = ", ".join(("cluster", *_VGPU))
    found = f"sum by ({own}) ({each(part, **WHO)}) / (sum by ({own}) ({each(whole, **WHO)}) > 0)"
    return shortened(found, "gpu_uuid", "gpu")


ON_TENANT = ("gpu_id", "mig", "hostname", "namespace", "pod")
TENANT_CLASS = each(a.TENANT_CLASS, *ON_TENANT, "owner", "class", **WHO)

FIGURES = Row(
    None,
    (
        figure(
            Text("Pods", "使用 GPU 的 Pod"),
            Text("Pods that hold or use a GPU.", "持有或使用 GPU 的 Pod。"),
            f"count({each(n.CONTAINER_INFO, 'namespace', 'pod', 'pod_uid', **WHO)})",
            empty=NO_AGENT,
            decimals=0,
        ),
        figure(
            Text("GPUs they are on", "涉及的 GPU"),
            Text(
                "GPUs that the chosen pods hold or use. A shared GPU counts once.",
                "所选 Pod 持有或使用的 GPU，共享的 GPU 只计一次。",
            ),
            f"count({each(n.CONTAINER_INFO, 'gpu_uuid', **WHO)})",
            empty=NO_AGENT,
            decimals=0,
        ),
        figure(
            Text("Memory used", "显存占用"),
            Text("Physical GPU memory that the chosen pods use.", "所选 Pod 实际占用的物理显存。"),
            f"sum({each(n.CONTAINER_MEMORY_USED, **WHO)})",
            empty=NO_AGENT,
            unit="bytes",
            decimals=1,
        ),
        figure(
            Text("Compute used", "算力占用"),
            Text(
                "Sum of the pods' parts of the GPUs' busy time; 1 is one whole GPU.",
                "各 Pod 占 GPU 忙碌时间之和；1 表示一整张 GPU。",
            ),
            f"sum({each(n.CONTAINER_SM, **WHO)})",
            empty=NO_AGENT,
            unit="short",
            decimals=2,
        ),
        figure(
            Text("Pods idle with memory", "空闲但占用显存的 Pod"),
            Text(
                "Pods of the class idle-held on a GPU: no work in the whole window, but memory is held.",
                "类别为“空闲占显存”的 Pod：整个窗口内没有计算，却占着显存。",
            ),
            or_zero(
                f"count({each(a.TENANT_CLASS, 'namespace', 'pod', **WHO, **{'class': 'idle-held'})})", a.LAST_SUCCESS
            ),
            empty=NO_ANALYSIS,
            decimals=0,
            steps=ANY_IS_WORTH_A_LOOK,
        ),
        figure(
            Text("Power", "功率"),
            Text(
                "The pods' parts of the GPUs' power. It adds up over pods, unlike the power of their GPUs.",
                "各 Pod 在 GPU 功率中的份额，可以跨 Pod 相加（而整卡功率不能）。",
            ),
            f"sum({each(n.CONTAINER_POWER, **WHO)})",
            empty=NO_AGENT,
            unit="watt",
            decimals=1,
        ),
    ),
)

NAMESPACES = Row(
    Text("Namespaces", "命名空间"),
    (
        bars(
            Text("Memory allocated by namespace", "各命名空间已分配显存"),
            Text(
                "Memory that the scheduler has allocated to pods of the namespace.",
                "调度器分配给该命名空间 Pod 的显存。",
            ),
            f"sort_desc(topk(20, sum by (namespace) ({each(c.HOLDER_MEMORY, **TEAM)})))",
            "{{namespace}}",
            empty=NO_CLUSTER,
            unit="bytes",
            width=8,
            link="namespace",
        ),
        bars(
            Text("Memory used by namespace", "各命名空间实际使用显存"),
            Text("Physical GPU memory that pods of the namespace use.", "该命名空间的 Pod 实际占用的物理显存。"),
            f"sort_desc(topk(20, sum by (namespace) ({each(n.CONTAINER_MEMORY_USED, **TEAM)})))",
            "{{namespace}}",
            empty=NO_AGENT,
            unit="bytes",
            width=8,
            link="namespace",
        ),
        bars(
            Text("Quota used", "配额使用率"),
            Text(
                "Amount allocated, as a share of the quota of the namespace. Resources without a quota are not shown.",
                "已分配量占命名空间配额的比例。没有配额的资源不显示。",
            ),
            f"sort_desc(topk(20, {each(c.QUOTA_USED, **TEAM)} / ({each(c.QUOTA_LIMIT, **TEAM)} > 0)))",
            "{{namespace}} {{resource}}",
            empty=Text("no namespace has a GPU quota", "没有命名空间设置 GPU 配额"),
            unit="percentunit",
            most=1,
            width=8,
            steps=OVER,
            link="namespace",
        ),
        lines(
            Text("Compute used by namespace", "各命名空间使用的算力"),
            Text(
                "GPUs kept busy by pods of the namespace: busy seconds in a second. 1 is one whole GPU.",
                "该命名空间的 Pod 使 GPU 忙碌的程度（每秒忙碌秒数）。1 表示一整张 GPU。",
            ),
            (f"sum by (namespace) ({rate(n.CONTAINER_SM_SECONDS, **TEAM)})", "{{namespace}}"),
            empty=NO_AGENT,
            kind="stack",
            decimals=2,
            link="namespace",
        ),
        bars(
            Text("Energy by namespace in the time range", "所选时间内各命名空间的能耗"),
            Text(
                "The containers' parts of the GPUs' energy in the time range shown.",
                "所选时间范围内，各容器在 GPU 能耗中的份额之和。",
            ),
            f"sort_desc(topk(20, sum by (namespace) ({increase(n.CONTAINER_ENERGY, **TEAM)}) / 3600000))",
            "{{namespace}}",
            empty=NO_AGENT,
            unit="kwatth",
            decimals=3,
            link="namespace",
        ),
    ),
)

PODS = Row(
    Text("Pods", "Pod"),
    (
        table(
            Text("Pods on GPUs", "GPU 上的 Pod"),
            Text(
                "One row for each pod on each GPU. Compute is the pod's part of the busy time of the whole GPU. "
                "An empty limit: no limit is set. An empty cell was not measured; it is not 0.",
                "每个 Pod 在每张 GPU 上一行。算力是该 Pod 占整卡忙碌时间的份额。上限为空表示没有设置上限；"
                "空单元格表示未测到，而不是 0。",
            ),
            ("namespace", "pod", "node", "gpu_uuid"),
            Query(
                expr=of_pods(n.CONTAINER_SM), name=Text("Compute", "算力"), unit="percentunit", decimals=1, cell="gauge"
            ),
            Query(expr=of_pods(n.CONTAINER_MEMORY_USED), name=Text("Memory", "显存"), unit="bytes", decimals=1),
            Query(
                expr=of_pods(n.CONTAINER_MEMORY_TOTAL), name=Text("Memory limit", "显存上限"), unit="bytes", decimals=1
            ),
            Query(
                expr=f"sum by ({ON_GPU}) ({each(c.HOLDER_CORES, **WHO)} > 0)",
                name=Text("Cores allocated", "已分配算力"),
                unit="percentunit",
                decimals=0,
            ),
            Query(expr=of_pods(n.CONTAINER_POWER), name=Text("Power", "功率"), unit="watt", decimals=1),
            empty=NO_AGENT,
            height=9,
            links=(("pod", "pod"), ("gpu_uuid", "gpu"), ("node", "node")),
            sort=Text("Memory", "显存"),
        ),
        table(
            Text("Class of each pod on its GPU", "各 Pod 的类别"),
            Text(
                "What the analyzer found out about each pod, and how long its verdict has been idle. "
                "0: in use. Empty: unknown.",
                "分析器对每个 Pod 的判定，以及判定为空闲已持续多久。0 表示使用中，空表示无法判断。",
            ),
            ("namespace", "pod", "owner", "hostname", "gpu_id", "mig", "class"),
            Query(expr=TENANT_CLASS),
            Query(
                expr=with_labels(
                    each(a.TENANT_IDLE, *ON_TENANT, **WHO),
                    ", ".join(("cluster", *ON_TENANT)),
                    "owner, class",
                    TENANT_CLASS,
                ),
                name=Text("Idle for", "已空闲"),
                unit="dtdurations",
                decimals=1,
                words="idle_for",
                steps=((None, NEUTRAL), (3600, WARN), (86400, BAD)),
            ),
            empty=NO_ANALYSIS,
            height=9,
            links=(("pod", "pod"), ("gpu_id", "gpu"), ("hostname", "node")),
            labels_words=("class",),
            sort=Text("Idle for", "已空闲"),
        ),
    ),
)

CONTAINERS = Row(
    Text("Containers with a vGPU", "容器级 vGPU"),
    (
        lines(
            Text("Memory as a share of the limit", "容器 vGPU 显存使用率"),
            Text(
                "Memory by HAMi's own accounting, divided by HAMi's limit. It can exceed 100 % for a moment: "
                "CUDA contexts count too. A container without a limit has no line.",
                "HAMi 自身统计的显存除以 HAMi 的上限。因 CUDA context 也计入，可能短暂超过 100%。"
                "没有上限的容器不显示。",
            ),
            (vgpu_share(n.VGPU_MEMORY_USED, n.VGPU_MEMORY_LIMIT), NAME),
            few=True,
            empty=NO_HAMI,
            unit="percentunit",
            steps=OVER,
            link="pod",
        ),
        lines(
            Text("Compute of the container", "容器设备利用率"),
            Text(
                "SM utilisation of the container's processes by HAMi's library, as a share of the whole GPU.",
                "HAMi 库统计的容器进程 SM 利用率，占整张 GPU 的比例。",
            ),
            (
                shortened(f"sum by ({', '.join(('cluster', *_VGPU))}) ({each(n.VGPU_SM, **WHO)})", "gpu_uuid", "gpu"),
                NAME,
            ),
            few=True,
            empty=NO_HAMI,
            unit="percentunit",
            link="pod",
        ),
        lines(
            Text("Compute as a share of the own limit", "算力占自身上限的比例"),
            Text(
                "The same, divided by the SM limit of the container. Use it to scale a workload.",
                "同上，再除以容器的 SM 上限；可用于工作负载伸缩。",
            ),
            (vgpu_share(n.VGPU_SM, n.VGPU_SM_LIMIT), NAME),
            few=True,
            empty=Text("no container has an SM limit", "没有容器设置 SM 上限"),
            unit="percentunit",
            steps=OVER,
            link="pod",
        ),
        table(
            Text("No kernel for more than five minutes", "超过 5 分钟没有 kernel 的容器"),
            Text(
                "Time since HAMi's library last saw a kernel launch or an attach. A container that never started CUDA "
                "has no row: see its class above.",
                "距 HAMi 库最近一次看到 kernel 启动或挂载的时间。从未启动 CUDA 的容器没有行，请看上面的类别。",
            ),
            ("namespace", "pod", "container", "node", "gpu_uuid"),
            Query(
                expr=f"(time() - {each(n.VGPU_LAST_KERNEL, *_VGPU, **WHO)}) > 300",
                name=Text("Last kernel", "距最近 kernel"),
                unit="dtdurations",
                decimals=1,
                steps=((None, WARN), (3600, BAD)),
            ),
            empty=Text(
                "every HAMi container has launched a kernel in the last 5 minutes",
                "所有 HAMi 容器在 5 分钟内都有 kernel",
            ),
            width=12,
            links=(("pod", "pod"), ("gpu_uuid", "gpu")),
            sort=Text("Last kernel", "距最近 kernel"),
        ),
        lines(
            Text("Memory of vGPUs by kind", "vGPU 显存构成"),
            Text(
                "CUDA contexts, loaded modules, and the application's own allocations, by HAMi's accounting.",
                "CUDA context、已加载模块与应用自身分配的显存，以 HAMi 统计为准。",
            ),
            (f"sum({each(n.VGPU_BUFFER, **WHO)})", Text("application", "应用")),
            (f"sum({each(n.VGPU_CONTEXT, **WHO)})", Text("contexts", "context")),
            (f"sum({each(n.VGPU_MODULE, **WHO)})", Text("modules", "模块")),
            empty=NO_HAMI,
            kind="stack",
            unit="bytes",
        ),
        lines(
            Text("Power by pod", "各 Pod 的功率"),
            Text(
                "The pod's part of the power of its GPUs, divided by SM time, then by memory.",
                "Pod 在其 GPU 功率中的份额，先按 SM 时间、再按显存划分。",
            ),
            (f"sum by (namespace, pod) ({each(n.CONTAINER_POWER, **WHO)})", "{{namespace}}/{{pod}}"),
            few=True,
            empty=NO_AGENT,
            unit="watt",
            link="pod",
        ),
    ),
)

BOARD = Board(
    name="workload",
    title=Text("Workload and tenant", "工作负载与租户"),
    about=Text(
        "Which pods, owners and namespaces hold GPUs, and how much of them do they use?",
        "哪些 Pod、控制器和命名空间占着 GPU，用了多少？",
    ),
    variables=(CLUSTER, NAMESPACE, POD, CONSOLE_URL),
    rows=(FIGURES, NAMESPACES, PODS, CONTAINERS),
)
