"""Which GPUs are used badly, and can the answer be trusted?"""

from tools.dashboards.boards.parts import CLASSES_OVER_TIME, SCORES, STALE, bars, figure, lines, table
from tools.dashboards.promql import each, or_zero, rate, with_labels
from tools.dashboards.spec import NO_ANALYSIS, Board, Panel, Query, Row
from tools.dashboards.variables import ANALYZED_NODE, CLUSTER, CONSOLE_URL, THRESHOLD
from tools.dashboards.words import BAD, NEUTRAL, WARN, Text
from vgpuscope.catalog import analyzer as a

HERE = {"hostname": "$node"}
ON_GPU = ("gpu_id", "mig", "hostname")
ON_POD = ("gpu_id", "mig", "hostname", "namespace", "pod")
TENANT = "cluster, gpu_id, mig, hostname, namespace, pod"
GPU_SCORE = each(a.GPU_SCORE, **HERE)
# A GPU that no pod has shows the labels of the scrape target instead of a tenant's: only real tenants are kept.
POD_SCORE = with_labels(
    each(a.SCORE, *ON_POD, **HERE),
    TENANT,
    "owner, class",
    each(a.TENANT_CLASS, *ON_POD, "owner", "class", **HERE),
)
GPU_CLASS = "cluster, gpu_id, mig, hostname"


def classed(expression: str) -> str:
    """Series of GPUs with their class."""
    return with_labels(expression, GPU_CLASS, "class", each(a.USE_CLASS, **HERE))


FIGURES = Row(
    None,
    (
        figure(
            Text("GPUs analysed", "已分析的 GPU"),
            Text(
                "GPUs of the last analysis; a GPU in MIG mode counts as its MIG instances.",
                "最近一次分析中的 GPU；启用 MIG 的 GPU 按 MIG 实例计数。",
            ),
            f"sum({each(a.TOTAL)})",
            empty=NO_ANALYSIS,
            decimals=0,
        ),
        figure(
            Text("Average score", "平均评分"),
            Text(
                "Mean score of the GPUs that have one, 0-100. GPUs without a score do not count as 0.",
                "有评分的 GPU 的平均分（0–100）。没有评分的 GPU 不按 0 计。",
            ),
            f"avg({GPU_SCORE})",
            empty=NO_ANALYSIS,
            decimals=1,
            most=100,
            steps=SCORES,
        ),
        figure(
            Text("Low GPUs", "低利用率 GPU"),
            Text("GPUs whose score is below the analyzer's threshold.", "评分低于分析器阈值的 GPU。"),
            f"sum({each(a.LOW)})",
            empty=NO_ANALYSIS,
            decimals=0,
            steps=((None, NEUTRAL), (1, WARN)),
        ),
        figure(
            Text("Idle GPUs", "空闲 GPU"),
            Text(
                "GPUs whose status is idle: a low score, and proven idle.",
                "状态为空闲的 GPU：评分低，且已证实没有计算。",
            ),
            f"sum({each(a.IDLE)})",
            empty=NO_ANALYSIS,
            decimals=0,
            steps=((None, NEUTRAL), (1, WARN)),
        ),
        figure(
            Text("GPUs above 70", "高利用率 GPU（>70）"),
            Text("GPUs with a score above 70.", "评分高于 70 的 GPU。"),
            or_zero(f"count({GPU_SCORE} > 70)", a.LAST_SUCCESS),
            empty=NO_ANALYSIS,
            decimals=0,
        ),
        figure(
            Text("Age of the analysis", "分析结果的时效"),
            Text("Time since the last successful analysis began.", "距最近一次成功分析开始的时间。"),
            f"time() - max({each(a.LAST_SUCCESS)})",
            empty=NO_ANALYSIS,
            unit="s",
            decimals=0,
            steps=((None, NEUTRAL), (900, WARN), (3600, BAD)),
        ),
    ),
)

