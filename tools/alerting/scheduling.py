"""Alerts on the parts that schedule: the extender, which decides, and the device plugin, which hands GPUs out."""

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Text
from tools.alerting.expressions import appeared, per

_REPLICA = "cluster, job, instance"

FILE = AlertFile(
    name="scheduling",
    about=Text(
        "The scheduler extender and the device plugin. Without them there are no such series, and no such alerts.",
        "调度器扩展（extender）与设备插件。没有部署它们时没有这些序列，也不会告警。",
    ),
    alerts=(
        Alert(
            name="VgpuscopeExtenderNoLeader",
            expr=per("cluster, job", "vgpuscope_extender_leader") + " == 0",
            wait="2m",
            severity="critical",
            summary=Text(
                "No replica of the scheduler extender ({{ $labels.job }}) leads",
                "调度器扩展（{{ $labels.job }}）没有主副本",
            ),
            description=Text(
                "For 2 minutes no replica of {{ $labels.job }} has held the lease. Pods that request GPUs are not scheduled.",
                "已有 2 分钟没有任何 {{ $labels.job }} 副本持有租约（Lease）。申请 GPU 的 Pod 不会被调度。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The extender decides only while it holds the lease `vgpuscope-extender`. After a crash another replica "
                    "takes the lease within about 15 s. Two minutes without a leader mean that no replica can write it. "
                    "Pods that run already are not affected.",
                    "extender 只有持有租约 `vgpuscope-extender` 时才做决定。副本崩溃后，另一个副本约 15 秒内接管。两分钟没有主副本，"
                    "说明没有任何副本能写入租约。已经运行的 Pod 不受影响。",
                ),
                queries=(
                    "vgpuscope_extender_lease_age_seconds",
                    "increase(vgpuscope_extender_errors_total[30m])",
                    "increase(vgpuscope_extender_lease_transitions_total[1h])",
                ),
                commands=(
                    "kubectl get lease -A | grep vgpuscope-extender",
                    "kubectl logs -n NS deployment/vgpuscope-extender -c extender",
                ),
                causes=(
                    Cause(
                        Text("The API server is down or overloaded.", "API server 宕机或过载。"),
                        Text(
                            "Repair it; a replica leads again within seconds.", "修复 API server；几秒后即有副本接管。"
                        ),
                    ),
                    Cause(
                        Text(
                            "The service account may not write leases in its namespace.",
                            "ServiceAccount 无权在其命名空间写入 Lease。",
                        ),
                        Text(
                            "Compare its Role with the chart; [the rights](../extender.md) are listed.",
                            "将其 Role 与 chart 对比；[所需权限](../../extender.zh-CN.md)有列表。",
                        ),
                    ),
                    Cause(
                        Text(
                            "Clocks of the nodes differ by more than the lease's duration.",
                            "节点时钟相差超过租约时长。",
                        ),
                        Text("Repair NTP.", "修复 NTP。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeExtenderCacheStale",
            expr="\n".join(
                (
                    f"{per(_REPLICA, 'vgpuscope_extender_cache_age_seconds')} > 180",
                    "or",
                    f"{per(_REPLICA, 'vgpuscope_extender_cache_synced')} == 0",
                )
            ),
            wait="3m",
            severity="warning",
            summary=Text(
                "The scheduler extender at {{ $labels.instance }} does not see the cluster",
                "{{ $labels.instance }} 上的调度器扩展看不到集群的最新状态",
            ),
            description=Text(
                "{{ if gt $value 1.0 }}The extender at {{ $labels.instance }} has heard nothing from the API server for "
                "{{ $value | humanizeDuration }}. Its decisions rest on old data.{{ else }}The extender at "
                "{{ $labels.instance }} has not listed nodes, pods and quotas. It decides nothing.{{ end }}",
                "{{ if gt $value 1.0 }}{{ $labels.instance }} 上的 extender 已有 {{ $value | humanizeDuration }} 没有收到 API "
                "server 的消息，其决定基于旧数据。{{ else }}{{ $labels.instance }} 上的 extender 还没有列出节点、Pod 和配额，"
                "不会做任何决定。{{ end }}",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The extender counts what is allocated of each GPU, from watches of nodes, pods and quotas. A healthy watch is silent "
                    "for at most a minute. A stale replica that leads may refuse pods that would fit; it never allocates more "
                    "than a GPU has, because the assignment is written with the version that it read.",
                    "extender 通过 watch 节点、Pod 和配额维护所有 GPU 的账目。正常的 watch 最多安静一分钟。过时的主副本可能拒绝本来"
                    "放得下的 Pod；但不会超量分配，因为写入分配结果时会校验所读的版本。",
                ),
                queries=(
                    "vgpuscope_extender_watch_up",
                    "vgpuscope_extender_cache_age_seconds",
                    "increase(vgpuscope_extender_errors_total[30m])",
                ),
                commands=("kubectl get --raw /readyz", "kubectl logs -n NS deployment/vgpuscope-extender -c extender"),
                causes=(
                    Cause(
                        Text(
                            "The API server does not answer, or a proxy ends watches.",
                            "API server 无应答，或代理中断了 watch。",
                        ),
                        Text("Repair the connection; the extender lists again.", "修复连接；extender 会重新列出对象。"),
                    ),
                    Cause(
                        Text(
                            "The service account may not list or watch a kind.",
                            "ServiceAccount 无权列出或 watch 某类对象。",
                        ),
                        Text(
                            "`/readyz` names what is missing; compare the ClusterRole with the chart.",
                            "`/readyz` 会说明缺少什么；将 ClusterRole 与 chart 对比。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeExtenderQueueLong",
            expr=per(_REPLICA, "vgpuscope_extender_queue_length") + " > 20",
            wait="5m",
            severity="warning",
            summary=Text(
                "{{ $value | humanize }} scheduling decisions wait at {{ $labels.instance }}",
                "{{ $labels.instance }} 上有 {{ $value | humanize }} 个调度决定在排队",
            ),
            description=Text(
                "For 5 minutes more than 20 decisions have waited for their turn at {{ $labels.instance }}. kube-scheduler "
                "gives up after 30 s, and pods start late.",
                "{{ $labels.instance }} 上已有 5 分钟超过 20 个决定在排队。kube-scheduler 等待 30 秒后放弃，Pod 启动变慢。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The extender makes one decision at a time, so that two pods never get the same share. A filter over 1,000 "
                    "nodes takes milliseconds; a long queue means that writing to the API server is slow, or the process is.",
                    "extender 一次只做一个决定，以保证两个 Pod 不会得到同一份资源。对 1,000 个节点的过滤只需几毫秒；队列变长说明写 API "
                    "server 慢，或进程本身慢。",
                ),
                queries=(
                    "histogram_quantile(0.99, sum by (le) (rate(vgpuscope_extender_queue_wait_seconds_bucket[5m])))",
                    "histogram_quantile(0.99, sum by (le) (rate(hami_scheduler_filter_duration_seconds_bucket[5m])))",
                    "histogram_quantile(0.99, sum by (le) (rate(hami_scheduler_bind_duration_seconds_bucket[5m])))",
                ),
                commands=("kubectl top pod -n NS -l app.kubernetes.io/component=extender --containers",),
                causes=(
                    Cause(
                        Text("The API server answers slowly.", "API server 应答缓慢。"),
                        Text(
                            "Look at its latency; raise the priority of the extender's account in API Priority and Fairness.",
                            "检查其延迟；在 API Priority and Fairness 中提高 extender 账号的优先级。",
                        ),
                    ),
                    Cause(
                        Text(
                            "The extender's CPU is throttled, or its node is overloaded.",
                            "extender 的 CPU 被限流，或其节点过载。",
                        ),
                        Text("Raise `extender.resources`.", "调高 `extender.resources`。"),
                    ),
                    Cause(
                        Text(
                            "kube-scheduler sends whole Node objects.",
                            "kube-scheduler 发送的是完整的 Node 对象。",
                        ),
                        Text(
                            "Set `nodeCacheCapable: true`, as the chart does.",
                            "设置 `nodeCacheCapable: true`，chart 即如此。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUDeviceUnhealthy",
            expr=per("cluster, node, device", "hami_device_plugin_healthy_status", "node") + " == 0",
            wait="1m",
            severity="critical",
            summary=Text(
                "The device plugin on {{ $labels.node }} calls GPU {{ $labels.device }} unhealthy",
                "节点 {{ $labels.node }} 的设备插件将 GPU {{ $labels.device }} 标记为不健康",
            ),
            description=Text(
                "GPU {{ $labels.device }} on {{ $labels.node }} gets no new pods. Containers that use it may fail.",
                "节点 {{ $labels.node }} 上的 GPU {{ $labels.device }} 不再接受新的 Pod，正在使用它的容器可能失败。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The driver has lost the GPU, or reported an XID that NVIDIA's catalogue does not attribute to an "
                    "application. The kubelet counts fewer devices, and the scheduler refuses the GPU "
                    "(`SCHED_DEVICE_UNHEALTHY`). The label `reason` of `vgpuscope_plugin_gpu_unhealthy` has the cause.",
                    "驱动丢失了该 GPU，或报告了 NVIDIA 目录中不属于应用程序的 XID。kubelet 会减少设备数，调度器会拒绝该 GPU"
                    "（`SCHED_DEVICE_UNHEALTHY`）。`vgpuscope_plugin_gpu_unhealthy` 的标签 `reason` 给出原因。",
                ),
                queries=(
                    'vgpuscope_plugin_gpu_unhealthy{node="NODE"}',
                    'vgpuscope_gpu_xid_errors_total{node="NODE"}',
                    "hami_device_plugin_device_count",
                ),
                commands=("vgpuscope gpus", "dmesg | grep -i xid", "kubectl describe node NODE"),
                causes=(
                    Cause(
                        Text("The GPU fell off the bus, or needs a reset.", "GPU 掉卡，或需要复位。"),
                        Text(
                            "Drain the node, then reset the GPU or restart the node; [XIDs](../xid.md) has the action for each.",
                            "先排空节点，再复位 GPU 或重启节点；各 XID 的处置见 [XID](../../xid.md)。",
                        ),
                    ),
                    Cause(
                        Text(
                            "The fault is repaired, and still recorded on the node.",
                            "故障已修复，但节点上仍有记录。",
                        ),
                        Text(
                            "Remove the GPU from the node's annotation `vgpuscope.io/gpu-faults`, or set "
                            "`plugin.clear_faults_after`.",
                            "从节点的注解 `vgpuscope.io/gpu-faults` 中删除该 GPU，或设置 `plugin.clear_faults_after`。",
                        ),
                    ),
                    Cause(
                        Text("The driver was replaced while the plugin ran.", "插件运行期间更换了驱动。"),
                        Text("Restart the plugin's pod on the node.", "重启该节点上的插件 Pod。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="DevicePluginAllocateFailing",
            expr=appeared("cluster, node, code", "vgpuscope_plugin_allocate_failures_total", "15m"),
            wait="0s",
            severity="warning",
            summary=Text(
                "Pods do not get their GPUs on {{ $labels.node }}: {{ $labels.code }}",
                "节点 {{ $labels.node }} 上的 Pod 拿不到 GPU：{{ $labels.code }}",
            ),
            description=Text(
                "{{ $value | humanize }} Allocate calls of the kubelet on {{ $labels.node }} failed in 15 minutes with "
                "{{ $labels.code }}. The kubelet ends such a pod with UnexpectedAdmissionError.",
                "15 分钟内节点 {{ $labels.node }} 的 kubelet 有 {{ $value | humanize }} 次 Allocate 调用以 {{ $labels.code }} 失败。"
                "kubelet 会以 UnexpectedAdmissionError 结束这些 Pod。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The scheduler bound a pod to the node, and the device plugin could not hand out the assigned GPUs. It "
                    "then sets the pod's phase to `failed` and releases the node's lock. A controller creates the pod again.",
                    "调度器把 Pod 绑定到该节点，但设备插件无法交付分配的 GPU。插件会把 Pod 的阶段设为 `failed` 并释放节点锁，"
                    "控制器会重新创建 Pod。",
                ),
                queries=(
                    'increase(vgpuscope_plugin_allocate_failures_total{node="NODE"}[1h])',
                    'vgpuscope_plugin_apiserver_up{node="NODE"}',
                ),
                commands=("vgpuscope why NAMESPACE/POD", "kubectl logs -n NS PLUGIN-POD", "kubectl describe pod POD"),
                causes=(
                    Cause(
                        Text(
                            "`ALLOCATE_POD_UNKNOWN`: the pod bypassed the scheduler that assigns GPUs.",
                            "`ALLOCATE_POD_UNKNOWN`：Pod 绕过了负责分配 GPU 的调度器。",
                        ),
                        Text(
                            "Check the pod's `schedulerName` and the webhook.",
                            "检查 Pod 的 `schedulerName` 和 webhook。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`ALLOCATE_DEVICE_UNKNOWN` or `ALLOCATE_DEVICE_UNHEALTHY`: the GPU is gone or failed meanwhile.",
                            "`ALLOCATE_DEVICE_UNKNOWN` 或 `ALLOCATE_DEVICE_UNHEALTHY`：GPU 已不在或刚刚失效。",
                        ),
                        Text("See the health of the node's GPUs.", "查看该节点 GPU 的健康状况。"),
                    ),
                    Cause(
                        Text(
                            "`ALLOCATE_DIRECTORY`: HAMi's directory cannot be written.",
                            "`ALLOCATE_DIRECTORY`：无法写入 HAMi 的目录。",
                        ),
                        Text(
                            "Check the mount, the disk and `plugin.hookPath`.", "检查挂载、磁盘和 `plugin.hookPath`。"
                        ),
                    ),
                    Cause(
                        Text("Other codes.", "其他代码。"),
                        Text("[Errors](../errors.md) explains each.", "见[错误](../../errors.md)。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="DevicePluginNotRegistered",
            expr=per("cluster, node", "vgpuscope_plugin_kubelet_up", "node") + " == 0",
            wait="5m",
            severity="critical",
            summary=Text(
                "The kubelet on {{ $labels.node }} does not know its GPUs",
                "节点 {{ $labels.node }} 的 kubelet 不知道自己的 GPU",
            ),
            description=Text(
                "For 5 minutes the device plugin on {{ $labels.node }} has not been registered with the kubelet. New pods "
                "with GPUs do not start there.",
                "节点 {{ $labels.node }} 的设备插件已有 5 分钟没有在 kubelet 注册。申请 GPU 的新 Pod 无法在该节点启动。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The plugin registers when the kubelet starts and then streams its list of devices. While it is not "
                    "registered, the node's allocatable `nvidia.com/gpu` falls to 0. Running containers are not affected.",
                    "kubelet 启动时插件向其注册，然后持续上报设备列表。未注册期间，节点可分配的 `nvidia.com/gpu` 变为 0。已运行的容器不受影响。",
                ),
                queries=(
                    'increase(vgpuscope_plugin_kubelet_registrations_total{node="NODE"}[1h])',
                    'vgpuscope_plugin_driver_up{node="NODE"}',
                    "increase(vgpuscope_plugin_errors_total[1h])",
                ),
                commands=(
                    "kubectl get node NODE -o jsonpath='{.status.allocatable}'",
                    "kubectl logs -n NS PLUGIN-POD",
                    "ls -l /var/lib/kubelet/device-plugins",
                ),
                causes=(
                    Cause(
                        Text(
                            "The kubelet's directory is not mounted, or is elsewhere.",
                            "kubelet 的目录没有挂载，或在别处。",
                        ),
                        Text("Set `plugin.kubeletPath`.", "设置 `plugin.kubeletPath`。"),
                    ),
                    Cause(
                        Text(
                            "Another device plugin serves the same resource, such as HAMi's or NVIDIA's.",
                            "另一个设备插件（如 HAMi 或 NVIDIA 的）提供同一资源。",
                        ),
                        Text(
                            "A node has one plugin for a resource. [Migration](../migration.md) has the order of the steps.",
                            "一个节点上每种资源只能有一个插件。步骤顺序见[迁移](../../migration.zh-CN.md)。",
                        ),
                    ),
                    Cause(
                        Text("The kubelet refuses the registration.", "kubelet 拒绝注册。"),
                        Text("The plugin's log has the kubelet's answer.", "插件日志中有 kubelet 的应答。"),
                    ),
                ),
            ),
        ),
    ),
)
