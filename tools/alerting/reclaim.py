"""Alerts on reclaim and what it depends on. None of them fires in a dry run, or where a part is not configured."""

from textwrap import indent

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Text
from tools.alerting.expressions import appeared, per
from vgpuscope.model.service import ANALYZER_PORT

_CALL = "cluster, job, action"
_MODEL = "cluster, job, provider"
_CALLS = "vgpuscope_reclaim_actions_total"
_REQUESTS = "vgpuscope_ai_requests_total"


def _calls(outcome: str) -> str:
    """Calls with this outcome in half an hour. A restore that is refused is told to whoever asked for it."""
    series = f'{_CALLS}{{action!="restore",outcome="{outcome}"}}'
    return f"(\n{indent(appeared(_CALL, series, '30m'), '  ')}\n)"


def _requests(matcher: str = "") -> str:
    return f"sum by ({_MODEL}) (increase({_REQUESTS}{matcher}[1h]))"


_FAILED = _requests('{outcome!="success"}')


FILE = AlertFile(
    name="reclaim",
    about=Text(
        "Reclaim, and what it depends on: calls, notices, brakes and the language model. Silent in a dry run.",
        "GPU 收回及其依赖：调用、通知、制动和语言模型。演练模式下不会触发。",
    ),
    alerts=(
        Alert(
            name="VgpuscopeReclaimFailing",
            expr=f"{_calls('failure')}\nunless\n{_calls('success')}",
            wait="10m",
            severity="warning",
            summary=Text(
                "Calls of reclaim ({{ $labels.action }}) fail",
                "收回 GPU 的调用（{{ $labels.action }}）失败",
            ),
            description=Text(
                "Calls of the kind {{ $labels.action }} by {{ $labels.job }} have failed, and none has succeeded for 30 "
                "minutes. Idle GPUs stay with their workloads.",
                "{{ $labels.job }} 的 {{ $labels.action }} 调用失败，30 分钟内没有一次成功。空闲的 GPU 仍被工作负载占用。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "`control` is a call to `control.api_url`, `scale` is a change in the cluster. A call that is not "
                    "accepted is tried again for 24 hours. A call that is refused ends the case as `failed`.",
                    "`control` 是对 `control.api_url` 的调用，`scale` 是对集群的更改。未被接受的调用会重试 24 小时；被拒绝的调用使收回任务以 `failed` 结束。",
                ),
                queries=(
                    "increase(vgpuscope_reclaim_actions_total[1h])",
                    'vgpuscope_reclaim_workloads{state=~"acting|failed"}',
                ),
                commands=("vgpuscope reclaim", "kubectl logs -n NS ANALYZER-POD | grep 'a call failed'"),
                causes=(
                    Cause(
                        Text(
                            "`control`: the service at `control.api_url` is down, or rejects the signature.",
                            "`control`：`control.api_url` 的服务宕机，或拒绝签名。",
                        ),
                        Text(
                            "Repair the service; compare `control.secret` on both sides.",
                            "修复该服务；核对两端的 `control.secret`。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`scale`: the service account may not change the object.",
                            "`scale`：ServiceAccount 无权更改该对象。",
                        ),
                        Text(
                            "Give it the rights of [reclaim](../reclaim.md).",
                            "授予[收回](../../reclaim.zh-CN.md)所需的权限。",
                        ),
                    ),
                    Cause(
                        Text("The object was deleted meanwhile.", "对象在此期间已被删除。"),
                        Text("Nothing: its GPUs are free.", "无需处理：GPU 已释放。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeReclaimHeldBack",
            expr=per("cluster, job, brake", 'vgpuscope_reclaim_brake_on{brake!="stop"}') + " == 1",
            wait="15m",
            severity="warning",
            summary=Text(
                "Reclaim takes no action ({{ $labels.brake }})",
                "GPU 收回被制动拦住（{{ $labels.brake }}）",
            ),
            description=Text(
                "The brake {{ $labels.brake }} has held every workload back for 15 minutes. {{ $labels.job }} takes no "
                "action and sends no notice before one.",
                "制动 {{ $labels.brake }} 已拦住所有工作负载 15 分钟。{{ $labels.job }} 不会执行动作，也不会发送动作前的通知。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "Something that concerns all workloads forbids to act. Nothing is lost: the cases wait. The stop switch "
                    "raises no alert, because a person uses it on purpose.",
                    "某个影响所有工作负载的条件禁止执行动作。不会丢失任何内容：收回任务会等待。停止开关由人主动使用，因此不告警。",
                ),
                queries=(
                    "vgpuscope_reclaim_brake_on",
                    'sum by (verdict) (vgpuscope_analyzer_gpus{verdict!="in_use"})',
                ),
                commands=("vgpuscope reclaim", "vgpuscope doctor"),
                causes=(
                    Cause(
                        Text(
                            "`breaker`: many workloads turned idle at once, which looks like a fault of the metrics.",
                            "`breaker`：许多工作负载同时变为空闲，看起来像指标故障。",
                        ),
                        Text(
                            "Check the exporters. If the workloads are idle, start reclaim again in the console, which "
                            "resets the breaker.",
                            "检查 exporter。如果工作负载确实空闲，在控制台重新启动收回，熔断器随之复位。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`kube_unreachable`: the Kubernetes API does not answer the analyzer.",
                            "`kube_unreachable`：Kubernetes API 不应答分析器。",
                        ),
                        Text(
                            "Repair the API server, the network or the rights.",
                            "修复 API server、网络或权限。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`store_down`: the store of results cannot be written.",
                            "`store_down`：结果存储无法写入。",
                        ),
                        Text(
                            "Repair the disk or the database; see [history](../history.md).",
                            "修复磁盘或数据库；见[历史](../../history.md)。",
                        ),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeNoticesFailing",
            expr="max by (cluster, job, channel) (\n"
            "  vgpuscope_reclaim_channel_works\n"
            "  and on (cluster, job, instance)\n"
            "  vgpuscope_analyzer_leader == 1\n"
            ") == 0",
            wait="15m",
            severity="warning",
            summary=Text(
                "The channel {{ $labels.channel }} takes no notices",
                "通知渠道 {{ $labels.channel }} 无法送达",
            ),
            description=Text(
                "The service of the channel {{ $labels.channel }} has taken no message of {{ $labels.job }} for 15 "
                "minutes. Owners are not told through it.",
                "{{ $labels.job }} 的通知渠道 {{ $labels.channel }} 已有 15 分钟未接受消息，所有者无法通过它收到通知。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The last message was not taken, or the channel cannot be used at all. A notice is tried again for 24 "
                    "hours. A workload whose owner must be told first is left alone until then.",
                    "上一条消息未被接受，或渠道完全无法使用。通知会重试 24 小时。需要先通知所有者的工作负载在此之前不会被处理。",
                ),
                queries=(
                    "vgpuscope_reclaim_channel_works",
                    "increase(vgpuscope_reclaim_notices_total[1h])",
                ),
                commands=(
                    f"curl -s http://ANALYZER:{ANALYZER_PORT}/api/v1/notices",
                    "curl -s -X POST -H 'Authorization: Bearer TOKEN' "
                    f"http://ANALYZER:{ANALYZER_PORT}/api/v1/notices/CHANNEL/test",
                ),
                causes=(
                    Cause(
                        Text(
                            "The address of the channel is wrong, or its token has expired.",
                            "渠道地址有误，或令牌已过期。",
                        ),
                        Text(
                            "Correct it; see [notices](../notices.md). A trial message ends the alert.",
                            "更正它；见[通知](../../notices.zh-CN.md)。试发消息成功后告警结束。",
                        ),
                    ),
                    Cause(
                        Text("The file with the address cannot be read.", "无法读取保存地址的文件。"),
                        Text("Check the Secret and its mount.", "检查 Secret 及其挂载。"),
                    ),
                    Cause(
                        Text(
                            "A NetworkPolicy or a proxy blocks the way out.",
                            "NetworkPolicy 或代理拦截了出口流量。",
                        ),
                        Text("Allow it from the analyzer.", "放行来自分析器的访问。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="VgpuscopeModelFailing",
            expr=f"{_FAILED}\n/\n{_requests()}\n> 0.5\nand\n{_FAILED} > 2",
            wait="10m",
            severity="warning",
            summary=Text(
                "{{ $value | humanizePercentage }} of the requests to the language model fail",
                "语言模型请求有 {{ $value | humanizePercentage }} 失败",
            ),
            description=Text(
                "Most requests of {{ $labels.job }} to {{ $labels.provider }} have failed in the last hour. There are no "
                "new opinions; verdicts and scores do not change.",
                "最近一小时 {{ $labels.job }} 对 {{ $labels.provider }} 的大部分请求失败，没有新的意见；判定和评分不受影响。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The language model does not answer, or its answers cannot be used. With `ai.required: false` reclaim "
                    "decides by the numbers and records it; with `true` it waits.",
                    "语言模型没有应答，或其回答无法使用。`ai.required: false` 时收回由数值决定并留下记录；为 `true` 时会等待。",
                ),
                queries=(
                    "sum by (provider, outcome) (increase(vgpuscope_ai_requests_total[1h]))",
                    "vgpuscope_ai_cost_total",
                ),
                commands=(
                    f"curl -s http://ANALYZER:{ANALYZER_PORT}/health",
                    "kubectl logs -n NS ANALYZER-POD | grep 'no opinion'",
                ),
                causes=(
                    Cause(
                        Text(
                            "`rejected`: the key is wrong or the model is unknown.",
                            "`rejected`：密钥错误或模型不存在。",
                        ),
                        Text(
                            "Correct `ai.api_key` or `ai.model`; see [AI](../ai.md).",
                            "更正 `ai.api_key` 或 `ai.model`；见 [AI](../../ai.zh-CN.md)。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`unreachable`, `timeout`, `failed`: the provider is down, or the network blocks it.",
                            "`unreachable`、`timeout`、`failed`：服务商故障，或网络不通。",
                        ),
                        Text(
                            "Check `ai.api_url` from the analyzer's pod; raise `ai.timeout`.",
                            "在分析器的 Pod 中检查 `ai.api_url`；调大 `ai.timeout`。",
                        ),
                    ),
                    Cause(
                        Text("`rate_limited`: too many requests.", "`rate_limited`：请求过多。"),
                        Text(
                            "Lower `ai.concurrency` or `ai.max_per_cycle`.",
                            "调小 `ai.concurrency` 或 `ai.max_per_cycle`。",
                        ),
                    ),
                    Cause(
                        Text(
                            "`invalid`, `too_large`: the model does not answer in the form that it is asked for.",
                            "`invalid`、`too_large`：模型没有按要求的格式回答。",
                        ),
                        Text("Choose another model.", "换用其他模型。"),
                    ),
                ),
            ),
        ),
    ),
)
