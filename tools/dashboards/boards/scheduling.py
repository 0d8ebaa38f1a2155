"""Why do pods wait, and how fast is the scheduler?"""

from tools.dashboards.boards.parts import PENDING_FIGURE, figure, lines, table
from tools.dashboards.promql import buckets, each, increase, or_zero, quantile
from tools.dashboards.spec import NO_CLUSTER, NO_EXTENDER, Board, Panel, Query, Row, Steps
from tools.dashboards.variables import CLUSTER, CONSOLE_URL, SCHEDULER, WINDOW
from tools.dashboards.words import BAD, GOOD, NEUTRAL, WARN, Text
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import extender as x
from vgpuscope.catalog import scheduling as s
from vgpuscope.catalog.metric import Metric

BY = {"scheduler": "$scheduler"}
LONG: Steps = ((None, NEUTRAL), (600, WARN), (3600, BAD))
QUIET_TIME = Text("no pod was scheduled in the window", "窗口内没有 Pod 被调度")
STAGES = (
    ("filter", Text("Filter", "Filter")),
    ("bind", Text("Bind", "Bind")),
    ("schedule", Text("Schedule", "调度总耗时")),
)
_MEANING = {
    "filter": Text(
        "From the pod's creation, or its last failed attempt, to HAMi's choice of a node. Filtering and scoring "
        "cannot be told apart from outside.",
        "从 Pod 创建（或上次失败）到 HAMi 选定节点的时间。从外部无法区分 Filter 与 Score，两者合计在此。",
    ),
    "bind": Text(
        "From the node's lock to the binding, written by HAMi.",
        "从取得节点锁到完成绑定的时间，由 HAMi 写入。",
    ),
    "schedule": Text(
        "From the pod's creation to its binding, with any scheduler.",
        "从 Pod 创建到完成绑定的时间，适用于任何调度器。",
    ),
}


def bound(result: str) -> str:
    """Pods bound or failed in the window, over all schedulers."""
    return f"sum({increase(s.BINDS, window='$window', result=result, **BY)})"


FAILED, DONE = bound("failure"), bound("success")

FIGURES = Row(
    None,
    (
        PENDING_FIGURE,
        figure(
            Text("Longest wait", "等待最久"),
            Text("Waiting time of the oldest pending pod.", "等待最久的 Pod 已等待的时间。"),
            or_zero(f"max({each(s.PENDING_OLDEST)})", c.WATCH_UP),
            empty=NO_CLUSTER,
            unit="dtdurations",
            decimals=1,
            steps=LONG,
        ),
        figure(
            Text("Pods bound", "绑定成功"),
            Text("Pods with GPUs that were bound in the window.", "窗口内绑定成功的 GPU Pod。"),
            DONE,
            empty=NO_CLUSTER,
            decimals=0,
        ),
        figure(
            Text("Failed attempts", "绑定失败"),
            Text(
                "Failed attempts in the window to bind a pod or to allocate its devices.",
                "窗口内绑定 Pod 或分配设备失败的次数。",
            ),
            FAILED,
            empty=NO_CLUSTER,
            decimals=0,
            steps=((None, GOOD), (1, WARN)),
        ),
        figure(
            Text("Failure rate", "绑定失败率"),
            Text(
                "Failed / (failed + bound) in the window. No value if nothing was tried.",
                "窗口内 失败 /（失败 + 成功）。没有尝试时没有数值。",
            ),
            f"{FAILED} / ({FAILED} + {DONE} > 0)",
            empty=Text("nothing was tried in the window", "窗口内没有绑定尝试"),
            unit="percentunit",
            decimals=1,
            steps=((None, GOOD), (0.05, WARN), (0.2, BAD)),
        ),
        figure(
            Text("Time to schedule, p95", "调度耗时 p95"),
            Text(
                "95 % of the pods bound in the window waited at most this long.",
                "窗口内绑定的 Pod 有 95% 的等待不超过此值。",
            ),
            quantile(0.95, s.STAGE_SECONDS, window="$window", stage="schedule", **BY),
            empty=QUIET_TIME,
            unit="s",
            decimals=0,
            steps=LONG,
        ),
    ),
)