SCORE = Row(
    Text("Scores", "评分"),
    (
        Panel(
            kind="histogram",
            title=Text("Distribution of scores", "GPU 评分分布"),
            about=Text(
                "How many GPUs have which score, in steps of ten. A shared GPU counts once, with its own score.",
                "各评分段的 GPU 数，每 10 分一段。共享的 GPU 按整卡评分计一次。",
            ),
            queries=(Query(expr=GPU_SCORE, name="{{hostname}} {{gpu_id}} {{mig}}"),),
            empty=NO_ANALYSIS,
            legend="none",
            decimals=0,
        ),
        lines(
            Text("Score trend", "评分趋势"),
            Text(
                "Mean, lowest and highest score of the GPUs that have one.",
                "有评分的 GPU 的平均、最低与最高分。",
            ),
            (f"avg({GPU_SCORE})", Text("mean", "平均")),
            (f"min({GPU_SCORE})", Text("lowest", "最低")),
            (f"max({GPU_SCORE})", Text("highest", "最高")),
            empty=NO_ANALYSIS,
            most=100,
            decimals=1,
        ),
        CLASSES_OVER_TIME,
        bars(
            Text("GPUs by status", "各状态的 GPU 数"),
            Text(
                "The status is the range of the score. unknown: no signal of work was measured.",
                "状态即评分所在的区间。未知：没有测到任何计算信号。",
            ),
            f"sum by (status) ({each(a.STATUS_COUNT)})",
            "{{status}}",
            empty=NO_ANALYSIS,
            words="status",
            decimals=0,
        ),
    ),
)

NAMESPACES = Row(
    Text("Namespaces", "命名空间"),
    (
        Panel(
            kind="columns",
            title=Text("Average score by namespace", "命名空间平均评分"),
            about=Text(
                "Mean score over the namespace's own GPUs and over its pods on shared GPUs.",
                "命名空间独占 GPU 与其在共享 GPU 上的 Pod 的平均评分。",
            ),
            queries=(
                Query(
                    expr=f"sort_desc(avg by (namespace) ({each(a.NAMESPACE_AVERAGE)}))",
                    name=Text("Average score", "平均评分"),
                ),
            ),
            labels=("namespace",),
            empty=NO_ANALYSIS,
            most=100,
            decimals=1,
            legend="none",
        ),
        Panel(
            kind="columns",
            title=Text("GPUs by namespace", "命名空间使用统计"),
            about=Text(
                "GPUs held by pods of the namespace. A shared GPU counts once in the namespace of each tenant, so the "
                "bars can add up to more than the GPUs there are.",
                "命名空间的 Pod 持有的 GPU。共享的 GPU 在每个租户的命名空间各计一次，因此总和可能大于 GPU 总数。",
            ),
            queries=(
                Query(expr=f"sort_desc(sum by (namespace) ({each(a.NAMESPACE_COUNT)}))", name=Text("GPUs", "GPU 数")),
            ),
            labels=("namespace",),
            empty=NO_ANALYSIS,
            decimals=0,
            legend="none",
        ),
    ),
)

LOW = Row(
    Text("Low use", "低利用率"),
    (
        table(
            Text("GPUs below the threshold", "低利用率 GPU 列表"),
            Text(
                "GPUs and MIG instances whose score is below the number at the top, lowest first. "
                "A GPU without a score is not listed here but under “No verdict”.",
                "评分低于页面顶部阈值的 GPU 与 MIG 实例，最低的在前。没有评分的 GPU 不在此列，见“无法判断”。",
            ),
            ("hostname", "gpu_id", "mig", "class"),
            Query(expr=classed(f"{GPU_SCORE} < $threshold"), name=Text("Score", "评分"), decimals=1, steps=SCORES),
            Query(
                expr=classed(f"{each(a.GPU_UTIL, **HERE)} and ({GPU_SCORE} < $threshold)"),
                name=Text("Utilisation", "利用率"),
                unit="percentunit",
                decimals=1,
                cell="gauge",
            ),
            Query(
                expr=classed(
                    f"{each(a.GPU_MEMORY_USED, **HERE)} / ({each(a.GPU_MEMORY_TOTAL, **HERE)} > 0)"
                    f" and ({GPU_SCORE} < $threshold)"
                ),
                name=Text("Memory", "显存使用率"),
                unit="percentunit",
                decimals=1,
                cell="gauge",
            ),
            Query(
                expr=classed(f"{each(a.TENANTS, **HERE)} and ({GPU_SCORE} < $threshold)"),
                name=Text("Tenants", "租户数"),
                decimals=0,
            ),
            empty=Text(
                "no GPU is below the threshold, or the analyzer is not scraped",
                "没有低于阈值的 GPU，或没有抓取到分析器",
            ),
            links=(("gpu_id", "gpu"), ("hostname", "node")),
            labels_words=("class",),
            sort=Text("Score", "评分"),
            ascending=True,
        ),
        table(
            Text("Pods below the threshold", "低利用率 Pod 列表"),
            Text(
                "Pods whose own score on a GPU is below the number at the top, lowest first.",
                "在某张 GPU 上自身评分低于阈值的 Pod，最低的在前。",
            ),
            ("namespace", "pod", "owner", "hostname", "gpu_id", "mig", "class"),
            Query(expr=f"({POD_SCORE}) < $threshold", name=Text("Score", "评分"), decimals=1, steps=SCORES),
            empty=Text(
                "no pod is below the threshold, or the analyzer is not scraped",
                "没有低于阈值的 Pod，或没有抓取到分析器",
            ),
            links=(("pod", "pod"), ("gpu_id", "gpu"), ("hostname", "node")),
            labels_words=("class",),
            sort=Text("Score", "评分"),
            ascending=True,
        ),
    ),
)

