"""What a dashboard is made of, as values: the tables in `boards/` are written with these."""

from dataclasses import dataclass
from typing import Literal

from tools.dashboards.words import Text

Kind = Literal["stat", "lines", "stack", "bars", "table", "histogram", "columns", "timeline", "heatmap"]
Target = Literal["gpu", "node", "pod", "namespace", "pending"]
Steps = tuple[tuple[float | None, str], ...]  # from this value on, this colour; the first has no value

COLUMNS = 24  # of Grafana's grid

# Why a panel can be empty. A reader must be able to tell "nothing happened" from "nobody measures".
NO_AGENT = Text("no data: no agent is scraped", "无数据：没有抓取到 agent")
NO_CLUSTER = Text("no data: the cluster exporter is not scraped", "无数据：没有抓取到集群 exporter")
NO_EXTENDER = Text("no data: no scheduler extender is scraped", "无数据：没有抓取到调度器扩展")
NO_PLUGIN = Text("no data: no device plugin is scraped", "无数据：没有抓取到设备插件")
NO_ANALYSIS = Text(
    "no data: the analyzer is not scraped, or no analysis has ended", "无数据：没有抓取到分析器，或尚无分析完成"
)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query and the name of its series: a template of labels in lines, the header of a column in a table."""

    expr: str
    name: Text | str = ""
    unit: str | None = None  # of a column, if not the panel's
    decimals: int | None = None
    words: str | None = None  # values are shown by these words and colours
    cell: Literal["plain", "gauge", "text"] = "plain"
    steps: Steps | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel; `about` says what is counted, and the names of its metrics are added to it."""

    kind: Kind
    title: Text
    about: Text
    queries: tuple[Query, ...]
    empty: Text
    unit: str = "short"
    width: int = 12
    height: int = 8
    decimals: int | None = None
    least: float | None = 0
    most: float | None = None
    steps: Steps | None = None
    words: str | None = None  # series are named after values that have words and colours
    fixed: tuple[tuple[Text, str], ...] = ()  # series with a colour of their own, by name
    link: Target | None = None
    labels: tuple[str, ...] = ()  # columns of a table that are labels, in order
    links: tuple[tuple[str, Target], ...] = ()  # columns of a table that lead somewhere
    sort: Text | None = None  # a table is sorted by this column
    ascending: bool = False
    labels_words: tuple[str, ...] = ()  # columns of labels that are shown by words and colours
    instant: bool = True  # a bar or a figure is of now; lines and stacks are of the whole range
    bucket: int = 10  # width of a bar of a histogram
    legend: Literal["table", "list", "none"] = "table"


@dataclass(frozen=True)
class Row:
    """Panels under one heading, from left to right; the first of a dashboard needs none."""

    title: Text | None
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label, or a text."""

    name: str
    label: Text
    query: str = ""  # label_values(…)
    text: str | None = None  # a text box with this content
    choices: tuple[str, ...] = ()
    everything: bool = True  # "All" can be chosen, and is chosen at first; otherwise the first value is
    about: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    name: str  # of its uid and its file, after "vgpuscope-"
    title: Text
    about: Text
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    range: str = "now-6h"
