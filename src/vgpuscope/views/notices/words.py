"""The texts of notices, in English and Chinese. Each is a template of one notice; a heading stands above each kind."""

from vgpuscope.model.notices import NoticeKind
from vgpuscope.model.words import Language
from vgpuscope.views.case_reasons import CHINESE_REASONS

HEADINGS: dict[Language, dict[NoticeKind, str]] = {
    "en": {
        "soon": "Idle GPUs will be taken back",
        "advice": "Idle GPUs",
        "taken": "Idle GPUs were taken back",
        "recovered": "GPUs are in use again: nothing is taken back",
        "restored": "Workloads were restored",
        "failed": "GPUs could not be taken back",
        "breaker_opened": "Circuit breaker open: no GPU is taken back",
        "breaker_closed": "Circuit breaker closed: idle GPUs are taken back again",
        "low": "GPUs of low use",
    },
    "zh": {
        "soon": "空闲 GPU 即将收回",
        "advice": "空闲 GPU 提醒",
        "taken": "空闲 GPU 已收回",
        "recovered": "GPU 已恢复使用，不再收回",
        "restored": "工作负载已恢复",
        "failed": "GPU 收回失败",
        "breaker_opened": "熔断器已断开：暂停收回 GPU",
        "breaker_closed": "熔断器已恢复：继续收回空闲 GPU",
        "low": "GPU 低利用率告警",
    },
}

_WHAT_EN = """\
- {{ namespace }}/{{ pod }}
  GPUs: {{ gpus }}{% if score %}; score {{ score }}%{% endif %}

"""
_WHAT_ZH = """\
- {{ namespace }}/{{ pod }}
  GPU：{{ gpus }}{% if score %}；评分 {{ score }}%{% endif %}

"""
_IDLE_EN = "  Idle since {{ idle_since }}.\n{% if opinion %}  AI: {{ opinion }}\n{% endif %}"
_IDLE_ZH = "  空闲开始于 {{ idle_since }}。\n{% if opinion %}  AI：{{ opinion }}\n{% endif %}"
_LINKS_EN = """\
{% if keep_url %}
  Keep the GPUs: {{ keep_url }}
  Postpone: {{ snooze_url }}
{% endif %}
{% if release_url %}
  Give them back now: {{ release_url }}
{% endif %}
"""
_LINKS_ZH = """\
{% if keep_url %}
  保留 GPU：{{ keep_url }}
  推迟收回：{{ snooze_url }}
{% endif %}
{% if release_url %}
  立即归还：{{ release_url }}
{% endif %}
"""

TEXTS: dict[Language, dict[NoticeKind, str]] = {
    "en": {
        "soon": f"{_WHAT_EN}{_IDLE_EN}  The GPUs will be taken back after {{{{ grace_end }}}}.\n{_LINKS_EN}",
        "advice": f"{_WHAT_EN}{_IDLE_EN}  Please end the workload if it is no longer needed. Nothing is taken back.\n"
        + _LINKS_EN,
        "taken": f"{_WHAT_EN}  They were taken back at {{{{ at }}}}.\n",
        "recovered": f"{_WHAT_EN}  The workload uses them again.\n",
        "restored": f"{_WHAT_EN}  It was put back at {{{{ at }}}}{{% if by %}} by {{{{ by }}}}{{% endif %}}.\n",
        "failed": f"{_WHAT_EN}  Reason: {{{{ reason }}}}. The audit log has every attempt.\n",
        "breaker_opened": "{{ turned }} of {{ of }} workloads turned idle at once. This looks like a fault of the "
        "metrics, so no GPU is taken back.\n",
        "breaker_closed": "Workloads with idle GPUs are handled as before.\n",
        "low": _WHAT_EN + "{% if opinion %}  AI: {{ opinion }}\n{% endif %}",
    },
    "zh": {
        "soon": f"{_WHAT_ZH}{_IDLE_ZH}  GPU 将在 {{{{ grace_end }}}} 之后收回。\n{_LINKS_ZH}",
        "advice": f"{_WHAT_ZH}{_IDLE_ZH}  如果不再需要，请结束该工作负载。系统不会自动收回。\n{_LINKS_ZH}",
        "taken": f"{_WHAT_ZH}  已于 {{{{ at }}}} 收回。\n",
        "recovered": f"{_WHAT_ZH}  该工作负载已重新使用 GPU。\n",
        "restored": f"{_WHAT_ZH}  已于 {{{{ at }}}} 恢复原状{{% if by %}}，操作者：{{{{ by }}}}{{% endif %}}。\n",
        "failed": f"{_WHAT_ZH}  原因：{{{{ reason }}}}。审计日志中有每一次尝试。\n",
        "breaker_opened": "{{ of }} 个工作负载中有 {{ turned }} 个同时变为空闲，可能是指标故障，因此暂停收回 GPU。\n",
        "breaker_closed": "空闲 GPU 按原策略处理。\n",
        "low": _WHAT_ZH + "{% if opinion %}  AI：{{ opinion }}\n{% endif %}",
    },
}