WAITING = Row(
    Text("Waiting pods", "等待中的 Pod"),
    (
        lines(
            Text("Pending pods by reason", "等待的 Pod（按原因）"),
            Text(
                "Each pod under its main reason. docs/scheduling-codes.md explains each code and its remedy.",
                "每个 Pod 归入其主要原因。各代码的含义与处理方法见 docs/scheduling-codes.md。",
            ),
            (f"sum by (code) ({each(s.PENDING_PODS)})", "{{code}}"),
            empty=Text(
                "no pod waits, or the cluster exporter is not scraped", "没有等待的 Pod，或没有抓取到集群 exporter"
            ),
            kind="stack",
            decimals=0,
        ),
        table(
            Text("Who waits, and why", "谁在等待，为什么"),
            Text(
                "Waiting pods by namespace and reason. The console shows each pod and what would make it fit.",
                "按命名空间和原因统计的等待 Pod。控制台可查看每个 Pod 以及怎样才能放下它。",
            ),
            ("namespace", "code"),
            Query(expr=each(s.PENDING_PODS), name=Text("Pods", "Pod 数"), decimals=0),
            Query(
                expr=each(s.PENDING_OLDEST),
                name=Text("Longest wait", "等待最久"),
                unit="dtdurations",
                decimals=1,
                steps=LONG,
            ),
            empty=Text(
                "no pod waits, or the cluster exporter is not scraped", "没有等待的 Pod，或没有抓取到集群 exporter"
            ),
            width=12,
            links=(("code", "pending"), ("namespace", "namespace")),
            sort=Text("Longest wait", "等待最久"),
        ),
    ),
)


def _spread(stage: str, name: Text) -> Panel:
    return Panel(
        kind="heatmap",
        title=Text(f"{name.en}: spread of durations", f"{name.zh} 耗时分布"),
        about=_MEANING[stage],
        queries=(Query(expr=buckets(s.STAGE_SECONDS, window="$__interval", stage=stage, **BY)),),
        empty=QUIET_TIME,
        unit="s",
        width=8,
        least=None,
    )


SPEED = Row(
    Text("How fast", "调度性能"),
    (
        lines(
            Text("Duration of each stage, p95", "各阶段耗时 p95"),
            Text(
                "filter: until HAMi chose a node. lock: until it has the node's lock. bind: until the binding. "
                "schedule: from creation to binding. start: from binding to the first container, image pull included.",
                "filter：到 HAMi 选定节点；lock：到取得节点锁；bind：到完成绑定；schedule：从创建到绑定；"
                "start：从绑定到首个容器启动，含拉取镜像。",
            ),
            (quantile(0.95, s.STAGE_SECONDS, "stage", window="$window", **BY), "{{stage}}"),
            empty=QUIET_TIME,
            unit="s",
        ),
        lines(
            Text("Time from creation to binding", "从创建到绑定的耗时"),
            Text("Quantiles over the pods bound in the window.", "窗口内绑定的 Pod 的分位数。"),
            *(
                (quantile(q, s.STAGE_SECONDS, window="$window", stage="schedule", **BY), f"p{round(q * 100)}")
                for q in (0.5, 0.95, 0.99)
            ),
            empty=QUIET_TIME,
            unit="s",
        ),
        *(_spread(stage, name) for stage, name in STAGES),
    ),
)

OUTCOMES = Row(
    Text("Outcomes", "调度结果"),
    (
        lines(
            Text("Bound and failed", "绑定成功与失败"),
            Text("Attempts in the window, by result.", "窗口内的绑定次数，按结果。"),
            (f"sum by (result) ({increase(s.BINDS, window='$window', **BY)})", "{{result}}"),
            empty=NO_CLUSTER,
            words="result",
            decimals=0,
        ),
        lines(
            Text("Failed attempts by code", "失败原因"),
            Text(
                "Failed attempts to schedule pods in the window, by code. One attempt can have several codes.",
                "窗口内调度失败的次数，按代码。一次失败可以有多个代码。",
            ),
            (f"sum by (code) ({increase(s.FAILURES, window='$window', **BY)})", "{{code}}"),
            empty=Text(
                "no attempt failed, or the cluster exporter is not scraped", "没有失败，或没有抓取到集群 exporter"
            ),
            kind="stack",
            decimals=0,
        ),
    ),
)

# ── measured by the extender itself ──────────────────────────────────────────────────────────────────────────────

