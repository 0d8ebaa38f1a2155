"""The words of doctor, in English and Chinese: what each check looks at, the cause it names, and the fix."""

from typing import Final, NamedTuple

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import DCGM_POWER, DCGM_UTILIZATION
from vgpuscope.model.doctor import FactName, FoundBy, Reason, ServiceCode, ServiceState, Stage, Status
from vgpuscope.model.service import (
    AGENT_PORT,
    ANALYZER_PORT,
    CLUSTER_PORT,
    DCGM_EXPORTER_PORT,
    EXTENDER_LEASE,
    EXTENDER_PORT,
    PLUGIN_PORT,
)
from vgpuscope.model.words import Words


class CheckWords(NamedTuple):
    """One check in words. {braces} are filled with the numbers of a judgement."""

    title: Words
    cause: Words
    fix: Words
    commands: tuple[str, ...] = ()


STAGE_NAMES: Final[dict[Stage, Words]] = {
    "driver": Words("driver", "驱动"),
    "regions": Words("HAMi regions", "HAMi 的 region"),
    "agent": Words("agents", "节点 agent"),
    "scrape": Words("scrape", "抓取"),
    "labels": Words("labels", "标签"),
    "units": Words("units", "单位"),
    "freshness": Words("freshness", "时效"),
    "rights": Words("API and RBAC", "API 与权限"),
    "scheduler": Words("scheduler", "调度"),
    "analyzer": Words("analyzer", "分析器"),
    "history": Words("history", "历史"),
}
STATUS_NAMES: Final[dict[Status, Words]] = {
    "pass": Words("pass", "通过"),
    "warn": Words("warn", "警告"),
    "fail": Words("FAIL", "失败"),
    "skipped": Words("skip", "跳过"),
}
SERVICE_NAMES: Final[dict[ServiceCode, Words]] = {
    "analyzer": Words("analyzer", "分析器"),
    "cluster": Words("cluster exporter", "集群 exporter"),
    "extender": Words("extender", "调度器扩展"),
    "agent": Words("agent", "节点 agent"),
    "plugin": Words("device plugin", "设备插件"),
    "prometheus": Words("Prometheus", "Prometheus"),
    "kubernetes": Words("Kubernetes API", "Kubernetes 的 API"),
    "exporter": Words("other exporter", "其他 exporter"),
    "target": Words("scrape target", "抓取目标"),
}
SERVICE_STATES: Final[dict[ServiceState, Words]] = {
    "answered": Words("answered", "有应答"),
    "no-answer": Words("no answer", "没有应答"),
    "refused": Words("rejected the credentials", "拒绝了凭据"),
    "wrong-service": Words("another service answers", "应答的是另一个服务"),
    "unreadable": Words("answer cannot be read", "应答无法读取"),
    "not-asked": Words("not asked", "未询问"),
    "not-configured": Words("not configured", "未配置"),
}
FOUND_BY: Final[dict[FoundBy, Words]] = {
    "flag": Words("argument", "参数"),
    "settings": Words("settings", "设置"),
    "demo": Words("running demo", "正在运行的演示"),
    "default": Words("default address", "默认地址"),
    "cluster": Words("Kubernetes API", "Kubernetes 的 API"),
    "analyzer": Words("the analyzer's targets", "分析器的抓取目标"),
    "prometheus": Words("Prometheus", "Prometheus"),
    "self": Words("this analyzer", "本分析器"),
    "none": Words("–", "–"),
}
SETTINGS_OF_ANALYZER: Final = Words("the analyzer's settings", "分析器的设置")
FACT_NAMES: Final[dict[FactName, Words]] = {
    "driver": Words("the driver of this machine", "本机驱动"),
    "regions": Words("HAMi's regions on this machine", "本机的 HAMi region"),
    "processes": Words("the processes of this machine", "本机进程"),
    "podresources": Words("the kubelet's PodResources socket", "kubelet 的 PodResources 套接字"),
    "agent": Words("an agent", "节点 agent"),
    "cluster": Words("the cluster exporter", "集群 exporter"),
    "prometheus": Words("Prometheus", "Prometheus"),
    "series": Words("GPU series", "GPU 序列"),
    "kubernetes": Words("the Kubernetes API", "Kubernetes API"),
    "extender": Words("the scheduler extender", "调度器扩展"),
    "plugin": Words("a device plugin", "设备插件"),
    "analyzer": Words("the analyzer", "分析器"),
    "history": Words("stored results", "已存储的结果"),
    "model": Words("access to a language model", "语言模型"),
    "channels": Words("delivery of notices", "通知渠道"),
    "control": Words("reports to the control service", "向控制服务的上报"),
    "reclaim": Words("live reclaim", "实际收回 GPU"),
    "rights": Words("the permissions of our service accounts", "本系统服务账号的权限"),
}
REASONS: Final[dict[Reason, Words]] = {
    "not-given": Words(
        "Not checked: no address of {fact} was given, and none was found.",
        "未检查：没有给出{fact}的地址，也没有找到。",
    ),
    "no-answer": Words("Not checked: {fact} does not answer.", "未检查：{fact}没有应答。"),
    "refused": Words("Not checked: {fact} rejects the credentials.", "未检查：{fact}拒绝了凭据。"),
    "wrong-service": Words(
        "Not checked: another service answers at the address of {fact}.", "未检查：{fact}的地址上应答的是另一个服务。"
    ),
    "unreadable": Words("Not checked: the answer of {fact} cannot be read.", "未检查：无法读取{fact}的应答。"),
    "not-here": Words("Not checked: not available here ({fact}).", "未检查：此处没有{fact}。"),
    "no-data": Words("Nothing to judge: no such data from {fact}.", "没有可判断的数据：{fact}中没有这类数据。"),
    "elsewhere": Words(
        "Not checked: this is known only with {fact} and its API.", "未检查：只有通过{fact}及其 API 才能得知。"
    ),
    "unreachable": Words(
        "Not checked: {fact} runs in the cluster, and this machine cannot reach its address.",
        "未检查：{fact}在集群中运行，本机无法访问其地址。",
    ),
    "not-allowed": Words(
        "Not checked: these credentials do not suffice to read {fact}.", "未检查：当前凭据不足以读取{fact}。"
    ),
    "internal": Words("The check itself failed. Please report it.", "检查本身出错，请报告此问题。"),
}

