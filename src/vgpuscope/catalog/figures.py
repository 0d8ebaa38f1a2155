"""The table of figures: what every number that is shown anywhere counts or measures, of what, and over which time.

A figure is shown in several places: as a field of the API, a tile or column of the console, a column of a command, a
metric. All places of one figure show the same number. Two numbers with one name have one definition. The text of a
definition is made from its codes, in `views/definitions.py`.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

Subject: TypeAlias = Literal[  # of what one value of the figure is
    "fleet",  # everything that the caller may see
    "node",
    "namespace",
    "owner",
    "workload",  # a pod, an owner or a namespace, as the rows of a list are grouped
    "gpu",  # a GPU, or a MIG instance of one
    "tenant",
    "case",  # of reclaim
    "service",  # one of our own processes
]
Population: TypeAlias = Literal[  # what is counted, or added up over
    "gpus",  # physical GPUs, each once
    "mig_instances",
    "gpus_or_instances",  # a GPU that MIG divides counts as its instances: the rows of a list of GPUs
    "tenants",  # containers on a GPU or MIG instance
    "pods",
    "nodes",
    "namespaces",
    "cases",
    "one",  # nothing is counted: the subject itself is measured
]
Condition: TypeAlias = Literal[  # which of the population
    "all",
    "healthy",
    "held",  # a pod has it
    "idle_held",  # a pod has it, and the verdict is idle
    "unallocated",  # no pod has it
    "idle",  # by verdict
    "unknown",  # by verdict
    "in_use",  # by verdict
    "low_score",  # the score is below the threshold
    "idle_status",  # the score is below the threshold of idle
    "measured",  # it has a value
    "waiting",  # not scheduled yet
    "unlisted",  # only their number is known: the kubelet offers them, and neither agent nor scheduler names them
    "divided",  # by MIG
]
Quantity: TypeAlias = Literal[
    "count",
    "memory_used",
    "memory_allocated",  # by the scheduler
    "memory_limit",  # as enforced
    "memory_capacity",  # as registered with the scheduler, so perhaps scaled
    "memory_total",  # of the GPU itself
    "cores_allocated",
    "cores_capacity",
    "use",
    "score",
    "power",
    "energy",
    "gpu_hours",
    "seconds",
    "ratio",
]
TimeBasis: TypeAlias = Literal[
    "now",  # the last sample, or the state at the last analysis
    "window_mean",  # mean over the window of the analysis
    "window_peak",
    "step_mean",  # mean over one step of a chart
    "step_peak",
    "integral",  # added up over the chosen range
    "day_integral",  # added up over the last 24 hours
    "since_start",  # counted since the process started
]


class Figure(Struct, frozen=True, kw_only=True):
    """One definition, and the places that show it."""

    code: str
    subject: Subject
    population: Population
    quantity: Quantity
    time: TimeBasis
    unit: str = ""  # base unit, or "" if the number has none
    condition: Condition = "all"
    fields: tuple[str, ...] = ()  # of the API: Struct.field
    metrics: tuple[str, ...] = ()  # names, perhaps with one label: name{label="value"}
    columns: tuple[str, ...] = ()  # of commands: command.COLUMN
