"""Alerts on the services that measure: a fault here means that the other alerts may be silent."""

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Text
from tools.alerting.expressions import per
from vgpuscope.catalog.agent import BUILD_INFO
from vgpuscope.model.service import AGENT_PORT

_OWN_JOBS = "(.*[-/])?vgpuscope(-cluster|-metrics|-analyzer|-api|-extender|-decisions|-plugin|-devices)?"
# Names that the chart gives our services with compatibility.handbookNames, and that HAMi's own services have otherwise.
_HANDBOOK_JOBS = "(.*[-/])?(hami-scheduler|hami-webui)"
_DOWN = " or ".join(
    (
        f'max by (cluster, job, instance) (up{{job=~"{_OWN_JOBS}"}}) == 0',
        f'max by (cluster, job, instance) (up{{job=~"{_HANDBOOK_JOBS}"}}) == 0 and on (cluster, job, instance) '
        f"last_over_time({BUILD_INFO.name}[1d])",
    )
)
_ANALYZER = "cluster, job"  # replicas of one analyzer have one job; analyzers of different fleets have one each

FILE = AlertFile(
    name="services",
    about=Text(
        "The services that measure: if one of them fails, the other alerts may be silent.",
        "负责测量的各个服务：其中之一出故障时，其他告警可能不会触发。",
    ),
    alerts=(
        Alert(
            name="VgpuscopeAgentBlind",
            expr="\n".join(
                (
                    f"{per('cluster, node, source', 'vgpuscope_source_up')} == 0",
                    "unless",
                    f"{per('cluster, node, source', 'vgpuscope_source_absent')} == 1",
                    "or",
                    f"label_replace({per('cluster, node', 'increase(vgpuscope_samples_total[5m])')} == 0, "
                    '"source", "sampler", "", "")',
                )
            ),
            wait="5m",
            severity="warning",
            summary=Text(
                "The agent on {{ $labels.node }} cannot read {{ $labels.source }}",
                "节点 {{ $labels.node }} 的 agent 无法读取 {{ $labels.source }}",
            ),
            description=Text(
                "The agent on {{ $labels.node }} answers, but its source {{ $labels.source }} has failed for 5 minutes. "
                "Values of this source are missing.",
                "节点 {{ $labels.node }} 的 agent 有应答，但来源 {{ $labels.source }} 已失败 5 分钟，缺少该来源的数据。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The agent runs and lacks one of its sources. `nvml` is the driver, `regions` are HAMi's files, `pods` "
                    "are the kubelet's or API server's pods, `proc` are the processes of the host. `sampler` means that "
                    "the agent takes no samples at all. A source that does not exist on the node is not a fault.",
                    "agent 在运行，但缺少一个来源。`nvml` 是驱动，`regions` 是 HAMi 的文件，`pods` 来自 kubelet 或 API server，"
                    "`proc` 是宿主机进程。`sampler` 表示 agent 完全没有采样。节点上本来就不存在的来源不算故障。",
                ),
                queries=(
                    'vgpuscope_source_age_seconds{node="NODE"}',
                    'increase(vgpuscope_errors_total{node="NODE"}[30m])',
                ),
                commands=(f"vgpuscope top http://NODE:{AGENT_PORT}", "kubectl logs -n NS AGENT-POD"),
                causes=(
                    Cause(
                        Text(
                            "`nvml`: the driver is missing, hangs or was updated.", "`nvml`：驱动缺失、挂起或刚升级。"
                        ),
                        Text(
                            "Run `nvidia-smi` on the node; restart the agent.",
                            "在节点上运行 `nvidia-smi`；重启 agent。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`pods`, `podresources`: no right to ask the kubelet, or its directory is not mounted.",
                            "`pods`、`podresources`：无权访问 kubelet，或目录没有挂载。",
                        ),
                        Text(
                            "The log has the code; [errors](../errors.md) has the remedy.",
                            "日志中有错误代码；处理办法见[错误](../../errors.md)。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`claims`: containers have ResourceClaims, and the agent may not read them.",
                            "`claims`：容器使用了 ResourceClaim，但 agent 无权读取。",
                        ),
                        Text(
                            "Allow its role to list `resourceslices` and to get `resourceclaims`.",
                            "允许其角色 list `resourceslices`、get `resourceclaims`。",
                        ),
                    ),
                    Cause(
                        Text("`regions`: HAMi's directory cannot be read.", "`regions`：无法读取 HAMi 的目录。"),
                        Text("Check the mount and the rights of the agent's user.", "检查挂载以及 agent 用户的权限。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUNodeWithoutAgent",
            expr="\n".join(
                (
                    per("cluster, node", 'vgpuscope_cluster_gpu_info{vendor="NVIDIA"}', "node"),
                    "unless on (cluster, node)",
                    per("cluster, node", "vgpuscope_samples_total"),
                    "and on (cluster)",
                    per("cluster", "vgpuscope_samples_total"),
                )
            ),
            wait="15m",
            severity="warning",
            summary=Text(
                "{{ $labels.node }} has GPUs and no agent",
                "节点 {{ $labels.node }} 有 GPU 却没有 agent",
            ),
            description=Text(
                "{{ $labels.node }} registers NVIDIA GPUs with the scheduler, and Prometheus has had no series of an agent "
                "there for 15 minutes. The use of these GPUs is unknown.",
                "节点 {{ $labels.node }} 向调度器登记了 NVIDIA GPU，但 Prometheus 已有 15 分钟没有该节点 agent 的序列，这些 GPU 的用量未知。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The cluster exporter knows the node's GPUs, and no agent measures them. The alert needs at least one "
                    "agent in the same cluster, so a cluster without agents raises none.",
                    "集群 exporter 知道该节点的 GPU，但没有 agent 测量它们。只有同一集群中至少有一个 agent 时才会触发，完全没有 agent 的集群不会告警。",
                ),
                queries=(
                    'vgpuscope_cluster_gpu_info{node="NODE"}',
                    'vgpuscope_cluster_node_ready{node="NODE"}',
                    f'up{{instance=~".*:{AGENT_PORT}"}}',
                ),
                commands=("kubectl get pods -A -o wide | grep vgpuscope-agent", "kubectl describe node NODE"),
                causes=(
                    Cause(
                        Text(
                            "The DaemonSet does not tolerate a taint of the node, or its selector excludes the node.",
                            "DaemonSet 不容忍节点的污点，或选择器排除了该节点。",
                        ),
                        Text(
                            "Correct `tolerations` or `nodeSelector` of the agent.",
                            "修改 agent 的 `tolerations` 或 `nodeSelector`。",
                        ),
                    ),
                    Cause(
                        Text("The node is down.", "节点宕机。"),
                        Text("Repair the node.", "修复节点。"),
                    ),
                    Cause(
                        Text(
                            "The agent's node name is not that of Kubernetes.",
                            "agent 的节点名与 Kubernetes 的不一致。",
                        ),
                        Text("Set `NODE_NAME` from `spec.nodeName`.", "用 `spec.nodeName` 设置 `NODE_NAME`。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeVerdictsUnknown",
            expr="\n".join(
                (
                    per(_ANALYZER, 'vgpuscope_analyzer_gpus{verdict="unknown"}'),
                    "/",
                    f"(sum by ({_ANALYZER}) ({per(f'{_ANALYZER}, verdict', 'vgpuscope_analyzer_gpus')}) > 0)",
                    "> 0.5",
                )
            ),
            wait="30m",
            severity="warning",
            summary=Text(
                "The verdict on {{ $value | humanizePercentage }} of the GPUs is unknown",
                "{{ $value | humanizePercentage }} 的 GPU 判定为 unknown",
            ),
            description=Text(
                "For 30 minutes the analyzer ({{ $labels.job }}) has not been able to judge most GPUs. Idle GPUs are not "
                "found meanwhile.",
                "分析器（{{ $labels.job }}）已有 30 分钟无法判定大多数 GPU，期间发现不了空闲的 GPU。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The analyzer calls a GPU `unknown` if it has too few samples or no signal of compute. One such GPU is "
                    "usual; more than half of the fleet means that something between exporters and analyzer is broken.",
                    "采样太少或没有计算信号时，分析器判定为 `unknown`。个别 GPU 如此很常见；超过一半则说明 exporter 与分析器之间出了问题。",
                ),
                queries=(
                    "vgpuscope_analyzer_coverage_ratio < 0.8",
                    "vgpuscope_analyzer_sample_age_seconds > 120",
                    "vgpuscope_analyzer_faults",
                    'vgpuscope_analyzer_targets{state="down"}',
                ),
                commands=("vgpuscope results",),
                causes=(
                    Cause(
                        Text(
                            "Scrapes fail, or the scrape interval is too long for the window.",
                            "抓取失败，或抓取间隔相对窗口过长。",
                        ),
                        Text(
                            "Scrape every 15 to 30 s; the window is `prometheus.time_window_min`.",
                            "每 15 至 30 秒抓取一次；窗口由 `prometheus.time_window_min` 设置。",
                        ),
                    ),
                    Cause(
                        Text(
                            "MIG without profiling metrics: no compute signal exists.",
                            "启用 MIG 却没有 profiling 指标：没有计算信号。",
                        ),
                        Text(
                            "Run dcgm-exporter with `DCGM_FI_PROF_GR_ENGINE_ACTIVE`.",
                            "运行 dcgm-exporter 并启用 `DCGM_FI_PROF_GR_ENGINE_ACTIVE`。",
                        ),
                    ),
                    Cause(
                        Text("Clocks of nodes and Prometheus differ.", "节点与 Prometheus 的时钟不一致。"),
                        Text("Repair NTP.", "修复 NTP。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeWatchDown",
            expr=per("cluster, job, instance, kind", "vgpuscope_cluster_watch_up") + " == 0",
            wait="5m",
            severity="warning",
            summary=Text(
                "The cluster exporter does not see {{ $labels.kind }}",
                "集群 exporter 看不到 {{ $labels.kind }}",
            ),
            description=Text(
                "The watch of {{ $labels.kind }} by {{ $labels.instance }} has not been in sync for 5 minutes. What the "
                "exporter says of them is old or missing.",
                "{{ $labels.instance }} 对 {{ $labels.kind }} 的 watch 已有 5 分钟未同步，相关数据过时或缺失。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The exporter cannot list and watch one kind of object. Only this kind is affected. A kind that the "
                    "API server does not serve is not a fault.",
                    "exporter 无法列出并 watch 某类对象，只影响这一类。API server 不提供的类别不算故障。",
                ),
                queries=(
                    "vgpuscope_cluster_watch_age_seconds",
                    "increase(vgpuscope_cluster_errors_total[30m])",
                ),
                commands=("vgpuscope nodes", "kubectl logs -n NS CLUSTER-POD", "kubectl auth can-i watch pods -A"),
                causes=(
                    Cause(
                        Text("The service account lacks the right.", "ServiceAccount 没有权限。"),
                        Text("Give it get, list and watch on the kind.", "授予该类对象的 get、list、watch 权限。"),
                    ),
                    Cause(
                        Text("The API server is down or overloaded.", "API server 宕机或过载。"),
                        Text("The exporter retries; repair the API server.", "exporter 会自动重试；修复 API server。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeAnalyzerStopped",
            expr="\n".join(
                (
                    f"time() - {per(_ANALYZER, 'vgpuscope_analyzer_last_success_timestamp_seconds')} > 1800",
                    "or",
                    per(_ANALYZER, "vgpuscope_analyzer_leader"),
                    "unless",
                    per(_ANALYZER, "vgpuscope_analyzer_last_success_timestamp_seconds"),
                )
            ),
            wait="5m",
            severity="warning",
            summary=Text(
                "The analyzer ({{ $labels.job }}) does not analyse",
                "分析器（{{ $labels.job }}）没有在分析",
            ),
            description=Text(
                "{{ if gt $value 1.0 }}The last successful analysis of {{ $labels.job }} began "
                "{{ $value | humanizeDuration }} ago. Verdicts, scores and idle times are old.{{ else }}No analysis of "
                "{{ $labels.job }} has succeeded since it started.{{ end }}",
                "{{ if gt $value 1.0 }}{{ $labels.job }} 上一次成功的分析始于 {{ $value | humanizeDuration }} 前，判定、评分和空闲时间"
                "已过时。{{ else }}{{ $labels.job }} 启动以来没有一次分析成功。{{ end }}",
            ),
            runbook=Runbook(
                meaning=Text(
                    "No analysis has succeeded for half an hour, or none since the analyzer started. If `scheduler.interval` is longer than ten minutes, raise "
                    "the threshold to three intervals.",
                    "已有半小时没有成功的分析，或启动以来从未成功。若 `scheduler.interval` 超过十分钟，请把阈值提高到三个间隔。",
                ),
                queries=(
                    "time() - vgpuscope_analyzer_last_success_timestamp_seconds",
                    "increase(vgpuscope_analyzer_errors_total[1h])",
                    "vgpuscope_analyzer_leader",
                ),
                commands=("vgpuscope results", "kubectl logs -n NS ANALYZER-POD"),
                causes=(
                    Cause(
                        Text("Prometheus is down or refuses the queries.", "Prometheus 宕机或拒绝查询。"),
                        Text(
                            "The log has the code; [errors](../errors.md) has the remedy.",
                            "日志中有错误代码；处理办法见[错误](../../errors.md)。",
                        ),
                    ),
                    Cause(
                        Text(
                            "No replica can become the leader: the database is down.",
                            "没有副本能成为 leader：数据库不可用。",
                        ),
                        Text(
                            "Repair the database; see [history](../history.md).",
                            "修复数据库；见[历史](../../history.md)。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeDown",
            expr=_DOWN,
            wait="5m",
            severity="warning",
            summary=Text(
                "{{ $labels.job }} at {{ $labels.instance }} cannot be scraped",
                "{{ $labels.job }} 不可达：{{ $labels.instance }}",
            ),
            description=Text(
                "Prometheus has not been able to scrape {{ $labels.instance }} (job {{ $labels.job }}) for 5 minutes.",
                "Prometheus 已有 5 分钟无法抓取 {{ $labels.instance }}（job {{ $labels.job }}）。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "A service other than the agent cannot be scraped. Without the cluster exporter there are no "
                    "allocations, findings and waiting pods; without the analyzer there are no verdicts; without the "
                    "scheduler extender no pod with GPUs is scheduled; without a device plugin none starts on its node.",
                    "无法抓取除 agent 以外的某个服务。没有集群 exporter 就没有分配、核对结果和等待的 Pod；没有分析器就没有判定；"
                    "没有调度器扩展就不会调度 GPU Pod；没有设备插件，GPU Pod 就无法在该节点启动。",
                ),
                queries=("up == 0",),
                commands=("kubectl get pods -A -o wide | grep vgpuscope", "kubectl logs -n NS POD"),
                causes=(
                    Cause(
                        Text("The pod is not running.", "Pod 没有运行。"),
                        Text("`kubectl describe pod` gives the reason.", "`kubectl describe pod` 会给出原因。"),
                    ),
                    Cause(
                        Text("A NetworkPolicy blocks the port.", "NetworkPolicy 拦截了端口。"),
                        Text("Allow it from Prometheus.", "放行来自 Prometheus 的访问。"),
                    ),
                    Cause(
                        Text(
                            "The service requires TLS or a token, and the scrape has none.",
                            "服务要求 TLS 或令牌，而抓取配置里没有。",
                        ),
                        Text("See [security](../security.md).", "见[安全](../../security.md)。"),
                    ),
                ),
            ),
        ),
    ),
)