VERBS: tuple[tuple[Text, Metric, Text], ...] = (
    (
        Text("Filter", "Filter"),
        x.FILTER_SECONDS,
        Text(
            "Duration of each filter request of kube-scheduler, as the extender measured it.",
            "kube-scheduler 每次 Filter 请求的耗时，由 extender 自己测量。",
        ),
    ),
    (
        Text("Score", "Score"),
        x.SCORE_SECONDS,
        Text(
            "The part of a filter request that ranks the nodes that fit.",
            "Filter 请求中对可用节点排序的部分所用的时间。",
        ),
    ),
    (
        Text("Bind", "Bind"),
        x.BIND_SECONDS,
        Text(
            "Duration of each bind request: the node's lock, annotations and the binding.",
            "每次 Bind 请求的耗时：节点锁、注解和绑定。",
        ),
    ),
)
NO_REFUSAL = Text("no pod was refused, or no scheduler extender is scraped", "没有 Pod 被拒绝，或没有抓取到调度器扩展")

EXTENDER = Row(
    Text("Scheduler performance (extender)", "调度器性能（extender 实测）"),
    (
        lines(
            Text("Filter, score and bind, p99", "Filter / Score / Bind 耗时 p99"),
            Text(
                "99 % of the requests in the window took at most this long. Measured, not estimated.",
                "窗口内 99% 的请求耗时不超过此值。为实测值，不是估计。",
            ),
            *((quantile(0.99, metric, window="$window"), name) for name, metric, _ in VERBS),
            empty=NO_EXTENDER,
            unit="s",
        ),
        lines(
            Text("Refused pods by code", "被拒绝的 Pod（按代码）"),
            Text(
                "Refusals in the window by the code that most nodes had. `vgpuscope why` shows each decision.",
                "窗口内的拒绝次数，按多数节点的代码统计。`vgpuscope why` 可查看每个决定。",
            ),
            (f"sum by (code) ({increase(x.REFUSALS, 'code', window='$window')})", "{{code}}"),
            empty=NO_REFUSAL,
            kind="stack",
            decimals=0,
        ),
        *(
            Panel(
                kind="heatmap",
                title=Text(f"{name.en}: measured durations", f"{name.zh} 耗时分布（实测）"),
                about=about,
                queries=(Query(expr=buckets(metric, window="$__interval")),),
                empty=NO_EXTENDER,
                unit="s",
                width=8,
                least=None,
            )
            for name, metric, about in VERBS
        ),
        lines(
            Text("Decisions that wait", "排队的决定"),
            Text(
                "The extender makes one decision at a time, so that two pods never get the same share.",
                "extender 一次只做一个决定，以保证两个 Pod 不会得到同一份资源。",
            ),
            (f"max({each(x.QUEUE)})", Text("waiting", "排队")),
            empty=NO_EXTENDER,
            decimals=0,
            width=8,
        ),
        lines(
            Text("Requests by outcome", "请求结果"),
            Text(
                "Requests of kube-scheduler and of the API server in the window, by outcome.",
                "窗口内 kube-scheduler 和 API server 的请求次数，按结果。",
            ),
            (f"sum by (verb, outcome) ({increase(x.REQUESTS, window='$window')})", "{{verb}} {{outcome}}"),
            empty=NO_EXTENDER,
            decimals=0,
            width=8,
        ),
        lines(
            Text("Age of the extender's view", "extender 视图的时效"),
            Text(
                "Time since the API server was last heard of. A healthy watch is silent for up to a minute.",
                "距上次收到 API server 消息的时间。正常的 watch 最多安静一分钟。",
            ),
            (f"max({each(x.CACHE_AGE)})", Text("age", "时效")),
            empty=NO_EXTENDER,
            unit="s",
            width=8,
        ),
    ),
)

BOARD = Board(
    name="scheduling",
    title=Text("Scheduling", "调度"),
    about=Text(
        "Which pods wait for a GPU and why, how long does scheduling take, and how often does it fail?",
        "哪些 Pod 在等 GPU、为什么，调度要多久，失败有多频繁？",
    ),
    variables=(CLUSTER, SCHEDULER, WINDOW, CONSOLE_URL),
    rows=(FIGURES, WAITING, EXTENDER, SPEED, OUTCOMES),
    range="now-24h",
)