_W = Words
_ENGINE_ACTIVE: Final = m.GPU_ENGINE_ACTIVE.alias("dcgm").name
_SM_ACTIVE: Final = m.GPU_SM_ACTIVE.alias("dcgm").name
CHECK_WORDS: Final[dict[str, CheckWords]] = {
    # ── driver ──────────────────────────────────────────────────────────────────────────────────────────────────
    "DRIVER_LIBRARY_MISSING": CheckWords(
        _W("The driver's library can be loaded", "能够加载驱动库"),
        _W(
            "libnvidia-ml.so.1 cannot be loaded in a place with GPUs. The driver is not mounted into the "
            "container, or not installed.",
            "在有 GPU 的地方无法加载 libnvidia-ml.so.1：驱动没有挂载进容器，或没有安装。",
        ),
        _W(
            "Run the agent with the nvidia runtime class and `NVIDIA_DRIVER_CAPABILITIES=utility`.",
            "用 nvidia 运行时类运行 agent，并设置 `NVIDIA_DRIVER_CAPABILITIES=utility`。",
        ),
        ("kubectl get runtimeclass", "kubectl exec -n vgpuscope ds/vgpuscope-agent -- ls /usr/lib/x86_64-linux-gnu"),
    ),
    "DRIVER_FAILED": CheckWords(
        _W("The driver answers", "驱动有应答"),
        _W("NVML returns an error for every GPU.", "NVML 对所有 GPU 都返回错误。"),
        _W(
            "Compare the versions of the kernel module and the library. After an upgrade of the driver, "
            "restart the node.",
            "比较内核模块与驱动库的版本。升级驱动之后请重启节点。",
        ),
        ("nvidia-smi", "cat /proc/driver/nvidia/version"),
    ),
    "DRIVER_HUNG": CheckWords(
        _W("Calls to the driver return", "驱动调用能够返回"),
        _W("A call to the driver does not return within its deadline.", "一次驱动调用没有在期限内返回。"),
        _W("Look for XIDs in the kernel log. The GPU may need a reset.", "在内核日志中查找 XID。GPU 可能需要复位。"),
        ("dmesg | grep -i xid",),
    ),
    "NO_GPU": CheckWords(
        _W("The driver lists GPUs", "驱动列出 GPU"),
        _W("The driver ({version}) answers, but lists no GPU.", "驱动（{version}）有应答，但没有列出任何 GPU。"),
        _W(
            "Check the PCI bus and the kernel log. In a container, check `NVIDIA_VISIBLE_DEVICES`.",
            "检查 PCI 总线和内核日志。在容器中请检查 `NVIDIA_VISIBLE_DEVICES`。",
        ),
        ("lspci | grep -i nvidia", "nvidia-smi -L"),
    ),
    "GPU_UNHEALTHY": CheckWords(
        _W("GPUs are healthy", "GPU 健康"),
        _W(
            "{count:GPU is|GPUs are} lost, in need of a reset, or silent.",
            "{count} 张 GPU 丢失、需要复位或没有应答。",
        ),
        _W("Drain the node, then reset the GPU or restart the node.", "先排空节点，再复位 GPU 或重启节点。"),
        ("kubectl drain NODE --ignore-daemonsets", "nvidia-smi --gpu-reset -i INDEX"),
    ),
    "HOST_PID_MISSING": CheckWords(
        _W("Processes on GPUs can be found", "能够找到 GPU 上的进程"),
        _W(
            "The driver lists {listed:process|processes}, and none can be found in /proc. The driver reports "
            "pids of the host.",
            "驱动列出了 {listed} 个进程，但在 /proc 中一个也找不到。驱动报告的是宿主机的进程号。",
        ),
        _W(
            "Set hostPID: true in the agent's DaemonSet, or mount the host's /proc and set --proc-root.",
            "在 agent 的 DaemonSet 中设置 hostPID: true，或挂载宿主机的 /proc 并设置 --proc-root。",
        ),
        ("kubectl get ds -A -o custom-columns=NAME:.metadata.name,HOSTPID:.spec.template.spec.hostPID",),
    ),
    "MIG_WITHOUT_PROFILING": CheckWords(
        _W("MIG instances have a utilisation", "MIG 实例有利用率"),
        _W(
            "{count:MIG instance has|MIG instances have} no profiling metric. NVML defines no utilisation for "
            "MIG, so the value is 0 or missing.",
            "{count} 个 MIG 实例没有性能剖析指标。NVML 对 MIG 不定义利用率，因此它们看起来空闲或缺失。",
        ),
        _W(
            f"On Hopper and later the agent measures them; `{m.GPU_PROFILING_INFO.name}` says why it does not. On "
            f"other GPUs, add `{_ENGINE_ACTIVE}` to dcgm-exporter's metrics file, run it with "
            "`SYS_ADMIN`, and start the agent with `--dcgm auto`.",
            f"Hopper 及更新的 GPU 由 agent 直接测量；没有数值时，`{m.GPU_PROFILING_INFO.name}` 给出原因。其他 GPU 请在 "
            f"dcgm-exporter 的指标文件中加入 `{_ENGINE_ACTIVE}`，以 `SYS_ADMIN` 权限运行，"
            "并用 `--dcgm auto` 启动 agent。",
        ),
        ("nvidia-smi mig -lgi",),
    ),
    "GPM_UNSUPPORTED": CheckWords(
        _W("GPUs have profiling values", "GPU 有性能剖析数值"),
        _W(
            "{count:GPU has|GPUs have} no profiling counters that the driver can read (GPM: Hopper and later), and no "
            "dcgm-exporter reports them. SM activity is not known, so `busy-unproductive` cannot be found on these "
            "GPUs.",
            "{count} 张 GPU 没有驱动可读的性能剖析计数器（GPM：Hopper 及更新），也没有 dcgm-exporter 报告它们。"
            "SM 活跃度未知，因此这些 GPU 无法判为 `busy-unproductive`。",
        ),
        _W(
            f"Run a dcgm-exporter with profiling fields (`{_ENGINE_ACTIVE}`, `{_SM_ACTIVE}`) and `SYS_ADMIN` on these "
            "nodes, and start the agent with `--dcgm auto`.",
            f"在这些节点上运行带有性能剖析字段（`{_ENGINE_ACTIVE}`、`{_SM_ACTIVE}`）和 `SYS_ADMIN` 权限的 "
            "dcgm-exporter，并用 `--dcgm auto` 启动 agent。",
        ),
        ("dcgmi profile --list -i 0",),
    ),
    "GPM_REFUSED": CheckWords(
        _W("The driver lets the agent read profiling counters", "驱动允许 agent 读取性能剖析计数器"),
        _W(
            "The driver has no profiling counters for the agent on {count:GPU|GPUs}. no-symbols: the driver is too old "
            "for GPM. no-permission: the agent may not read them. failed: the driver answers with an error. no-values: "
            "no value of the last sample can be used.",
            "驱动没有向 agent 提供 {count} 张 GPU 的性能剖析计数器。no-symbols：驱动太旧，没有 GPM；"
            "no-permission：agent 无权读取；failed：驱动返回错误；no-values：最近一次采样没有可用的数值。",
        ),
        _W(
            "For no-symbols, update the driver. For no-permission, run the agent as root, or set "
            "NVreg_RestrictProfilingToAdminUsers=0. Otherwise start the agent with `--dcgm auto`.",
            "no-symbols：升级驱动。no-permission：以 root 运行 agent，或设置 NVreg_RestrictProfilingToAdminUsers=0。"
            "其他情况用 `--dcgm auto` 启动 agent。",
        ),
        ("cat /proc/driver/nvidia/version", "grep RmProfilingAdminOnly /proc/driver/nvidia/params"),
    ),
    "GPM_HUNG": CheckWords(
        _W("Calls for profiling counters return", "读取性能剖析计数器的调用能够返回"),
        _W(
            "A call for profiling counters did not return, so the agent has switched them off for {count:GPU|GPUs}. "
            "All other values are still read.",
            "一次读取性能剖析计数器的调用没有返回，agent 已对 {count} 张 GPU 停止读取。其他数值不受影响。",
        ),
        _W(
            "Look for XIDs in the kernel log, update the driver, and restart the agent. Until then, use `--dcgm auto`.",
            "在内核日志中查找 XID，升级驱动，然后重启 agent。在此之前可使用 `--dcgm auto`。",
        ),
        ("dmesg | grep -i xid", "kubectl rollout restart -n vgpuscope ds/vgpuscope-agent"),
    ),
    "GPM_DISTURBS_MEMORY": CheckWords(
        _W("Profiling does not disturb memory queries", "性能剖析不干扰显存查询"),
        _W(
            "On {count:GPU|GPUs} the memory of MIG instances could not be read after profiling began. The agent has "
            "switched profiling off there.",
            "在 {count} 张 GPU 上，开始性能剖析后无法再读取 MIG 实例的显存。agent 已在这些 GPU 上停止性能剖析。",
        ),
        _W(
            "Update the driver, then restart the agent. Until then, start it with `--dcgm auto`.",
            "升级驱动，然后重启 agent。在此之前用 `--dcgm auto` 启动。",
        ),
        ("cat /proc/driver/nvidia/version", "kubectl rollout restart -n vgpuscope ds/vgpuscope-agent"),
    ),
    "CONTAINER_SM_ZERO": CheckWords(
        _W("Containers on busy GPUs show their use", "繁忙 GPU 上的容器显示利用率"),
        _W(
            "{count:GPU is|GPUs are} busy, and HAMi's monitor shows 0 for every container there. On Blackwell, "
            "the old call for the use of a process returns 0.",
            "{count} 张 GPU 处于繁忙状态，而 HAMi 监控对其上的每个容器都显示 0。在 Blackwell 上，"
            "旧的进程利用率接口返回 0。",
        ),
        _W(
            "Use the series of vgpuscope's agent, or a HAMi release with HAMi-core's fix "
            "(nvmlDeviceGetProcessesUtilizationInfo).",
            "使用 vgpuscope agent 的序列，或使用包含 HAMi-core 修复的 HAMi "
            "版本（nvmlDeviceGetProcessesUtilizationInfo）。",
        ),
        ("nvidia-smi pmon -c 1",),
    ),
    # ── regions ─────────────────────────────────────────────────────────────────────────────────────────────────
    "REGIONS_UNREADABLE": CheckWords(
        _W("HAMi's directory can be listed", "能够列出 HAMi 目录"),
        _W("HAMi's directory of regions exists, but cannot be listed.", "HAMi 的 region 目录存在，但无法列出。"),
        _W(
            "Run the agent as a user who may read <hook path>/containers.",
            "以有权读取 <hook path>/containers 的用户运行 agent。",
        ),
        ("ls -ld /usr/local/vgpu /usr/local/vgpu/containers",),
    ),
    "REGIONS_NOT_MOUNTED": CheckWords(
        _W("Agents see HAMi's directory", "agent 能看到 HAMi 目录"),
        _W(
            "On {count:node|nodes} HAMi shares GPUs, and the agent sees no directory of regions.",
            "在 {count} 个节点上 HAMi 共享 GPU，但 agent 看不到 region 目录。",
        ),
        _W(
            "Mount /usr/local/vgpu of the host into the agent, or set --hook-path to HAMi's directory.",
            "把宿主机的 /usr/local/vgpu 挂载进 agent，或把 --hook-path 设为 HAMi 的目录。",
        ),
        ("ls /usr/local/vgpu/containers",),
    ),
    "REGION_LAYOUT_UNKNOWN": CheckWords(
        _W("Region files have a known layout", "region 文件布局已知"),
        _W(
            "Region files have a size or version of no known HAMi release. Limits and use of their containers are "
            "unknown.",
            "region 文件的大小或版本不属于任何已知的 HAMi 版本，相应容器的上限和自身用量未知。",
        ),
        _W(
            "Compare the versions of HAMi's library and of vgpuscope. Send one file with a bug report.",
            "比较 HAMi 库与 vgpuscope 的版本，并附上一个文件报告问题。",
        ),
        ("ls -l /usr/local/vgpu/containers/*/*.cache",),
    ),
    "REGION_NOT_MADE": CheckWords(
        _W("Containers with GPUs have started CUDA", "持有 GPU 的容器已启动 CUDA"),
        _W(
            "{count:container holds a GPU and has|containers hold GPUs and have} not called CUDA yet. HAMi's "
            "library makes the region (.cache) at the first call; until then there are no container metrics.",
            "{count} 个容器持有 GPU 但尚未调用 CUDA。HAMi 的库在首次调用时才创建 region（.cache），"
            "在此之前没有容器指标。",
        ),
        _W(
            "Nothing is broken. To see metrics now, run nvidia-smi in the container. If it stays so, check "
            "that libvgpu.so is loaded.",
            "没有故障。要立即看到指标，请在容器内运行 nvidia-smi。若一直如此，请检查 libvgpu.so 是否已加载。",
        ),
        ("kubectl exec -n NAMESPACE POD -- nvidia-smi", "kubectl exec -n NAMESPACE POD -- cat /etc/ld.so.preload"),
    ),
    "WHOLE_GPU_UNSEEN": CheckWords(
        _W("Pods with whole GPUs have metrics", "独占整卡的 Pod 有指标"),
        _W(
            "{count:pod has|pods have} whole GPUs and no container metrics: HAMi's monitor shows only shared GPUs.",
            "{count} 个 Pod 独占整卡而没有容器指标：HAMi 监控只显示共享的 GPU。",
        ),
        _W(
            "Run vgpuscope's agent on these nodes. It shows containers of whole GPUs, too.",
            "在这些节点上运行 vgpuscope agent，它也显示独占整卡的容器。",
        ),
    ),
    "MEMORY_OVER_LIMIT": CheckWords(
        _W("Containers stay within their memory limit", "容器显存未超过上限"),
        _W(
            "{count:container uses|containers use} more memory than the limit. CUDA contexts (100-500 MB) are "
            "not limited by every HAMi release; more than that means that the limit is not enforced.",
            "{count} 个容器使用的显存超过上限。并非所有 HAMi 版本都限制 CUDA 上下文（100–500 MB）；"
            "超出更多说明上限未生效。",
        ),
        _W(
            "Leave room for contexts in the request. Check that libvgpu.so is loaded and `CUDA_DISABLE_CONTROL` "
            "is not set.",
            "在申请量中为上下文留出余量。检查 libvgpu.so 已加载且未设置 `CUDA_DISABLE_CONTROL`。",
        ),
        ("kubectl exec -n NAMESPACE POD -- nvidia-smi",),
    ),
    "REGIONS_ORPHANED": CheckWords(
        _W("Regions belong to pods that exist", "region 属于现存的 Pod"),
        _W(
            "{count:region directory is|region directories are} left over from pods that are gone. HAMi's "
            "monitor or `vgpuscope plugin` removes them after 5 minutes; where neither runs, their last values stay.",
            "有 {count} 个 region 目录属于已消失的 Pod。HAMi 监控或 `vgpuscope plugin` 会在 5 分钟后删除它们；"
            "若两者都未运行，最后的数值会一直保留。",
        ),
        _W(
            "Check HAMi's monitor or `vgpuscope plugin` on these nodes.",
            "检查这些节点上的 HAMi 监控或 `vgpuscope plugin`。",
        ),
        (
            "kubectl logs -n kube-system ds/hami-device-plugin -c vgpu-monitor --tail=20",
            "kubectl logs -n vgpuscope ds/vgpuscope-plugin --tail=20",
        ),
    ),
    # ── agents ──────────────────────────────────────────────────────────────────────────────────────────────────
    "AGENT_DOWN": CheckWords(
        _W("The agent answers", "agent 有应答"),
        _W("{count:agent does|agents do} not answer: {place}.", "{count} 个 agent 没有应答：{place}。"),
        _W(
            f"Check that the agent's pod runs and that port {AGENT_PORT} can be reached.",
            f"检查 agent 的 Pod 是否在运行，以及 {AGENT_PORT} 端口能否访问。",
        ),
        ("kubectl get pods -A -o wide | grep vgpuscope-agent", f"curl -s http://NODE:{AGENT_PORT}/healthz"),
    ),
    "WRONG_SERVICE": CheckWords(
        _W("Each address is that of the right service", "每个地址都指向正确的服务"),
        _W("Another service answers at {count:address|addresses}.", "{count} 个地址上应答的是另一个服务。"),
        _W(
            f"Agents listen on {AGENT_PORT}, the cluster exporter on {CLUSTER_PORT} and the analyzer on "
            f"{ANALYZER_PORT} by default.",
            f"默认端口：agent {AGENT_PORT}，集群 exporter {CLUSTER_PORT}，分析器 {ANALYZER_PORT}。",
        ),
        ("kubectl get svc -A | grep -E 'vgpuscope|hami'",),
    ),
    "AGENT_SAMPLE_OLD": CheckWords(
        _W("Agents take samples", "agent 在持续采样"),
        _W(
            "{count:agent answers|agents answer}, but the last sample is old.",
            "{count} 个 agent 有应答，但最近一次采样已过时。",
        ),
        _W("See the agent's log; a driver call may hang.", "查看 agent 日志，可能有驱动调用挂起。"),
        ("kubectl logs -n vgpuscope ds/vgpuscope-agent --tail=50",),
    ),
    "PODS_UNKNOWN": CheckWords(
        _W("Agents can read pods", "agent 能读取 Pod"),
        _W(
            "{count:agent|agents} cannot read the pods of the node, so series have no names of pods.",
            "{count} 个 agent 无法读取所在节点的 Pod，因此序列没有 Pod 名称。",
        ),
        _W(
            "Check --pods, and that the agent's service account may list pods (or use nodes/proxy with --pods "
            "kubelet).",
            "检查 --pods，以及 agent 的服务账号是否可以列出 Pod（或在 --pods kubelet 时使用 nodes/proxy）。",
        ),
        ("kubectl auth can-i list pods --as=system:serviceaccount:vgpuscope:vgpuscope-agent",),
    ),
    "PODRESOURCES_DOWN": CheckWords(
        _W("The kubelet lists devices of containers", "kubelet 能列出容器的设备"),
        _W("The kubelet's PodResources socket does not answer.", "kubelet 的 PodResources 套接字没有应答。"),
        _W(
            "Mount the directory /var/lib/kubelet/pod-resources, not the socket: a restarted kubelet makes a new one.",
            "请挂载目录 /var/lib/kubelet/pod-resources 而不是套接字：kubelet 重启后会新建套接字。",
        ),
        ("ls -l /var/lib/kubelet/pod-resources/kubelet.sock",),
    ),
    "CLAIMS_UNKNOWN": CheckWords(
        _W("Agents can read ResourceClaims", "agent 能读取 ResourceClaim"),
        _W(
            "{count:agent|agents} cannot read slices or claims of DRA, so GPUs are identified by names of devices, and "
            "admin access counts as an allocation.",
            "{count} 个 agent 无法读取 DRA 的 ResourceSlice 或 ResourceClaim，"
            "因此只能按设备名称识别 GPU，管理员访问也会被算作分配。",
        ),
        _W(
            "Allow the agent's service account to list resourceslices and to get resourceclaims.",
            "允许 agent 的服务账号 list resourceslices、get resourceclaims。",
        ),
        (
            "kubectl auth can-i list resourceslices.resource.k8s.io "
            "--as=system:serviceaccount:vgpuscope:vgpuscope-agent",
        ),
    ),
    "PROC_UNREADABLE": CheckWords(
        _W("Agents can read the host's /proc", "agent 能读取宿主机的 /proc"),
        _W("{count:agent|agents} cannot read the host's /proc.", "{count} 个 agent 无法读取宿主机的 /proc。"),
        _W(
            "Set hostPID: true, or --proc-root to where the host's /proc is mounted.",
            "设置 hostPID: true，或把 --proc-root 设为宿主机 /proc 的挂载位置。",
        ),
    ),
    "DCGM_NO_ANSWER": CheckWords(
        _W("The dcgm-exporter of --dcgm answers", "--dcgm 指定的 dcgm-exporter 有应答"),
        _W(
            "On {count:node|nodes} the dcgm-exporter of `--dcgm` does not answer with a page of metrics.",
            "在 {count} 个节点上，`--dcgm` 指定的 dcgm-exporter 没有返回指标页。",
        ),
        _W(
            "Check the address and the exporter's pod. The exporter must listen on an address that the agent reaches, "
            "not only on localhost.",
            "检查地址和 exporter 的 Pod。exporter 必须监听 agent 能够访问的地址，而不只是 localhost。",
        ),
        (
            "kubectl get pods -A -o wide | grep dcgm-exporter",
            f"curl -s http://NODE:{DCGM_EXPORTER_PORT}/metrics | head",
        ),
    ),
    "DCGM_NOT_FOUND": CheckWords(
        _W("--dcgm auto finds a dcgm-exporter", "--dcgm auto 能够找到 dcgm-exporter"),
        _W(
            "On {count:node|nodes} `--dcgm auto` finds no pod that runs dcgm-exporter, or more than one.",
            "在 {count} 个节点上，`--dcgm auto` 没有找到运行 dcgm-exporter 的 Pod，或找到不止一个。",
        ),
        _W(
            "Check that the agent knows the pods of its node (`--pods`), or name the exporter with `--dcgm URL`.",
            "检查 agent 是否知道本节点的 Pod（`--pods`），或用 `--dcgm URL` 指定 exporter。",
        ),
        ("kubectl get pods -A -o wide | grep dcgm-exporter",),
    ),
    "DCGM_WITHOUT_FIELDS": CheckWords(
        _W("The dcgm-exporter of --dcgm has profiling fields", "--dcgm 指定的 dcgm-exporter 有性能剖析字段"),
        _W(
            "On {count:node|nodes} the dcgm-exporter of `--dcgm` has no profiling field. Its default list has none, "
            "and without `SYS_ADMIN` it leaves them out.",
            "在 {count} 个节点上，`--dcgm` 指定的 dcgm-exporter 没有性能剖析字段。默认列表中没有这些字段；"
            "没有 `SYS_ADMIN` 权限时 exporter 也会略去它们。",
        ),
        _W(
            f"Add `{_ENGINE_ACTIVE}` and `{_SM_ACTIVE}` to the exporter's metrics file, and run it with `SYS_ADMIN`.",
            f"在 exporter 的指标文件中加入 `{_ENGINE_ACTIVE}` 和 `{_SM_ACTIVE}`，并以 `SYS_ADMIN` 权限运行。",
        ),
        (f"curl -s http://NODE:{DCGM_EXPORTER_PORT}/metrics | grep _PROF_", "dcgmi profile --list -i 0"),
    ),
    "DCGM_UNUSABLE": CheckWords(
        _W("The fields of the dcgm-exporter can be used", "dcgm-exporter 的字段可以使用"),
        _W(
            "Profiling fields of the dcgm-exporter were rejected (see the examples): other labels (dcgm-no-uuid, "
            "dcgm-bad-instance), other units (dcgm-over-1, dcgm-traffic-implausible), or GPUs of another node. They "
            "are absent, never 0.",
            "dcgm-exporter 的性能剖析字段被拒绝（见示例）：标签不同（dcgm-no-uuid、dcgm-bad-instance）、"
            "单位不同（dcgm-over-1、dcgm-traffic-implausible），或属于其他节点的 GPU。这些数值缺失，而不是 0。",
        ),
        _W(
            "Remove relabelling that drops `UUID` or `GPU_I_ID`, use the fields in their own units (0-1, bytes per "
            "second), and give each agent the exporter of its own node.",
            "去掉会丢弃 `UUID` 或 `GPU_I_ID` 的重标记规则，使用字段自身的单位（0–1，字节/秒），"
            "并让每个 agent 读取本节点的 exporter。",
        ),
        (f"curl -s http://NODE:{DCGM_EXPORTER_PORT}/metrics | grep _PROF_",),
    ),
    "CGROUPS_ABSENT": CheckWords(
        _W("Agents see the host's cgroups", "agent 能看到宿主机的 cgroup"),
        _W(
            "On {count:node|nodes} there is nothing at `--cgroup-root`. CPU, memory, I/O and network of containers are "
            "not known, so `idle-preparing` is never found there.",
            "在 {count} 个节点上，`--cgroup-root` 处没有内容。容器的 CPU、内存、I/O 和网络未知，"
            "因此不会判为 `idle-preparing`。",
        ),
        _W(
            "Mount the host's /sys/fs/cgroup read-only into the agent and set `--cgroup-root` to it. If these figures "
            "are not wanted, use `--cgroup-root none`.",
            "把宿主机的 /sys/fs/cgroup 以只读方式挂载进 agent，并把 `--cgroup-root` 设为该位置。若不需要这些数值，"
            "请使用 `--cgroup-root none`。",
        ),
        ("kubectl exec -n vgpuscope ds/vgpuscope-agent -- ls /sys/fs/cgroup",),
    ),
    "CGROUPS_UNREADABLE": CheckWords(
        _W("Agents can read the host's cgroups", "agent 能读取宿主机的 cgroup"),
        _W(
            "On {count:node|nodes} the directory of `--cgroup-root` exists, but the agent may not list it, or reading "
            "it does not end.",
            "在 {count} 个节点上，`--cgroup-root` 的目录存在，但 agent 无权列出，或读取没有返回。",
        ),
        _W(
            "Run the agent as a user who may read it. A security module (AppArmor, SELinux) may deny it, too.",
            "以有权读取的用户运行 agent。安全模块（AppArmor、SELinux）也可能拒绝读取。",
        ),
        ("ls -ld /sys/fs/cgroup", "dmesg | grep -iE 'apparmor|avc'"),
    ),
    "CGROUPS_UNKNOWN": CheckWords(
        _W("The host's cgroups have a known version", "宿主机的 cgroup 版本已知"),
        _W(
            "On {count:node|nodes} the directory of `--cgroup-root` has neither cgroup v2 (`cgroup.controllers`) nor "
            "the controllers of v1.",
            "在 {count} 个节点上，`--cgroup-root` 的目录既没有 cgroup v2（`cgroup.controllers`），也没有 v1 的控制器。",
        ),
        _W(
            "Set `--cgroup-root` to the root of the host's hierarchy, usually /sys/fs/cgroup, not to a part of it.",
            "把 `--cgroup-root` 设为宿主机层级的根目录，通常是 /sys/fs/cgroup，而不是其中的一部分。",
        ),
        ("stat -fc %T /sys/fs/cgroup", "mount | grep cgroup"),
    ),
    "COMPONENT_NOT_RUNNING": CheckWords(
        _W("Pods of HAMi and vgpuscope run", "HAMi 与 vgpuscope 的 Pod 在运行"),
        _W("{count:pod is|pods are} not ready.", "{count} 个 Pod 未就绪。"),
        _W("See their events and logs.", "查看其事件和日志。"),
        ("kubectl get pods -A -o wide | grep -E 'hami|vgpuscope'", "kubectl describe pod -n NAMESPACE POD"),
    ),
    "EXPORTER_RESTARTS": CheckWords(
        _W("Exporters do not restart", "exporter 没有反复重启"),
        _W(
            "{count:exporter was|exporters were} killed for memory, or restarted again and again. Each restart "
            "is a gap in the series.",
            "{count} 个 exporter 因内存被终止或反复重启，每次重启都会在序列中留下空隙。",
        ),
        _W(
            "Raise the memory limit, then look for a leak: dcgm-exporter is known for one, and a restart each "
            "day helps until it is fixed.",
            "先提高内存上限，再查找泄漏：dcgm-exporter 有已知的泄漏，修复之前可每天重启一次。",
        ),
        ("kubectl top pod -A | grep -E 'dcgm|vgpuscope|hami'",),
    ),
    "VERSIONS_DIFFER": CheckWords(
        _W("All services have one version", "各服务版本一致"),
        _W("Services of {versions} versions run.", "正在运行的服务有 {versions} 个不同版本。"),
        _W("Complete the upgrade. During a roll-out this is normal.", "完成升级。滚动升级期间属于正常情况。"),
        ("kubectl rollout status -n vgpuscope ds/vgpuscope-agent",),
    ),
    # ── scrape ──────────────────────────────────────────────────────────────────────────────────────────────────
    "PROMETHEUS_DOWN": CheckWords(
        _W("Prometheus answers", "Prometheus 有应答"),
        _W("Prometheus does not answer at {place}.", "{place} 上的 Prometheus 没有应答。"),
        _W("Check prometheus.url, the network policy and the Service.", "检查 prometheus.url、网络策略和 Service。"),
        ("curl -s 'PROMETHEUS_URL/api/v1/query?query=up' | head -c 300",),
    ),
    "PROMETHEUS_WRONG_SERVICE": CheckWords(
        _W("Prometheus' address is that of a PromQL engine", "Prometheus 地址指向 PromQL 引擎"),
        _W(
            "The address of Prometheus belongs to another service or a login page, not to a PromQL engine.",
            "Prometheus 地址上应答的不是 PromQL 引擎，而是另一个服务或登录页面。",
        ),
        _W(
            "prometheus.url must end before /api/v1. Agents and cluster exporters belong in analyzer.targets.",
            "prometheus.url 必须在 /api/v1 之前结束。agent 和集群 exporter 应写入 analyzer.targets。",
        ),
        ("curl -si 'PROMETHEUS_URL/api/v1/query?query=up' | head -5",),
    ),
    "PROMETHEUS_EMPTY": CheckWords(
        _W("Prometheus scrapes something", "Prometheus 有抓取目标"),
        _W(
            "Prometheus answers, but has no target: its service discovery finds nothing.",
            "Prometheus 有应答但没有任何抓取目标：服务发现没有找到任何对象。",
        ),
        _W(
            "Check the ServiceMonitors' labels against serviceMonitorSelector, and Prometheus' own permissions.",
            "对照 serviceMonitorSelector 检查 ServiceMonitor 的标签，以及 Prometheus 自身的权限。",
        ),
        ("kubectl get servicemonitor -A", "kubectl get prometheus -A -o jsonpath='{..serviceMonitorSelector}'"),
    ),
    "GPU_METRICS_ABSENT": CheckWords(
        _W("Prometheus has GPU metrics", "Prometheus 有 GPU 指标"),
        _W(
            "Prometheus has {targets:target|targets}, and no GPU metric: no exporter of GPUs is scraped.",
            "Prometheus 有 {targets} 个目标，但没有任何 GPU 指标：没有抓取 GPU exporter。",
        ),
        _W(
            "Install vgpuscope's agent or dcgm-exporter, and let Prometheus scrape it "
            f"(port {AGENT_PORT} or {DCGM_EXPORTER_PORT}).",
            "安装 vgpuscope agent 或 dcgm-exporter，并让 Prometheus 抓取"
            f"（端口 {AGENT_PORT} 或 {DCGM_EXPORTER_PORT}）。",
        ),
        ("kubectl get pods -A | grep -E 'vgpuscope|dcgm|hami'",),
    ),
    "TARGETS_DOWN": CheckWords(
        _W("All targets with GPUs answer", "所有 GPU 抓取目标都有应答"),
        _W(
            "{count:target does|targets do} not answer. The GPUs there are unknown.",
            "{count} 个目标没有应答，其 GPU 状态未知。",
        ),
        _W(
            f"Check that the exporter's pod runs, that its port ({AGENT_PORT}, {CLUSTER_PORT} or {DCGM_EXPORTER_PORT}) "
            "can be reached, and TLS and credentials of the scrape.",
            f"检查 exporter 的 Pod 是否运行、端口（{AGENT_PORT}、{CLUSTER_PORT} 或 {DCGM_EXPORTER_PORT}）能否访问，"
            "以及抓取的 TLS 与凭据。",
        ),
        ("kubectl get pods -A -o wide | grep -E 'vgpuscope|dcgm|hami'", "curl -s http://TARGET/metrics | head -3"),
    ),
    "NODES_WITHOUT_AGENT": CheckWords(
        _W("Every GPU node has an exporter", "每个 GPU 节点都有 exporter"),
        _W(
            "{count} of {all:GPU node has|GPU nodes have} no series. No exporter runs there, or it is not scraped.",
            "{all} 个 GPU 节点中有 {count} 个没有序列：那里没有运行 exporter，或没有被抓取。",
        ),
        _W(
            "Give the nodes a label that the DaemonSet selects (gpu=on or nvidia.com/gpu.present=true), and tolerate "
            "their taints.",
            "给这些节点加上 DaemonSet 选择的标签（gpu=on 或 nvidia.com/gpu.present=true），并容忍其污点。",
        ),
        ("kubectl label node NODE gpu=on", "kubectl describe node NODE | grep -A3 Taints"),
    ),
    "SCRAPE_INTERVAL_LONG": CheckWords(
        _W("Scrapes are frequent enough for the window", "抓取频率满足分析窗口"),
        _W(
            "{count:job scrapes|jobs scrape} so rarely that a window of {window} minutes has fewer than five "
            "samples. The GPUs are judged unknown.",
            "有 {count} 个作业抓取过疏，{window} 分钟的窗口内不足五个样本，相应 GPU 被判为未知。",
        ),
        _W(
            "Scrape every 15-60 s, or set prometheus.time_window_min to at least {needed}.",
            "每 15–60 秒抓取一次，或把 prometheus.time_window_min 设为至少 {needed}。",
        ),
    ),
    "HAMI_BESIDE_OURS": CheckWords(
        _W("HAMi's series come from one exporter", "HAMi 序列只来自一个 exporter"),
        _W(
            "{count:HAMi metric is|HAMi metrics are} exported by HAMi and by vgpuscope. A sum over them "
            "counts everything twice.",
            "有 {count} 个 HAMi 指标同时由 HAMi 和 vgpuscope 导出，求和时会重复计算。",
        ),
        _W(
            "Stop scraping HAMi's exporters, or set --families native on vgpuscope.",
            "停止抓取 HAMi 的 exporter，或在 vgpuscope 上设置 --families native。",
        ),
        ("vgpuscope agent --families native",),
    ),
    "SCRAPED_TWICE": CheckWords(
        _W("Each exporter is scraped by one job", "每个 exporter 只被一个作业抓取"),
        _W(
            "The jobs {jobs} scrape the same {count:GPU|GPUs}. A sum or a count has them twice.",
            "作业 {jobs} 抓取了相同的 GPU（{count} 个），求和或计数时会重复。",
        ),
        _W(
            "Remove one: often a ServiceMonitor and the annotation prometheus.io/scrape name the same pods.",
            "去掉其中一个：常见原因是 ServiceMonitor 与 prometheus.io/scrape 注解指向相同的 Pod。",
        ),
    ),
    "REPLICAS_DOUBLE": CheckWords(
        _W("Replicas of Prometheus are deduplicated", "Prometheus 副本已去重"),
        _W(
            "{count:series exists|series exist} once per replica of Prometheus (label {label}).",
            "有 {count} 个序列在每个 Prometheus 副本中各有一份（标签 {label}）。",
        ),
        _W(
            "Ask through Thanos Query with --query.replica-label, or Mimir's HA tracker; or name one replica "
            "in prometheus.query_condition.",
            "通过设置了 --query.replica-label 的 Thanos Query 或 Mimir 的 HA tracker 查询；或在 "
            "prometheus.query_condition 中指定一个副本。",
        ),
    ),
    "CLUSTERS_WITHOUT_LABEL": CheckWords(
        _W("Clusters can be told apart", "能够区分不同集群"),
        _W(
            "{count:node name belongs|node names belong} to two machines. Two clusters are in one Prometheus, "
            "and no label `cluster` tells them apart.",
            "有 {count} 个节点名对应两台机器：一个 Prometheus 中有两个集群，而没有 cluster 标签加以区分。",
        ),
        _W(
            "Set external_labels.cluster on each Prometheus, and name one cluster in prometheus.query_condition.",
            "在每个 Prometheus 上设置 external_labels.cluster，并在 prometheus.query_condition 中指定一个集群。",
        ),
    ),
    "RULE_NAMES_UNKNOWN": CheckWords(
        _W("Rules use metrics that exist", "规则使用的指标存在"),
        _W(
            "Loaded rules use {count:GPU metric that has|GPU metrics that have} no series. Dashboards made for "
            "the same names are empty.",
            "已加载的规则有 {count} 处使用了没有序列的 GPU 指标，为同样名称制作的仪表盘会是空的。",
        ),
        _W(
            "Switch on the family of these names on the agent and cluster exporter (--families), or correct the rules.",
            "在 agent 和集群 exporter 上启用这些名称所属的系列（--families），或修正规则。",
        ),
        ("vgpuscope agent --families native,hami,hami-legacy,handbook,pod",),
    ),
    # ── labels ──────────────────────────────────────────────────────────────────────────────────────────────────
    "HONOR_LABELS_OFF": CheckWords(
        _W("Series name the tenant in `pod`", "序列的 pod 标签是租户"),
        _W(
            "honor_labels is off for {jobs}: `pod` is the exporter's pod, and the tenant is in `exported_pod`. "
            "vgpuscope understands that; most dashboards do not.",
            "作业 {jobs} 未启用 honor_labels：pod 是 exporter 的 Pod，租户在 exported_pod 中。vgpuscope "
            "能够识别，但大多数仪表盘不能。",
        ),
        _W(
            "Set honorLabels: true in the ServiceMonitor, or honor_labels: true in the scrape configuration.",
            "在 ServiceMonitor 中设置 honorLabels: true，或在抓取配置中设置 honor_labels: true。",
        ),
        ("kubectl get servicemonitor -A -o yaml | grep -n honorLabels",),
    ),
    "POD_LABELS_MISSING": CheckWords(
        _W("dcgm-exporter names pods", "dcgm-exporter 标明 Pod"),
        _W(
            "GPUs are busy, and no series of the job names a pod: dcgm-exporter does not reach the kubelet's "
            "PodResources socket, or the device plugin's ids do not match.",
            "GPU 处于繁忙状态，但该作业没有任何序列标明 Pod：dcgm-exporter 无法访问 kubelet 的 PodResources "
            "套接字，或设备插件的标识不匹配。",
        ),
        _W(
            "Set `DCGM_EXPORTER_KUBERNETES=true`, mount /var/lib/kubelet/pod-resources, and with HAMi use "
            "vgpuscope's agent: dcgm-exporter does not know HAMi's devices.",
            "设置 `DCGM_EXPORTER_KUBERNETES=true`，挂载 /var/lib/kubelet/pod-resources；使用 HAMi 时请用 "
            "vgpuscope agent：dcgm-exporter 不认识 HAMi 的设备。",
        ),
        ("kubectl exec ds/dcgm-exporter -- ls -l /var/lib/kubelet/pod-resources",),
    ),
    "LABELS_FLAPPING": CheckWords(
        _W("Series keep their labels", "序列标签保持不变"),
        _W(
            "The series of {count:GPU|GPUs} change between labels with a pod and labels without. Every change "
            "is a new series, and each has gaps.",
            "{count} 张 GPU 的序列在有 Pod 标签与无 Pod 标签之间来回变化，每次变化都产生新序列并留下空隙。",
        ),
        _W(
            "dcgm-exporter loses the PodResources socket from time to time. Update it, or use vgpuscope's agent.",
            "dcgm-exporter 会不时丢失 PodResources 套接字。请更新它，或使用 vgpuscope agent。",
        ),
        ("kubectl logs ds/dcgm-exporter --tail=100 | grep -i -E 'kubelet|pod-resources'",),
    ),
    "CONTAINERS_NAMELESS": CheckWords(
        _W("Containers on GPUs have names", "GPU 上的容器有名称"),
        _W(
            "{count:pod is|pods are} known only by UID: the agent sees the processes, and cannot read the names.",
            "有 {count} 个 Pod 只知道 UID：agent 能看到其进程，但读不到名称。",
        ),
        _W(
            "Give the agent a source of pods (--pods kube or kubelet), and permission to read it.",
            "为 agent 配置 Pod 来源（--pods kube 或 kubelet）及相应权限。",
        ),
    ),
    "SHARED_SAME_NUMBER": CheckWords(
        _W("Pods on shared GPUs have own numbers", "共享 GPU 上的 Pod 有各自的数值"),
        _W(
            "On {count:GPU|GPUs} every pod shows the same number: dcgm-exporter copies the GPU's value to each "
            "pod (time-slicing or MPS).",
            "在 {count} 张 GPU 上所有 Pod 显示相同的数值：dcgm-exporter 把整卡的值复制给了每个 Pod（时间片或 MPS）。",
        ),
        _W(
            "Never add these series up. vgpuscope's agent measures each container by its processes.",
            "不要对这些序列求和。vgpuscope agent 按进程测量每个容器。",
        ),
    ),
    "HOSTNAME_IS_POD": CheckWords(
        _W("`Hostname` is the node", "Hostname 是节点名"),
        _W(
            "The label Hostname is the name of the exporter's pod, so {count:node has|nodes have} a new name "
            "after each restart.",
            "Hostname 标签是 exporter 的 Pod 名，因此 {count} 个节点在每次重启后都会换名。",
        ),
        _W(
            "Set `NODE_NAME` from spec.nodeName in dcgm-exporter's DaemonSet, or hostNetwork: true.",
            "在 dcgm-exporter 的 DaemonSet 中从 spec.nodeName 设置 `NODE_NAME`，或设置 hostNetwork: true。",
        ),
    ),
    "CONDITION_MATCHES_NOTHING": CheckWords(
        _W("query_condition selects GPUs", "query_condition 能选中 GPU"),
        _W(
            "prometheus.query_condition matches none of {count} GPU series.",
            "prometheus.query_condition 与 {count} 张 GPU 序列都不匹配。",
        ),
        _W(
            "Remove one matcher after another, and compare with the labels that Prometheus shows.",
            "逐个去掉匹配条件，并与 Prometheus 中显示的标签比较。",
        ),
        (f"curl -s 'PROMETHEUS_URL/api/v1/query?query={DCGM_UTILIZATION}' | head -c 600",),
    ),
    "UUID_UNREADABLE": CheckWords(
        _W("UUIDs of GPUs are text", "GPU 的 UUID 可读"),
        _W(
            "{count:series has|series have} a UUID that is not text: HAMi's monitor reads the region at the "
            "wrong place (v2.8.1 with an older library).",
            "有 {count} 个序列的 UUID 不是文本：HAMi 监控在错误的位置读取 region（v2.8.1 与旧版库混用）。",
        ),
        _W(
            "Update HAMi's device plugin, and restart the pods, so that they load the same release of libvgpu.so.",
            "更新 HAMi 设备插件并重启 Pod，使其加载同一版本的 libvgpu.so。",
        ),
    ),
    # ── units ───────────────────────────────────────────────────────────────────────────────────────────────────
    "RATIO_SCALE_MIXED": CheckWords(
        _W("HAMi's ratios have one scale", "HAMi 的比率量纲一致"),
        _W(
            "{small:HAMi metric|HAMi metrics} named _ratio hold 0-1, and {large} hold 0-100.",
            "名为 _ratio 的 HAMi 指标中，{small} 个取值 0–1，{large} 个取值 0–100。",
        ),
        _W(
            "Compare each with its documentation before you write a threshold, or use vgpuscope's own names (all 0-1).",
            "编写阈值前请逐个核对文档，或使用 vgpuscope 自己的指标名（全部为 0–1）。",
        ),
    ),
    "DCGM_RATIO_IS_PERCENT": CheckWords(
        _W("DCGM's _RATIO metrics hold 0-1", "DCGM 的 _RATIO 指标取值 0–1"),
        _W(
            "{count:DCGM metric|DCGM metrics} named _RATIO hold 0-100: some releases before 4.7 had the new "
            "names with the old scale.",
            "有 {count} 个名为 _RATIO 的 DCGM 指标取值 0–100：4.7 之前的某些版本用了新名称和旧量纲。",
        ),
        _W(
            "Update DCGM on all nodes. vgpuscope decides by the values; rules and dashboards do not.",
            "在所有节点上更新 DCGM。vgpuscope 按数值判断，规则和仪表盘则不会。",
        ),
        ("dcgmi --version",),
    ),
    "UTILIZATION_ABOVE_100": CheckWords(
        _W("Utilisation is at most 100 %", "利用率不超过 100 %"),
        _W(
            "{count:series is|series are} above 100 %: HAMi adds up samples of processes that overlap in time.",
            "有 {count} 个序列超过 100 %：HAMi 把时间上重叠的进程采样相加了。",
        ),
        _W(
            f"Read it as busy. {m.CONTAINER_SM.name} adds up to the GPU's own utilisation.",
            f"可视为繁忙。{m.CONTAINER_SM.name} 之和等于整卡的利用率。",
        ),
    ),
    "ABSURD_VALUE": CheckWords(
        _W("Values are possible", "数值合理"),
        _W(
            "{count:series has|series have} impossible values: blank values of DCGM, or random numbers. One of "
            "them spoils every average.",
            "有 {count} 个序列取值不可能：DCGM 的空白值或随机数。一个这样的值就会毁掉所有平均值。",
        ),
        _W(
            "Drop them in rules (for example `< 101`). vgpuscope drops and counts them. Update DCGM and the driver.",
            "在规则中丢弃它们（例如 `< 101`）。vgpuscope 会丢弃并计数。请更新 DCGM 和驱动。",
        ),
    ),
    "MIG_REPEATED": CheckWords(
        _W("Numbers of a GPU are not repeated per MIG instance", "整卡数值没有按 MIG 实例重复"),
        _W(
            "On {count:GPU|GPUs} the power of the whole GPU is repeated for every MIG instance. A sum is too high.",
            "在 {count} 张 GPU 上，整卡功率在每个 MIG 实例上重复出现，求和会偏大。",
        ),
        _W(
            "Aggregate with max by (UUID) first, then add up.",
            "先用 max by (UUID) 聚合，再求和。",
        ),
        (f"sum(max by (UUID) ({DCGM_POWER}))",),
    ),
    "USED_ABOVE_ALLOCATED": CheckWords(
        _W("Memory in use was allocated", "已用显存均已分配"),
        _W(
            "On {count:GPU|GPUs} more memory is in use than the scheduler allocated. Used below allocated is "
            "normal: the scheduler shows what was given, the monitor what is used. Used above it means users "
            "that the scheduler does not know.",
            "在 {count} 张 GPU 上，已用显存多于调度器的分配量。已用少于分配属于正常：调度器显示分配量，"
            "监控显示实际用量；反之说明存在调度器不知道的使用者。",
        ),
        _W(
            "Look for processes outside of pods, pods with `NVIDIA_VISIBLE_DEVICES=all`, and left-over processes.",
            "查找 Pod 之外的进程、设置了 `NVIDIA_VISIBLE_DEVICES=all` 的 Pod，以及残留进程。",
        ),
        (f"vgpuscope top NODE:{AGENT_PORT}", "nvidia-smi"),
    ),
    # ── freshness ───────────────────────────────────────────────────────────────────────────────────────────────
    "SERIES_OLD": CheckWords(
        _W("GPU series are current", "GPU 序列是最新的"),
        _W(
            "{count:job has|jobs have} targets that answer, and whose GPU series are old.",
            "有 {count} 个作业的目标有应答，但其 GPU 序列已过时。",
        ),
        _W(
            "The exporter has lost its GPUs, or repeats old values with their timestamps. Restart it, and see its log.",
            "exporter 丢失了 GPU，或带着旧时间戳重复旧值。请重启它并查看日志。",
        ),
    ),
    "COMPLETED_POD_SERIES": CheckWords(
        _W("Series belong to pods that run", "序列属于正在运行的 Pod"),
        _W(
            "{count:pod has ended, and still has|pods have ended, and still have} series.",
            "有 {count} 个 Pod 已结束但仍有序列。",
        ),
        _W(
            "Use vgpuscope's agent, which ends a container's series with the container. Delete the finished pods.",
            "使用 vgpuscope agent，它会随容器结束而结束序列。删除已完成的 Pod。",
        ),
        ("kubectl get pods -A --field-selector status.phase=Succeeded",),
    ),
    "GHOST_ALLOCATION": CheckWords(
        _W("Allocations belong to pods that use them", "分配属于正在使用的 Pod"),
        _W(
            "{count:allocation is|allocations are} held for pods that have ended, or cannot run. The scheduler "
            "may count the GPUs as taken.",
            "有 {count} 个分配属于已结束或无法运行的 Pod，调度器可能仍把 GPU 计为已占用。",
        ),
        _W(
            "Delete these pods. If the GPU stays taken, restart HAMi's scheduler.",
            "删除这些 Pod。若 GPU 仍被占用，请重启 HAMi 调度器。",
        ),
        ("vgpuscope nodes --json", "kubectl rollout restart -n kube-system deploy/hami-scheduler"),
    ),
    "CLOCK_SKEW": CheckWords(
        _W("Clocks agree", "时钟一致"),
        _W("{count:clock differs|clocks differ} from the others.", "有 {count} 个时钟与其他时钟不一致。"),
        _W("Start time synchronisation on these machines.", "在这些机器上启用时间同步。"),
        ("timedatectl", "chronyc tracking"),
    ),
    # ── API and rights ──────────────────────────────────────────────────────────────────────────────────────────
    "KUBE_API_DOWN": CheckWords(
        _W("The Kubernetes API answers", "Kubernetes API 有应答"),
        _W("The API server does not answer.", "API 服务器没有应答。"),
        _W("Check the kubeconfig and the network.", "检查 kubeconfig 和网络。"),
        ("kubectl get --raw /readyz?verbose",),
    ),
    "RIGHTS_MISSING": CheckWords(
        _W("The service accounts have their permissions", "服务账号具备所需权限"),
        _W(
            "The API server rejects {count:kind|kinds} of requests. What they show is missing; the rest works.",
            "API 服务器拒绝了 {count} 类请求。相应内容缺失，其余正常。",
        ),
        _W(
            "Apply the ClusterRoles of the chart or of deploy/, and bind them to the service accounts.",
            "应用 chart 或 deploy/ 中的 ClusterRole，并绑定到服务账号。",
        ),
        ("kubectl auth can-i --list --as=system:serviceaccount:vgpuscope:vgpuscope-cluster",),
    ),
    "CREDENTIALS_REFUSED": CheckWords(
        _W("Credentials are accepted", "凭据被接受"),
        _W(
            "{count:service rejects|services reject} the credentials (401 or 403).",
            "有 {count} 个服务拒绝了凭据（401 或 403）。",
        ),
        _W(
            "Set `VGPUSCOPE_TOKEN` to the bearer token, or put user and password into the URL.",
            "把 `VGPUSCOPE_TOKEN` 设为Bearer 令牌，或在 URL 中写入用户名和密码。",
        ),
    ),
    "CLUSTER_EXPORTER_MISSING": CheckWords(
        _W("The cluster exporter answers", "集群 exporter 有应答"),
        _W(
            "There is no cluster exporter. Allocations, and why pods wait, are unknown.",
            "没有集群 exporter，无法得知 Pod 等待的原因和分配情况。",
        ),
        _W(
            "Run `vgpuscope cluster`, and set analyzer.cluster_url.",
            "运行 `vgpuscope cluster`，并设置 analyzer.cluster_url。",
        ),
        ("kubectl get pods -A | grep vgpuscope-cluster", "vgpuscope cluster"),
    ),
    "DEVICES_NOT_REGISTERED": CheckWords(
        _W("GPU nodes register their GPUs", "GPU 节点已注册 GPU"),
        _W(
            "{count:GPU node does|GPU nodes do} not register GPUs with HAMi, or the kubelet offers none.",
            "有 {count} 个 GPU 节点没有向 HAMi 注册 GPU，或其 kubelet 没有提供 GPU。",
        ),
        _W(
            "Check HAMi's device plugin on these nodes, and the label gpu=on.",
            "检查这些节点上的 HAMi 设备插件以及 gpu=on 标签。",
        ),
        (
            "kubectl get nodes -l gpu=on -o wide",
            "kubectl get node NODE -o jsonpath='{.status.allocatable}'",
        ),
    ),
    "FORGED_ASSIGNMENT": CheckWords(
        _W("Only the scheduler says who has a GPU", "只有调度器说明谁持有 GPU"),
        _W(
            "The annotations of {count:pod|pods} name {gpus:GPU|GPUs} that the scheduler did not give them. They hold "
            "none of them. Each line ends with the reason and the program that wrote the annotations.",
            "有 {count} 个 Pod 的注解写有调度器并未分配给它们的 {gpus} 块 GPU。它们不占有这些 GPU。"
            "每行末尾是原因和写入注解的程序。",
        ),
        _W(
            "Find out who wrote them. With the admission policies of the chart, no one else can (docs/security.md).",
            "查明是谁写入的。启用 chart 的准入策略后，其他人无法写入（docs/security.md）。",
        ),
        ("kubectl -n NAMESPACE get pod POD -o yaml --show-managed-fields",),
    ),
    # ── scheduler ───────────────────────────────────────────────────────────────────────────────────────────────
    "EXTENDER_DOWN": CheckWords(
        _W("The scheduler extender answers", "调度器扩展有应答"),
        _W(
            "The scheduler extender at {place} does not answer. Pods that request GPUs are not scheduled.",
            "{place} 上的调度器扩展没有应答。申请 GPU 的 Pod 不会被调度。",
        ),
        _W(
            "Check its pod and its address. A NetworkPolicy may block the port.",
            "检查它的 Pod 和地址。NetworkPolicy 可能拦截了端口。",
        ),
        (
            "kubectl get pods -n vgpuscope -l app.kubernetes.io/component=extender",
            f"curl -s http://EXTENDER:{EXTENDER_PORT}/healthz",
        ),
    ),
    "EXTENDER_NOT_READY": CheckWords(
        _W("The scheduler extender can decide", "调度器扩展能够做决定"),
        _W(
            "The scheduler extender answers and is not ready: {count:part is|parts are} missing.",
            "调度器扩展有应答但尚未就绪：缺少 {count} 项。",
        ),
        _W(
            "Give its service account the permissions of docs/extender.md, and check the API server.",
            "授予其服务账号 docs/extender.md 所列的权限，并检查 API 服务器。",
        ),
        (f"curl -s http://EXTENDER:{EXTENDER_PORT}/readyz",),
    ),
    "EXTENDER_NO_LEADER": CheckWords(
        _W("A replica of the scheduler extender leads", "调度器扩展有主副本"),
        _W(
            "{count:replica does|replicas do} not hold the lease. Without a leader, pods that request GPUs are not "
            "scheduled.",
            "{count} 个副本没有持有租约。没有主副本时，申请 GPU 的 Pod 不会被调度。",
        ),
        _W(
            "See who holds the lease. If it is another replica, nothing is broken: ask the leader. If nothing renews "
            "it, "
            "check the permission to write leases and the API server.",
            "查看租约由谁持有。若是另一个副本，则没有故障：请访问主副本。若没有副本续约，检查写入 Lease 的权限和 API "
            "服务器。",
        ),
        (f"kubectl get lease -A --field-selector metadata.name={EXTENDER_LEASE}",),
    ),
    "EXTENDER_NOT_ASKED": CheckWords(
        _W("kube-scheduler asks the extender", "kube-scheduler 会询问调度器扩展"),
        _W(
            "{count:pod waits|pods wait} for GPUs, and the extender has received no filter request since it started. "
            "No "
            "kube-scheduler is configured to ask it, or the pods name another scheduler.",
            "有 {count} 个 Pod 在等待 GPU，但调度器扩展启动以来没有收到任何 filter 请求：没有 kube-scheduler "
            "配置为询问它，"
            "或这些 Pod 指定了另一个调度器。",
        ),
        _W(
            "Compare the pods' schedulerName with the profile in kube-scheduler's configuration, whose extender must "
            "have "
            "this address and manage nvidia.com/gpu.",
            "将 Pod 的 schedulerName 与 kube-scheduler 配置中的 profile 对比；其 extender 必须指向此地址并管理 "
            "nvidia.com/gpu。",
        ),
        (
            "kubectl get pod POD -n NAMESPACE -o jsonpath='{.spec.schedulerName}'",
            "kubectl get configmap -n vgpuscope vgpuscope-kube-scheduler -o yaml",
        ),
    ),
    "SCHEDULER_METRICS_DOUBLE": CheckWords(
        _W("Scheduling is counted once", "调度只被计数一次"),
        _W(
            "{count:cluster exporter publishes|cluster exporters publish} hami_scheduler_* beside a scheduler "
            "extender. Sums "
            "count every binding twice, and estimates are mixed with measured times.",
            "有 {count} 个集群 exporter 在调度器扩展之外也发布 hami_scheduler_*。求和会把每次绑定计两次，"
            "估计值与实测值混在一起。",
        ),
        _W(
            "Set cluster.scheduler_metrics to auto or off. With auto, it needs permission to watch the lease.",
            "把 cluster.scheduler_metrics 设为 auto 或 off。使用 auto 时，exporter 需要 watch 该租约的权限。",
        ),
        ("vgpuscope cluster --scheduler-metrics off",),
    ),
    "PLUGIN_NOT_REGISTERED": CheckWords(
        _W("Kubelets know their GPUs", "kubelet 知道自己的 GPU"),
        _W(
            "On {count:node|nodes} the device plugin is not registered with the kubelet. No new pod with a GPU "
            "starts there.",
            "{count} 个节点上的设备插件没有在 kubelet 注册。申请 GPU 的新 Pod 无法在其上启动。",
        ),
        _W(
            "Check that the kubelet's directory is mounted and that no other device plugin serves nvidia.com/gpu "
            "there.",
            "检查 kubelet 的目录是否已挂载，以及该节点上没有其他设备插件提供 nvidia.com/gpu。",
        ),
        (
            "kubectl get pods -A -o wide | grep -E 'device-plugin|vgpuscope-plugin'",
            f"curl -s http://PLUGIN:{PLUGIN_PORT}/readyz",
        ),
    ),
    "PLUGIN_GPU_UNHEALTHY": CheckWords(
        _W("Device plugins hand out every GPU", "设备插件提供所有 GPU"),
        _W(
            "The device plugin reports {count:GPU|GPUs} as unhealthy. No new pods are placed there.",
            "有 {count} 张 GPU 被设备插件判定为不健康，不再接受新的 Pod。",
        ),
        _W(
            "docs/xid.md has the action for each XID. After the repair, remove the GPU from the node's annotation "
            "vgpuscope.io/gpu-faults.",
            "各 XID 的处置见 docs/xid.md。修复之后，从节点的注解 vgpuscope.io/gpu-faults 中删除该 GPU。",
        ),
        ("dmesg | grep -i xid", "kubectl get node NODE -o jsonpath='{.metadata.annotations}'"),
    ),
    "PLUGIN_LIBRARY_MISSING": CheckWords(
        _W("Limits of containers are enforced", "容器的上限会被执行"),
        _W(
            "On {count:node|nodes} the device plugin finds no libvgpu.so. Containers share GPUs by time only, and "
            "none has a "
            "limit of memory or cores.",
            "{count} 个节点上的设备插件没有找到 libvgpu.so。容器只按时间共享 GPU，显存和算力都没有上限。",
        ),
        _W(
            "Put HAMi's libvgpu.so into the hook path of the node, or set plugin.library. If whole GPUs are handed "
            "out, "
            "nothing is wrong.",
            "把 HAMi 的 libvgpu.so 放入节点的 hook 目录，或设置 plugin.library。如果只分配整卡，则没有问题。",
        ),
        ("ls -l /usr/local/vgpu/libvgpu.so",),
    ),
    # ── analyzer ────────────────────────────────────────────────────────────────────────────────────────────────
    "ANALYZER_DOWN": CheckWords(
        _W("The analyzer answers", "分析器有应答"),
        _W("No analyzer answers at {place}.", "{place} 上没有分析器应答。"),
        _W(
            "Start `vgpuscope analyzer`. If it ends at once, its log names the wrong setting.",
            "启动 `vgpuscope analyzer`。若立即退出，日志会指出错误的设置。",
        ),
        ("vgpuscope config print", "kubectl logs -n vgpuscope deploy/vgpuscope-analyzer --tail=50"),
    ),
    "ANALYZER_SOURCE_DOWN": CheckWords(
        _W("The analyzer reads its source", "分析器能读取数据源"),
        _W("The analyzer cannot read its source ({code}).", "分析器无法读取数据源（{code}）。"),
        _W(
            "Check prometheus.url, or analyzer.targets, and the network between them.",
            "检查 prometheus.url 或 analyzer.targets，以及两者之间的网络。",
        ),
        (f"curl -s http://ANALYZER:{ANALYZER_PORT}/health",),
    ),
    "ANALYSES_STOPPED": CheckWords(
        _W("Analyses run at their interval", "分析按间隔运行"),
        _W(
            "The last analysis is much older than the interval ({interval} s), though the source answers.",
            "最近一次分析远早于分析间隔（{interval} 秒），尽管数据源有应答。",
        ),
        _W("See the analyzer's log, and restart it.", "查看分析器日志并重启它。"),
        (f"curl -s http://ANALYZER:{ANALYZER_PORT}/health",),
    ),
    "VERDICTS_UNKNOWN": CheckWords(
        _W("Most GPUs can be judged", "大多数 GPU 可以判断"),
        _W(
            "{unknown} of {gpus:GPU is|GPUs are} judged unknown: too little was measured in the window.",
            "{gpus} 张 GPU 中有 {unknown} 个被判为未知：窗口内测量不足。",
        ),
        _W(
            "A fresh start needs one window of samples. Otherwise the checks of scrape and labels name the cause.",
            "刚启动时需要积累一个窗口的样本。否则请看抓取与标签的检查结果。",
        ),
        ("vgpuscope results",),
    ),
    "FOLLOWER_FAILING": CheckWords(
        _W("Pages and logs follow each analysis", "每次分析后页面和日志都更新"),
        _W("{count:step|steps} after an analysis failed.", "分析之后有 {count} 个步骤失败。"),
        _W("/health names them; the log has the error.", "/health 会列出它们，日志中有错误信息。"),
        (f"curl -s http://ANALYZER:{ANALYZER_PORT}/health",),
    ),
    "MODEL_FAILING": CheckWords(
        _W("The language model does not fail", "语言模型没有失败"),
        _W(
            "The last request to the language model failed ({code}). There are no new opinions; verdicts and scores "
            "do not change.",
            "最近一次对语言模型的请求失败（{code}）。没有新的意见；判定和评分不受影响。",
        ),
        _W(
            "docs/errors.md explains the code. Check ai.api_url, ai.model, the key, and the egress rules of the "
            "analyzer's pod.",
            "按错误代码查 docs/errors.md。检查 ai.api_url、ai.model 和密钥，以及分析器 Pod 的出口网络。",
        ),
        (
            f"curl -s http://ANALYZER:{ANALYZER_PORT}/health | grep -o '\"ai_error\":[^,]*'",
            "kubectl logs -n vgpuscope deploy/vgpuscope-analyzer --tail=500 | grep 'no opinion'",
        ),
    ),
    "CHANNEL_FAILING": CheckWords(
        _W("Channels take notices", "通知渠道可送达"),
        _W(
            "{count:channel does|channels do} not take notices. A workload whose owner must be notified first is left "
            "alone until then.",
            "有 {count} 个通知渠道无法送达。需要先通知所有者的工作负载在此期间不会被处理。",
        ),
        _W(
            "Correct the address in notify.channels, or its file. Then send a trial message.",
            "更正 notify.channels 中的地址或其文件，然后试发一条消息。",
        ),
        (
            f"curl -s http://ANALYZER:{ANALYZER_PORT}/api/v1/notices",
            f"curl -s -X POST -H 'Authorization: Bearer TOKEN' http://ANALYZER:{ANALYZER_PORT}/api/v1/notices/CHANNEL/test",
        ),
    ),
    "CONTROL_FAILING": CheckWords(
        _W("The control service takes reports", "控制服务可接收上报"),
        _W(
            "The control service did not accept the last report of a low GPU ({code}). Reports are sent again.",
            "控制服务没有接受最近一次低利用率 GPU 的上报（{code}）。系统会重新发送。",
        ),
        _W(
            "The analyzer's log has the answer of the service. Check control.api_url, control.secret, and the egress "
            "rules of the analyzer's pod.",
            "分析器日志中有该服务的应答。检查 control.api_url、control.secret，以及分析器 Pod 的出口网络。",
        ),
        ("kubectl logs -n vgpuscope deploy/vgpuscope-analyzer --tail=500 | grep 'control service'",),
    ),
    "RECLAIM_WITHOUT_HISTORY": CheckWords(
        _W("Reclaim can store its cases", "收回任务可以保存"),
        _W(
            "control.enabled is on and the dry run is off, but results are not stored. Cases cannot be stored, "
            "so no GPU is ever taken back.",
            "已开启 control.enabled 并关闭演练模式，但没有存储结果。收回任务无法保存，因此永远不会收回 GPU。",
        ),
        _W(
            "Set analyzer.history to a file or a postgresql:// URL.",
            "把 analyzer.history 设为文件或 postgresql:// 地址。",
        ),
        ("vgpuscope analyzer --history /var/lib/vgpuscope/history.db",),
    ),
    "RECLAIM_WITHOUT_KUBE": CheckWords(
        _W("Reclaim asks the Kubernetes API who holds a GPU", "收回机制向 Kubernetes API 核实 GPU 的持有者"),
        _W(
            "No GPU is taken back: without the Kubernetes API, only metrics say which pod holds a GPU. Annotations and "
            "priority classes are not read.",
            "不会收回任何 GPU：没有 Kubernetes API 时，只有指标说明哪个 Pod 持有 GPU。注解和优先级类也不会被读取。",
        ),
        _W(
            "Set kube.enabled to true, and give the analyzer's service account the permissions of docs/reclaim.md.",
            "把 kube.enabled 设为 true，并授予分析器的服务账号 docs/reclaim.md 所列的权限。",
        ),
        (f"curl -s http://ANALYZER:{ANALYZER_PORT}/api/v1/reclaim/policy",),
    ),
    "RECLAIM_HELD_BACK": CheckWords(
        _W("No brake holds every workload back", "没有制动拦住所有工作负载"),
        _W(
            "{count:brake holds|brakes hold} every workload back: no GPU is taken.",
            "有 {count} 个制动拦住了所有工作负载：不会收回任何 GPU。",
        ),
        _W(
            "If the breaker is open, check the metrics of the workloads that turned idle at once. If the Kubernetes "
            "API does not answer, repair it. `start` ends a stop and resets the breaker.",
            "如果熔断器已断开，检查那些同时变为空闲的工作负载的指标。如果 Kubernetes API 没有应答，请修复它。"
            "`start` 结束停止状态并复位熔断器。",
        ),
        (
            f"curl -s http://ANALYZER:{ANALYZER_PORT}/api/v1/reclaim/policy",
            f"vgpuscope reclaim start --url http://ANALYZER:{ANALYZER_PORT}",
        ),
    ),
    # ── history ─────────────────────────────────────────────────────────────────────────────────────────────────
    "HISTORY_OFF": CheckWords(
        _W("Results are stored", "结果已存储"),
        _W(
            "analyzer.history is not set: results are lost at a restart, and there is no idle time, no trend "
            "and no GPU-hours.",
            "没有设置 analyzer.history：重启后结果丢失，也没有空闲时长、趋势和 GPU 小时数。",
        ),
        _W(
            "Set analyzer.history to a file or a postgresql:// URL.",
            "把 analyzer.history 设为文件或 postgresql:// 地址。",
        ),
        ("vgpuscope analyzer --history /var/lib/vgpuscope/history.db",),
    ),
    "HISTORY_DOWN": CheckWords(
        _W("The store of results can be written", "结果存储可写"),
        _W(
            "The store of results cannot be read or written. Analyses continue, and unsaved results wait in memory.",
            "结果存储无法读写。分析继续进行，未保存的结果留在内存中。",
        ),
        _W(
            "Check the disk, the volume's owner (fsGroup) or the database, and analyzer.history.",
            "检查磁盘、卷的属主（fsGroup）或数据库，以及 analyzer.history。",
        ),
        ("kubectl exec -n vgpuscope deploy/vgpuscope-analyzer -- df -h /var/lib/vgpuscope",),
    ),
    "NOT_LEADER": CheckWords(
        _W("This replica leads", "本副本是主副本"),
        _W(
            "This replica follows another one: it shows the leader's results, and rejects changes.",
            "本副本跟随另一个副本：它显示主副本的结果，并拒绝更改。",
        ),
        _W(
            "Nothing is broken. Ask through the Service, or ask the leader.",
            "没有故障。请通过 Service 访问，或直接访问主副本。",
        ),
        (f"curl -s http://ANALYZER:{ANALYZER_PORT}/health | grep -o '\"leader\":[a-z]*'",),
    ),
}