TRUST = Row(
    Text("Can it be trusted?", "结果可信吗"),
    (
        lines(
            Text("GPUs by verdict", "各判定的 GPU 数"),
            Text(
                "What is proven. No action is taken on unknown.",
                "已证实的结论。对无法判断的 GPU 不会采取任何动作。",
            ),
            (f"sum by (verdict) ({each(a.GPUS)})", "{{verdict}}"),
            empty=NO_ANALYSIS,
            kind="stack",
            words="verdict",
            decimals=0,
        ),
        table(
            Text("No verdict", "无法判断的 GPU"),
            Text(
                "GPUs without a verdict: how old the last sample is, and how many of the expected samples there were. "
                "No coverage: nothing that shows work was measured, as on MIG instances without DCGM.",
                "无法判断的 GPU：最近一个样本的时间，以及实际样本占预期的比例。"
                "没有覆盖率：没有测到任何能反映计算的信号，例如没有 DCGM 的 MIG 实例。",
            ),
            ("hostname", "gpu_id", "mig"),
            Query(
                expr=f"{each(a.AGE, **HERE)} and ({each(a.VERDICT, *ON_GPU, verdict='unknown', **HERE)} == 1)",
                name=Text("Last sample", "最近样本"),
                unit="s",
                decimals=0,
                steps=STALE,
            ),
            Query(
                expr=f"{each(a.COVERAGE, **HERE)} and ({each(a.VERDICT, *ON_GPU, verdict='unknown', **HERE)} == 1)",
                name=Text("Coverage", "样本覆盖率"),
                unit="percentunit",
                decimals=0,
                cell="gauge",
            ),
            empty=Text(
                "every GPU has a verdict, or the analyzer is not scraped", "所有 GPU 都有判定，或没有抓取到分析器"
            ),
            width=12,
            links=(("gpu_id", "gpu"), ("hostname", "node")),
            sort=Text("Last sample", "最近样本"),
        ),
    ),
)

NO_MODEL = Text("no data: no language model was asked", "无数据：没有询问过语言模型")
OPINIONS = Row(
    Text("Language model", "语言模型"),
    (
        lines(
            Text("Success rate of the AI analysis", "AI 分析成功率"),
            Text(
                "Requests to the language model that brought an opinion, as a share of all requests.",
                "得到意见的请求占全部语言模型请求的比例。",
            ),
            (
                f"(sum by (provider) ({rate(a.AI_REQUESTS, 'provider', 'outcome', outcome='success')}) "
                f"or 0 * sum by (provider) ({rate(a.AI_REQUESTS, 'provider', 'outcome')})) "
                f"/ sum by (provider) ({rate(a.AI_REQUESTS, 'provider', 'outcome')})",
                "{{provider}}",
            ),
            empty=NO_MODEL,
            unit="percentunit",
            most=1,
        ),
        lines(
            Text("Opinions of the language model", "语言模型的意见"),
            Text(
                "Pods on GPUs by the opinion on them. An opinion changes no verdict.",
                "按意见统计的 GPU 上的 Pod。意见不改变判定。",
            ),
            (
                f"count by (ai_status) ({each(a.AI_CONFIDENCE, 'gpu_id', 'mig', 'pod', 'namespace', 'ai_status')})",
                "{{ai_status}}",
            ),
            empty=NO_MODEL,
            decimals=0,
        ),
    ),
)

BOARD = Board(
    name="utilisation",
    title=Text("Utilisation analysis", "利用率分析"),
    about=Text(
        "Which GPUs and pods are used badly, in which namespaces, since when, and can the answer be trusted?",
        "哪些 GPU 和 Pod 利用率低，在哪些命名空间，趋势如何，结果可信吗？",
    ),
    variables=(CLUSTER, ANALYZED_NODE, THRESHOLD, CONSOLE_URL),
    rows=(FIGURES, SCORE, NAMESPACES, LOW, TRUST, OPINIONS),
    range="now-24h",
)
