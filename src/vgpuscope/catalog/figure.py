"""The types of the table of figures."""

from typing import Literal, TypeAlias, cast

from msgspec import Struct

Subject: TypeAlias = Literal[  # of what one value of the figure is
    "fleet",  # everything that the caller may see
    "node",
    "namespace",
    "workload",  # a pod, an owner or a namespace, as the rows of a list are grouped
    "waste",  # a tenant, or tenants of one namespace, owner, node or model
    "gpu",  # a GPU, or a MIG instance of one
    "tenant",
    "gpu_pod",  # a GPU with one pod or none, or one pod on a shared GPU: how gpu-oour's metrics are divided
    "judged",  # a GPU, MIG instance or tenant: whatever has a verdict
    "chart",  # whatever a chart is about
    "list",  # a list of the console
    "capacity",  # a node, a type of GPU, or the whole cluster
    "resource",  # GPUs of one kind on a node, of which only the number is known
    "quota",
    "pod",  # a pod that waits or waited
    "decision",  # of the scheduler extender
    "scheduler",
    "process",
    "case",  # of reclaim
    "policy",  # of reclaim, replayed on the past
    "preview",  # of changed settings
    "source",  # of an agent or of the analyzer
    "service",  # one of our own processes
]
Population: TypeAlias = Literal[  # what is counted, or added up over
    "one",  # nothing: the subject itself is measured
    "gpus",  # physical GPUs, each once
    "mig_instances",
    "gpus_or_instances",  # a GPU that MIG divides counts as its instances: the rows of a list of GPUs
    "shares",  # of GPUs, as a resource of Kubernetes counts them
    "tenants",  # containers on a GPU or MIG instance
    "containers",
    "pods",
    "workloads",
    "nodes",
    "namespaces",
    "cases",
    "actions",
    "brakes",
    "decisions",
    "attempts",
    "messages",
    "slots",
    "cpus",
    "processes",
    "analyses",
    "requests",
    "samples",
    "targets",
    "findings",
    "checks",
    "errors",
    "xids",
    "rows",  # of a list
    "memory_rows",  # of the GPU's memory
    "regions",
    "devices",
    "objects",  # of Kubernetes
    "files",
    "events",
]
Condition: TypeAlias = Literal[  # which of the population
    "all",
    "healthy",
    "no_fault",  # health ok, or not known
    "held",  # a pod has it
    "idle_held",  # a pod has it, and the verdict is idle
    "idle",  # by verdict
    "unknown",  # by verdict
    "low_score",  # the score is below the threshold
    "low_or_idle",  # the score is below the threshold, or the verdict is idle
    "low_gpus",  # the same, of GPUs and MIG instances
    "low_tenants",  # the same, of tenants
    "idle_status",  # the score is below the threshold of idle
    "measured",  # it has a value
    "waiting",  # not scheduled yet
    "unlisted",  # only their number is known: the kubelet offers them, and neither agent nor scheduler names them
    "divided",  # by MIG
    "shared",  # by several tenants
    "of_others",  # of namespaces that the caller does not see
    "analysed",  # an exporter or the scheduler names its GPUs, and the last analysis has them
    "by_class",
    "by_use_class",  # whether or not a pod holds them
    "by_verdict",
    "by_status",
    "by_state",
    "by_brake",
    "actionable",  # idle, and the policy of reclaim acts on them, or would act
    "left_alone",  # idle, and the policy of reclaim leaves them alone, or nothing was decided yet
    "left_alone_by_reason",
    "by_code",
    "by_reason",
    "registered",
    "usable",
    "lost",  # accepts no new allocation
    "allocated",
    "free",
    "free_on_one",  # on the node that has most of them
    "stranded",  # free, and no request can use it
    "over_committed",  # allocated beyond what its GPU registered
    "mig_only",  # free, and whether a request gets it depends on a MIG placement
    "whole",  # free, on GPUs that nobody holds
    "up",
    "down",
    "changed",
    "bound",
    "failed",
    "failed_by_code",
    "not_bound",  # the pod was not bound, or its devices were not allocated
    "delivered",
    "refused",
    "orphaned",
    "disputed",
    "claimed",  # by annotations that nobody should have written; nobody holds them
    "labelled",  # by a label of the node
    "fitting",
    "missing",
    "omitted",
    "dropped",
    "expected",
    "corrected",
    "uncorrected",
    "pcie",
    "idle_windows",
    "turned_idle",
    "false_alarm",
    "busy_later",
    "ended",
    "still_idle",
    "needs_attention",
    "unsaved",
    "ignored",
    "kept",
    "assumed",
    "unsettled",
    "queued",
    "unplaced",
    "faulty",
    "found",  # by search and filters
    "by_value",  # of a column
    "in_use_with_idle",  # in use by verdict, with an idle tenant
    "of_group_by_class",  # of one group, by class
    "with_idle",  # at least one tenant is idle by verdict
    "equal",
]
TimeBasis: TypeAlias = Literal[
    "now",  # the last sample, or the state at the last analysis
    "window_mean",  # mean over the window of the analysis
    "window_p95",
    "window_peak",
    "window_sum",  # counted within the window of the analysis
    "agent_mean",  # mean over the window of the agent, which is shorter
    "agent_peak",
    "step_mean",  # mean over one step of a chart or of the history
    "step_peak",
    "step_low",
    "step_integral",  # added up over one step
    "integral",  # added up over the chosen range
    "range_mean",  # mean over the analysed time of the chosen range
    "day_integral",  # added up over the last 24 hours
    "day_ago",  # the same figure 24 hours earlier
    "since_start",  # counted since the process started
    "since_boot",  # counted since the driver was loaded or the node started
    "once",  # of one event: a decision, a back-test, a request
]


class Figure(Struct, frozen=True, kw_only=True):
    """One definition, and the places that show it."""

    code: str
    subject: Subject
    population: Population
    quantity: str  # `count`, or a key of the names in `views/definitions.py`
    time: TimeBasis
    unit: str = ""  # base unit, or "" if the number has none; gpu-oour's fields are in MiB, percent and MHz
    condition: Condition = "all"
    fields: tuple[str, ...] = ()  # of the API: Struct.field, Struct.field.part of a shared shape, Struct.field[key]
    metrics: tuple[str, ...] = ()  # names
    columns: tuple[str, ...] = ()  # of commands: command.COLUMN
    console: str = ""  # where the console shows a number that no answer has: it makes it of others
    why: str = ""  # code of the reason for which another figure has the same population, quantity and time


def row(
    code: str,
    population: Population,
    quantity: str,
    time: TimeBasis,
    unit: str = "",
    *,
    condition: Condition = "all",
    fields: str = "",
    metrics: str = "",
    columns: str = "",
    console: str = "",
    why: str = "",
) -> Figure:
    """A figure whose subject is the first part of its code; places are separated by spaces, columns by commas."""
    return Figure(
        code=code,
        subject=cast("Subject", code.partition(".")[0]),
        population=population,
        quantity=quantity,
        time=time,
        unit=unit,
        condition=condition,
        fields=tuple(fields.split()),
        metrics=tuple(metrics.split()),
        columns=tuple(column.strip() for column in columns.split(",") if column),
        console=console,
        why=why,
    )
