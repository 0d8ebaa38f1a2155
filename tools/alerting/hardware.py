"""Alerts on GPUs that fail: XIDs by the action that NVIDIA's catalogue advises, and GPUs that do not answer."""

from tools.alerting.alert import Alert, AlertFile, Cause, Runbook, Severity, Text
from tools.alerting.expressions import GPU, appeared, per
from vgpuscope.model.xid import Action

XID_ACTIONS: dict[str, tuple[Action, ...]] = {
    "GPUXidApplication": ("restart-app",),
    "GPUXidReset": ("reset-gpu",),
    "GPUXidDrain": (
        "restart-machine",
        "restart-vm",
        "check-hardware",
        "update-software",
        "follow-workflow",
        "report",
    ),
    "GPUXidNeedsReview": ("check-uvm", "unknown"),
}
# The catalogue says that nothing is to be done about these, or that another XID is reported beside them.
SILENT_ACTIONS: tuple[Action, ...] = ("ignore", "see-other-xid")

_XID = f"{GPU}, xid, action"
_DRIVER_ANSWERS = per("cluster, node", 'vgpuscope_source_up{source="nvml"}') + " == 1"


def _xid(
    name: str,
    severity: Severity,
    window: str,
    *,
    summary: Text,
    description: Text,
    meaning: Text,
    causes: tuple[Cause, ...],
) -> Alert:
    actions = "|".join(XID_ACTIONS[name])
    op = "=~" if "|" in actions else "="
    return Alert(
        name=name,
        expr=appeared(_XID, f'vgpuscope_gpu_xid_errors_total{{action{op}"{actions}"}}', window),
        wait="0s",
        severity=severity,
        summary=summary,
        description=description,
        runbook=Runbook(
            meaning=Text(
                f"{meaning.en} The alert ends {window} after the last such XID. If Prometheus was down for longer than "
                "that, an older XID can raise it again.",
                f"{meaning.zh}最后一次此类 XID 之后 {window}，告警解除。若 Prometheus 停机超过这段时间，较早的 XID 可能再次触发告警。",
            ),
            queries=(
                'vgpuscope_gpu_xid_errors_total{gpu_uuid="GPU-…"}',
                'vgpuscope_gpu_health{gpu_uuid="GPU-…"} == 1',
                'vgpuscope_container_info{gpu_uuid="GPU-…"}',
            ),
            commands=("vgpuscope top", "dmesg | grep -i xid"),
            causes=causes,
        ),
    )


_TABLE = Text("[XIDs](../xid.md) lists all of them.", "全部 XID 见[列表](../../xid.md)。")

