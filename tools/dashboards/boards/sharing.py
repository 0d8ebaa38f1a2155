"""How well are GPUs shared, and why does a request not fit although memory is free?"""

from tools.dashboards.boards.parts import FULL, OVER, WASTE, bars, figure, lines, table
from tools.dashboards.promql import each, shortened
from tools.dashboards.spec import NO_AGENT, NO_CLUSTER, Board, Query, Row
from tools.dashboards.variables import CLUSTER, CLUSTER_NODE, CONSOLE_URL
from tools.dashboards.words import BAD, GOOD, NEUTRAL, QUIET, WARN, Text
from vgpuscope.catalog import agent as n
from vgpuscope.catalog import cluster as c

HERE = {"node": "$node"}
NODES, TYPES = c.NODE_CAPACITY, c.TYPE_CAPACITY
ON = "cluster, node, gpu_uuid"
NO_HAMI = Text("no data: no HAMi container is measured", "无数据：没有测到 HAMi 容器")
UNUSED = (
    f"sum by (cluster, namespace, pod) ({each(n.VGPU_MEMORY_LIMIT, **HERE)})"
    f" - sum by (cluster, namespace, pod) ({each(n.VGPU_MEMORY_USED, **HERE)}"
    f" and {each(n.VGPU_MEMORY_LIMIT, **HERE)})"
)
LIMITS = f"sum by (cluster, namespace, pod) ({each(n.VGPU_MEMORY_LIMIT, **HERE)})"

FIGURES = Row(
    None,
    (
        figure(
            Text("Fragmentation", "碎片率"),
            Text(
                "Share of the free memory that is on GPUs with a holder: a request for a whole GPU cannot get it.",
                "空闲显存中位于已有持有者的 GPU 上的比例：申请整卡的请求用不到这部分。",
            ),
            f"sum({each(NODES.fragmentation, **HERE)} * {each(NODES.free_memory, **HERE)})"
            f" / (sum({each(NODES.free_memory, **HERE)}) > 0)",
            empty=Text(
                "no memory is free, or the cluster exporter is not scraped", "没有空闲显存，或没有抓取到集群 exporter"
            ),
            unit="percentunit",
            decimals=0,
            steps=WASTE,
        ),
        figure(
            Text("Free memory", "可用空闲显存"),
            Text("Free memory that a request can use.", "请求可以使用的空闲显存。"),
            f"sum({each(NODES.free_memory, **HERE)})",
            empty=NO_CLUSTER,
            unit="bytes",
            decimals=1,
        ),
        figure(
            Text("Stranded memory", "搁浅显存"),
            Text(
                "Free memory that no request can use, because its GPU has no slot or no cores left.",
                "因 GPU 已没有槽位或算力，任何请求都用不到的空闲显存。",
            ),
            f"sum({each(NODES.stranded_memory, **HERE)})",
            empty=NO_CLUSTER,
            unit="bytes",
            decimals=1,
            steps=((None, GOOD), (1, WARN)),
        ),
        figure(
            Text("Largest request that fits", "可满足的最大显存申请"),
            Text("The largest memory request on one GPU that still fits.", "单张 GPU 上仍可满足的最大显存申请。"),
            f"max({each(NODES.largest_memory, **HERE)})",
            empty=NO_CLUSTER,
            unit="bytes",
            decimals=1,
        ),
        figure(
            Text("Whole GPUs for one pod", "单个 Pod 可得整卡数"),
            Text("The largest number of whole GPUs that one pod can still get.", "一个 Pod 仍可得到的最多整卡数。"),
            f"max({each(NODES.whole_cards, **HERE)})",
            empty=NO_CLUSTER,
            decimals=0,
        ),
        figure(
            Text("Free slots", "空闲槽位"),
            Text("Places for further containers on shared GPUs.", "共享 GPU 上还能容纳的容器数。"),
            f"sum({each(NODES.free_slots, **HERE)})",
            empty=NO_CLUSTER,
            decimals=0,
        ),
    ),
)