# gpu-oour's text for Feishu, word for word; what the owner needs to know more follows below it
OOUR_HEADING = "⚠️ **GPU 低利用率告警**"
OOUR_ITEM = """\
- **{{ namespace }}/{{ pod }}**
{% if score %} - 评分: {{ score }}%
{% endif %}
{% if opinion %} - AI: {{ opinion }}
{% endif %}
"""
_OOUR_LINKS = """\
{% if keep_url %}
 - 保留: {{ keep_url }}
 - 推迟: {{ snooze_url }}
{% endif %}
{% if release_url %}
 - 立即归还: {{ release_url }}
{% endif %}
"""
OOUR_TEXTS: dict[NoticeKind, str] = {
    "low": OOUR_ITEM,
    "soon": OOUR_ITEM
    + " - GPU: {{ gpus }}\n - 空闲开始: {{ idle_since }}\n - 收回时间: {{ grace_end }} 之后\n"
    + _OOUR_LINKS,
    "advice": OOUR_ITEM
    + " - GPU: {{ gpus }}\n - 空闲开始: {{ idle_since }}\n - 系统不会自动收回，不再需要时请结束该工作负载\n"
    + _OOUR_LINKS,
}

CONSOLE: dict[Language, str] = {"en": "Console: {url}", "zh": "控制台：{url}"}
MORE: dict[Language, str] = {
    "en": "{count} more follow in the next message.",
    "zh": "另有 {count} 条将在下一条消息中发送。",
}
LEFT_OUT: dict[Language, str] = {
    "en": "{count} more are not listed here; /results/low has them all.",
    "zh": "另有 {count} 条未列出；完整列表见 /results/low。",
}
TRIAL: dict[Language, tuple[str, str]] = {
    "en": ("vgpuscope: trial message", "This channel works. Nothing has happened to any workload."),
    "zh": ("vgpuscope：测试消息", "该通知渠道可用。没有任何工作负载受到影响。"),
}
REASONS: dict[Language, dict[str, str]] = {  # a template of one's own can print the reason of any notice
    "en": {
        "confirmed": "enough idle windows in a row",
        "notice_delivered": "the owner was notified",
        "grace_ended": "the grace period has ended",
        "dry_run": "dry run",
        "decided": "decided by the policy",
        "approved": "approved",
        "snoozed": "snoozed",
        "exempted": "exempted",
        "resumed": "snooze or exemption ended by an operator",
        "restored": "restored",
        "works_again": "it works again",
        "policy_changed": "the policy changed",
        "approval_needed": "the policy now asks for approval",
        "holds_memory": "it holds memory again",
        "prepares_data": "it prepares data",
        "ended": "it has ended",
        "annotation": "by annotation",
        "annotation_gone": "the annotation was removed",
        "live": "the dry run has ended",
        "idle_again": "it is idle again",
        "idle": "it is idle",
        "freed": "the GPUs are free",
        "call_refused": "the call was refused",
        "owner_agreed": "the owner gives the GPUs back",
        "owner_in_use": "another pod of the owner is in use",
        "restore_refused": "the change could not be undone",
        "restoring": "the change is being undone",
        "not_freed": "the GPUs were not free in time",
        "call_failed": "the calls failed for 24 hours",
        "notice_failed": "the notice could not be delivered for 24 hours",
    },
    "zh": {
        **CHINESE_REASONS,
        "not_freed": "GPU 未在期限内释放",
        "call_failed": "调用在 24 小时内一直失败",
        "notice_failed": "通知在 24 小时内一直无法送达",
    },
}