FILE = AlertFile(
    name="hardware",
    about=Text(
        "GPUs that fail: XIDs by the action that NVIDIA advises, GPUs that do not answer or are gone.",
        "发生故障的 GPU：按 NVIDIA 建议动作分类的 XID，以及无响应或消失的 GPU。",
    ),
    alerts=(
        _xid(
            "GPUXidApplication",
            "info",
            "15m",
            summary=Text(
                "XID {{ $labels.xid }} on {{ $labels.node }}: a program failed on the GPU",
                "{{ $labels.node }} 出现 XID {{ $labels.xid }}：程序在 GPU 上出错",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} reported XID {{ $labels.xid }}. The GPU is healthy; the "
                "program has to be restarted.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 报告 XID {{ $labels.xid }}。GPU 本身正常，需要重启程序。",
            ),
            meaning=Text(
                f"The driver ended a program's work, mostly because of an error in the program. {_TABLE.en}",
                f"驱动终止了某个程序的工作，多半是程序自身的错误。{_TABLE.zh}",
            ),
            causes=(
                Cause(
                    Text(
                        "XID 13 or 31: the program accessed memory that is not its own.",
                        "XID 13 或 31：程序访问了不属于它的内存。",
                    ),
                    Text(
                        "Run it with `compute-sanitizer`; restart it.",
                        "用 `compute-sanitizer` 运行程序定位问题；重启程序。",
                    ),
                ),
                Cause(
                    Text(
                        "XID 94: a memory error was contained to one program.",
                        "XID 94：显存错误被限制在一个程序内。",
                    ),
                    Text(
                        "Restart the program. If it repeats, see [GPUXidReset](GPUXidReset.md).",
                        "重启程序。若反复出现，见 [GPUXidReset](GPUXidReset.md)。",
                    ),
                ),
                Cause(
                    Text(
                        "Different programs fail on the same GPU only.",
                        "不同的程序只在同一张 GPU 上出错。",
                    ),
                    Text("Suspect the GPU: cordon it and run diagnostics.", "怀疑 GPU 本身：封锁它并运行诊断。"),
                ),
            ),
        ),
        _xid(
            "GPUXidReset",
            "critical",
            "1h",
            summary=Text(
                "XID {{ $labels.xid }} on {{ $labels.node }}: the GPU must be reset",
                "{{ $labels.node }} 出现 XID {{ $labels.xid }}：GPU 需要复位",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} reported XID {{ $labels.xid }}. Work on it cannot go on "
                "until it is reset.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 报告 XID {{ $labels.xid }}，复位之前无法继续工作。",
            ),
            meaning=Text(
                f"The GPU is in a state that only a reset ends. Programs on it hang or fail. {_TABLE.en}",
                f"GPU 处于只有复位才能恢复的状态，其上的程序会挂起或失败。{_TABLE.zh}",
            ),
            causes=(
                Cause(
                    Text(
                        "XID 64 or 95: memory errors that could not be contained or remapped.",
                        "XID 64 或 95：无法隔离或重映射的显存错误。",
                    ),
                    Text(
                        "Cordon the GPU, end its pods, `nvidia-smi -r -i INDEX`. Replace it if this repeats.",
                        "封锁该 GPU，结束其 Pod，执行 `nvidia-smi -r -i INDEX`。若反复出现则更换。",
                    ),
                ),
                Cause(
                    Text(
                        "XID 119 or 120: the GPU's firmware (GSP) does not answer.",
                        "XID 119 或 120：GPU 固件（GSP）无响应。",
                    ),
                    Text("Reset the GPU; update the driver.", "复位 GPU；升级驱动。"),
                ),
                Cause(
                    Text("XID 109: a context switch timed out.", "XID 109：上下文切换超时。"),
                    Text(
                        "Reset the GPU; look for a kernel that never ends.",
                        "复位 GPU；查找永不结束的核函数。",
                    ),
                ),
            ),
        ),
        _xid(
            "GPUXidDrain",
            "critical",
            "1h",
            summary=Text(
                "XID {{ $labels.xid }} on {{ $labels.node }}: drain the node ({{ $labels.action }})",
                "{{ $labels.node }} 出现 XID {{ $labels.xid }}：请排空节点（{{ $labels.action }}）",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} reported XID {{ $labels.xid }}. A reset of the GPU is not "
                "enough; NVIDIA's advice is {{ $labels.action }}.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 报告 XID {{ $labels.xid }}。仅复位 GPU 不够，NVIDIA 的建议是 "
                "{{ $labels.action }}。",
            ),
            meaning=Text(
                "The fault needs work on the machine: a restart, a look at power and cabling, new software, or a report to "
                f"NVIDIA. The label `action` says which. {_TABLE.en}",
                f"故障需要在机器上处理：重启、检查供电和线缆、更新软件，或上报 NVIDIA。标签 `action` 说明是哪一种。{_TABLE.zh}",
            ),
            causes=(
                Cause(
                    Text("XID 79: the GPU has fallen off the bus.", "XID 79：GPU 从总线上掉线。"),
                    Text(
                        "`kubectl drain` the node and restart it. Check power, temperature and seating if it repeats.",
                        "用 `kubectl drain` 排空节点并重启。若反复出现，检查供电、温度和插槽。",
                    ),
                ),
                Cause(
                    Text(
                        "XID 48: a memory error that ECC cannot correct.",
                        "XID 48：ECC 无法纠正的显存错误。",
                    ),
                    Text(
                        "Drain the node and restart it, so that the row is remapped. Then see "
                        "`vgpuscope_gpu_remap_failed`.",
                        "排空并重启节点，使坏行被重映射；然后查看 `vgpuscope_gpu_remap_failed`。",
                    ),
                ),
                Cause(
                    Text("XID 74 or 144 to 150: an NVLink fault.", "XID 74 或 144 至 150：NVLink 故障。"),
                    Text("Drain the node; run NVIDIA's field diagnostics.", "排空节点；运行 NVIDIA 的现场诊断。"),
                ),
            ),
        ),
        _xid(
            "GPUXidNeedsReview",
            "warning",
            "1h",
            summary=Text(
                "XID {{ $labels.xid }} on {{ $labels.node }} has no known remedy ({{ $labels.action }})",
                "{{ $labels.node }} 出现 XID {{ $labels.xid }}，没有已知的处理办法（{{ $labels.action }}）",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} reported XID {{ $labels.xid }}. A person has to decide "
                "what to do.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 报告 XID {{ $labels.xid }}，需要人工判断如何处理。",
            ),
            meaning=Text(
                "The XID is not in the catalogue that this release knows, or it asks for a check of unified memory (UVM). "
                f"It is unknown whether the GPU is harmed. {_TABLE.en}",
                f"该 XID 不在本版本所知的目录中，或要求检查统一内存（UVM）。GPU 是否受损尚不清楚。{_TABLE.zh}",
            ),
            causes=(
                Cause(
                    Text("A newer driver has new XIDs.", "较新的驱动引入了新的 XID。"),
                    Text(
                        "Look the XID up in NVIDIA's catalogue; upgrade vgpuscope.",
                        "在 NVIDIA 的目录中查找该 XID；升级 vgpuscope。",
                    ),
                ),
                Cause(
                    Text("XID 159: unified memory.", "XID 159：统一内存。"),
                    Text("Read the kernel log beside it.", "查看内核日志中与它相邻的内容。"),
                ),
            ),
        ),
        Alert(
            name="GPUUnhealthy",
            expr=per(f"{GPU}, health", 'vgpuscope_gpu_health{health!="ok"}') + " == 1",
            wait="2m",
            severity="critical",
            summary=Text(
                "A GPU of {{ $labels.node }} is {{ $labels.health }}",
                "节点 {{ $labels.node }} 的 GPU 状态异常：{{ $labels.health }}",
            ),
            description=Text(
                "GPU {{ $labels.gpu_uuid }} on {{ $labels.node }} has been {{ $labels.health }} for 2 minutes.",
                "节点 {{ $labels.node }} 的 GPU {{ $labels.gpu_uuid }} 处于 {{ $labels.health }} 状态已 2 分钟。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The driver cannot work with the GPU. `lost`: it fell off the bus. `reset-required`: it waits for a "
                    "reset. `unresponsive`: calls into the driver hang. `no-permission`: the agent may not read it.",
                    "驱动无法操作该 GPU。`lost`：从总线掉线；`reset-required`：等待复位；`unresponsive`：驱动调用挂起；"
                    "`no-permission`：agent 无权读取。",
                ),
                queries=(
                    'vgpuscope_gpu_xid_errors_total{gpu_uuid="GPU-…"}',
                    'vgpuscope_cluster_gpu_healthy{gpu_uuid="GPU-…"}',
                    'vgpuscope_container_info{gpu_uuid="GPU-…"}',
                ),
                commands=("vgpuscope top", "nvidia-smi -q", "dmesg | grep -i -e xid -e nvrm"),
                causes=(
                    Cause(
                        Text("`lost`: hardware, power or temperature.", "`lost`：硬件、供电或温度问题。"),
                        Text("See [GPUXidDrain](GPUXidDrain.md).", "见 [GPUXidDrain](GPUXidDrain.md)。"),
                    ),
                    Cause(
                        Text("`reset-required`: after an XID.", "`reset-required`：XID 之后的状态。"),
                        Text("See [GPUXidReset](GPUXidReset.md).", "见 [GPUXidReset](GPUXidReset.md)。"),
                    ),
                    Cause(
                        Text(
                            "`unresponsive`: the driver hangs; the agent reads the other GPUs without it.",
                            "`unresponsive`：驱动挂起；agent 跳过它继续读取其他 GPU。",
                        ),
                        Text("Drain the node and restart it if it stays.", "若持续不恢复，排空节点并重启。"),
                    ),
                    Cause(
                        Text(
                            "`no-permission`: the agent's container is restricted.", "`no-permission`：agent 容器受限。"
                        ),
                        Text("Give it the NVIDIA runtime or device nodes.", "为其提供 NVIDIA runtime 或设备节点。"),
                    ),
                ),
            ),
        ),
        Alert(
            name="GPUVanished",
            expr="\n".join(
                (
                    per(GPU, "vgpuscope_gpu_info offset 1h"),
                    f"unless on ({GPU})",
                    per(GPU, "vgpuscope_gpu_info"),
                    "and on (cluster, node)",
                    _DRIVER_ANSWERS,
                )
            ),
            wait="5m",
            severity="warning",
            summary=Text(
                "A GPU of {{ $labels.node }} is gone",
                "节点 {{ $labels.node }} 的一张 GPU 消失了",
            ),
            description=Text(
                "An hour ago {{ $labels.node }} had GPU {{ $labels.gpu_uuid }}. Now the driver answers and does not list "
                "it.",
                "一小时前节点 {{ $labels.node }} 还有 GPU {{ $labels.gpu_uuid }}，现在驱动有应答却没有列出它。",
            ),
            runbook=Runbook(
                meaning=Text(
                    "The driver works, and a GPU that it listed an hour ago is missing. The alert ends an hour after the "
                    "GPU went. A node that is down or whose agent cannot be scraped raises other alerts.",
                    "驱动工作正常，但一小时前列出的某张 GPU 不见了。告警在 GPU 消失一小时后解除。节点宕机或无法抓取其 agent 会触发其他告警。",
                ),
                queries=(
                    'vgpuscope_gpu_info{node="NODE"}',
                    'vgpuscope_cluster_findings{kind="vanished-device"}',
                ),
                commands=("vgpuscope top", "nvidia-smi -L", "vgpuscope nodes"),
                causes=(
                    Cause(
                        Text("The node restarted without the GPU.", "节点重启后没有识别到该 GPU。"),
                        Text(
                            "`lspci` shows whether the bus still has it. Check seating and power.",
                            "用 `lspci` 查看总线上是否还有它。检查插槽和供电。",
                        ),
                    ),
                    Cause(
                        Text("The GPU was removed or given to a virtual machine.", "GPU 被移除，或直通给了虚拟机。"),
                        Text("Nothing to do; the alert ends on its own.", "无需处理，告警会自行解除。"),
                    ),
                ),
            ),
        ),
    ),
)