SHARING = Row(
    Text("Sharing", "共享"),
    (
        lines(
            Text("Containers on each GPU", "每张 GPU 上的容器数"),
            Text(
                "Allocations of each GPU to containers. A GPU without an allocation has 0.",
                "每张 GPU 分配给容器的份数。没有分配的 GPU 为 0。",
            ),
            (shortened(each(c.DEVICE_SLOTS_USED, **HERE), "gpu_uuid", "gpu"), "{{node}} {{gpu}}"),
            few=True,
            empty=NO_CLUSTER,
            decimals=0,
            link="gpu",
        ),
        bars(
            Text("GPUs by mode of sharing", "各共享方式的 GPU 数"),
            Text(
                "How GPUs are shared, as the agents see it. free: no container holds or uses the GPU.",
                "agent 看到的 GPU 共享方式。free：没有容器持有或使用。",
            ),
            f"sort_desc(sum by (mode) ({each(n.GPU_MODE, **HERE)}))",
            "{{mode}}",
            empty=NO_AGENT,
            decimals=0,
        ),
        table(
            Text("Allocation of each GPU", "各 GPU 的分配"),
            Text(
                "Allocated memory and compute as a share of what can be allocated on the GPU, and slots in use. "
                "With scaling the base exceeds the physical GPU. "
                "Used is the driver's number, as a share of the physical memory.",
                "已分配的显存与算力占该 GPU 可分配量的比例，以及已用槽位。开启超分时基数大于物理 GPU。"
                "“实际使用”为驱动测得的显存占物理显存的比例。",
            ),
            ("node", "gpu_uuid"),
            Query(
                expr=f"{each(c.DEVICE_MEMORY_ALLOCATED, **HERE)} / ({each(c.DEVICE_MEMORY, **HERE)} > 0)",
                name=Text("Memory allocated", "显存分配率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
                steps=OVER,
            ),
            Query(
                expr=f"{each(n.GPU_MEMORY_USED, **HERE)} / {each(n.GPU_MEMORY_TOTAL, **HERE)}"
                f" and on ({ON}) {each(c.DEVICE_MEMORY, **HERE)}",
                name=Text("Memory used", "显存实际使用"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
            ),
            Query(
                expr=f"{each(c.DEVICE_CORES_ALLOCATED, **HERE)} / ({each(c.DEVICE_CORES, **HERE)} > 0)",
                name=Text("Compute allocated", "算力分配率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
                steps=OVER,
            ),
            Query(expr=each(c.DEVICE_SLOTS_USED, **HERE), name=Text("Slots used", "已用槽位"), decimals=0),
            Query(expr=each(c.DEVICE_SLOTS, **HERE), name=Text("Slots", "槽位"), decimals=0),
            Query(
                expr=f"{each(c.DEVICE_MEMORY, **HERE)} / on ({ON}) ({each(n.GPU_MEMORY_TOTAL, **HERE)} > 0)",
                name=Text("Memory scaling", "显存超分倍数"),
                decimals=2,
            ),
            empty=NO_CLUSTER,
            links=(("gpu_uuid", "gpu"), ("node", "node")),
            sort=Text("Memory allocated", "显存分配率"),
        ),
    ),
)

FRAGMENTS = Row(
    Text("Fragmentation", "碎片化"),
    (
        lines(
            Text("Free and stranded memory", "空闲与搁浅显存"),
            Text(
                "Free: a request can use it. Stranded: its GPU has no slot or no cores left.",
                "空闲：请求可以使用。搁浅：所在 GPU 已没有槽位或算力。",
            ),
            (f"sum({each(NODES.free_memory, **HERE)})", Text("free", "空闲")),
            (f"sum({each(NODES.stranded_memory, **HERE)})", Text("stranded", "搁浅")),
            empty=NO_CLUSTER,
            kind="stack",
            unit="bytes",
            fixed=((Text("free", "空闲"), QUIET), (Text("stranded", "搁浅"), BAD)),
        ),
        lines(
            Text("Fragmentation by node", "各节点碎片率"),
            Text(
                "Share of the node's free memory that is on GPUs with a holder. No line: no memory is free there.",
                "节点空闲显存中位于已有持有者的 GPU 上的比例。没有线：该节点没有空闲显存。",
            ),
            (each(NODES.fragmentation, **HERE), "{{node}}"),
            few=True,
            empty=Text(
                "no memory is free, or the cluster exporter is not scraped", "没有空闲显存，或没有抓取到集群 exporter"
            ),
            unit="percentunit",
            most=1,
            link="node",
        ),
        lines(
            Text("Allocated but not used, by pod", "GPU 显存碎片率（已分配未使用）"),
            Text(
                "HAMi's memory limit minus use, as a share of the limit of all the pod's containers. "
                "Containers without a limit are left out of both.",
                "HAMi 显存上限减去使用量，占该 Pod 所有容器上限的比例。没有上限的容器两边都不计。",
            ),
            (f"({UNUSED}) / ({LIMITS} > 0)", "{{namespace}}/{{pod}}"),
            few=True,
            empty=NO_HAMI,
            unit="percentunit",
            least=None,
            most=1,
            link="pod",
        ),
        bars(
            Text("Allocated but not used, by namespace", "各命名空间已分配未使用的显存"),
            Text("HAMi's memory limits minus use, in bytes.", "HAMi 显存上限减去使用量（字节）。"),
            f"sort_desc(topk(20, sum by (namespace) ({UNUSED})))",
            "{{namespace}}",
            empty=NO_HAMI,
            unit="bytes",
            least=None,
            link="namespace",
        ),
        table(
            Text("What still fits, by GPU type", "各型号还能放下什么"),
            Text(
                "What a new request can get on GPUs of each type. Lost: GPUs that accept no new allocations.",
                "新请求在各型号 GPU 上能得到什么。不可用：不再接受分配的 GPU。",
            ),
            ("vendor", "type"),
            Query(expr=each(TYPES.cards), name=Text("GPUs", "GPU 数"), decimals=0),
            Query(
                expr=f"sum by (cluster, vendor, type) ({each(TYPES.lost_cards)})",
                name=Text("Lost", "不可用"),
                decimals=0,
                steps=((None, NEUTRAL), (1, BAD)),
            ),
            Query(
                expr=f"{each(TYPES.memory_allocated)} / ({each(TYPES.memory)} > 0)",
                name=Text("Memory allocated", "显存分配率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
                steps=FULL,
            ),
            Query(expr=each(TYPES.free_memory), name=Text("Free memory", "空闲显存"), unit="bytes", decimals=1),
            Query(expr=each(TYPES.stranded_memory), name=Text("Stranded", "搁浅显存"), unit="bytes", decimals=1),
            Query(
                expr=each(TYPES.largest_memory), name=Text("Largest request", "最大显存申请"), unit="bytes", decimals=1
            ),
            Query(
                expr=each(TYPES.largest_cores),
                name=Text("Largest compute", "最大算力申请"),
                unit="percentunit",
                decimals=0,
            ),
            Query(expr=each(TYPES.whole_cards), name=Text("Whole GPUs", "整卡数"), decimals=0),
            Query(expr=each(TYPES.free_slots), name=Text("Free slots", "空闲槽位"), decimals=0),
            empty=NO_CLUSTER,
            height=6,
            sort=Text("Free memory", "空闲显存"),
        ),
        table(
            Text("GPUs that the kubelet only counts", "仅由 kubelet 计数的 GPU"),
            Text(
                "Resources of nodes that register no GPU with HAMi or DRA: "
                "whole GPUs, time-slicing shares, MIG instances.",
                "没有向 HAMi 或 DRA 注册 GPU 的节点上的资源：整卡、时间片份额、MIG 实例。",
            ),
            ("node", "resource", "type", "mode", "profile"),
            Query(expr=each(c.OFFERED, **HERE), name=Text("Capacity", "容量"), decimals=0),
            Query(expr=each(c.OFFER_ALLOCATABLE, **HERE), name=Text("Healthy", "健康"), decimals=0),
            Query(expr=each(c.OFFER_REQUESTED, **HERE), name=Text("Requested", "已申请"), decimals=0),
            Query(expr=each(c.OFFER_FREE, **HERE), name=Text("Free", "空闲"), decimals=0),
            empty=Text("every node registers its GPUs", "所有节点都已注册 GPU"),
            height=6,
            links=(("node", "node"),),
            sort=Text("Free", "空闲"),
        ),
    ),
)

BOARD = Board(
    name="sharing",
    title=Text("GPU sharing and fragmentation", "GPU 共享与碎片化"),
    about=Text(
        "How well are GPUs shared, and why does a request not fit although memory is free?",
        "GPU 共享得如何？为什么明明有空闲显存，请求却放不下？",
    ),
    variables=(CLUSTER, CLUSTER_NODE, CONSOLE_URL),
    rows=(FIGURES, SHARING, FRAGMENTS),
)
