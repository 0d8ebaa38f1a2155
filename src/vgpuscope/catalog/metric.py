"""The types of the table of metrics."""

from typing import Literal, TypedDict, Unpack

from msgspec import Struct

from vgpuscope.catalog.deprecations import deprecated_metric

FAMILIES: tuple[str, ...] = ("native", "hami", "hami-legacy", "handbook", "pod", "dcgm", "dcgm-pods")
# dcgm-pods repeats names of dcgm with parts of the same GPUs, a sum over a name would count them twice
ALL_FAMILIES: tuple[str, ...] = tuple(family for family in FAMILIES if family != "dcgm-pods")
DEFAULT_FAMILIES: tuple[str, ...] = ("native", "hami", "hami-legacy", "handbook", "pod")

Type = Literal["gauge", "counter", "histogram", "summary"]
NodeScope = Literal["gpu", "mig", "container", "pod", "vgpu", "holding", "host", "source", "node"]
ClusterScope = Literal[
    "device",
    "instance",
    "holder",
    "offer",
    "quota",
    "place",
    "type",
    "cluster",
    "finding",
    "kind",
    "scheduler",
    "waiting",
]
AnalyzerScope = Literal["gpu-of-pod", "subject", "tenant", "gpupod", "group", "fleet", "opinion"]
ExtenderScope = Literal["extender", "extender-kind"]
PluginScope = Literal["offered", "plugin"]
Scope = NodeScope | ClusterScope | AnalyzerScope | ExtenderScope | PluginScope

# How several rows with the same labels under one name are merged. max is for duplicates of one value and for states,
# sum for amounts, min for ages.
Merge = Literal["sum", "max", "min"]

Labels = tuple[tuple[str, str], ...]  # exposed name, attribute of the row that gives the value


class Alias(Struct, frozen=True, kw_only=True):
    """The same number under a name from elsewhere, with the labels and the scale that belong to it."""

    family: str
    name: str
    labels: Labels
    scale: float = 1.0
    help: str = ""
    type: Type | None = None  # None: the metric's type
    const: tuple[tuple[str, str], ...] = ()
    when: str = ""  # attribute of the row that must not be empty for the alias to appear


class Metric(Struct, frozen=True, kw_only=True):
    """One metric: the only place where its name is written."""

    name: str
    type: Type
    help: str
    unit: str  # base unit, or "" if the number has none
    scope: Scope
    labels: Labels
    family: str = "native"
    extra: tuple[str, ...] = ()  # labels whose values come with the sample: a state, a reason, an owner
    each: int | None = 1  # series per row of its scope; None: one per distinct reason
    merge: Merge = "max"
    volatile: bool = False  # extra labels hold numbers (as the original metric defines): never cached
    when: str = ""
    const: tuple[tuple[str, str], ...] = ()
    part_of: str = ""  # the summary that this is the sum or count of: it has no HELP and TYPE of its own
    aliases: tuple[Alias, ...] = ()

    def exposed(self, families: frozenset[str]) -> tuple["ExposedName", ...]:
        """The names under which this metric appears if these families are on."""
        own = Alias(family=self.family, name=self.name, labels=self.labels, const=self.const, when=self.when)
        return tuple(self._under(alias) for alias in (own, *self.aliases) if alias.family in families)

    def alias(self, family: str) -> Alias:
        """The same number under its name in another family."""
        return next(alias for alias in self.aliases if alias.family == family)

    def _under(self, alias: Alias) -> "ExposedName":
        text, row = alias.help or self.help, deprecated_metric(alias.name)
        return ExposedName(
            name=alias.name,
            type=alias.type or self.type,
            help=f"{text} {row.note}" if row else text,
            family=alias.family,
            labels=alias.labels,
            const=alias.const,
            extra=self.extra,
            scale=alias.scale,
            when=alias.when,
            volatile=self.volatile,
            merge=self.merge,
            part_of=self.part_of,
        )


class MetricOptions(TypedDict, total=False):
    """Fields of a metric that most metrics leave at their defaults."""

    type: Type
    family: str
    extra: tuple[str, ...]
    each: int | None
    merge: Merge
    volatile: bool
    when: str
    const: tuple[tuple[str, str], ...]
    part_of: str


def described(
    scope: Scope, labels: Labels, name: str, help: str, unit: str, *aliases: Alias, **more: Unpack[MetricOptions]
) -> Metric:
    """A metric whose type is told by its name: a counter ends with _total, anything else is a gauge."""
    more.setdefault("type", "counter" if name.endswith("_total") else "gauge")
    return Metric(name=name, help=help, unit=unit, scope=scope, labels=labels, aliases=aliases, **more)


class ExposedName(Struct, frozen=True, kw_only=True):
    """One name on the page."""

    name: str
    type: Type
    help: str
    labels: Labels
    family: str
    const: tuple[tuple[str, str], ...] = ()
    extra: tuple[str, ...] = ()
    scale: float = 1.0
    when: str = ""
    volatile: bool = False
    merge: Merge = "max"
    part_of: str = ""


def same(*names: str) -> Labels:
    """Labels with the same names as the row's attributes."""
    return tuple((name, name) for name in names)


def renamed(**labels: str) -> Labels:
    """Labels with names other than the attributes: exposed=attribute."""
    return tuple(labels.items())


def build_info(scope: Scope) -> Metric:
    """The build of a process, exported by all; HAMi's exporters have their own name for it."""
    theirs = renamed(
        version="version",
        revision="revision",
        build_date="build_date",
        go_version="python_version",
        compiler="compiler",
        platform="platform",
    )
    return Metric(
        name="vgpuscope_build_info",
        type="gauge",
        help="Version of this program; always 1.",
        unit="",
        scope=scope,
        labels=same("version", "revision", "build_date", "python_version", "platform"),
        aliases=(
            Alias(
                family="hami",
                name="hami_build_info",
                labels=theirs,
                help="Build information; go_version holds the version of Python",
            ),
        ),
    )


def loop_restarts(scope: Scope) -> Metric:
    """Restarts of the loops of a process, exported by all; absent for a loop that never failed."""
    return Metric(
        name="vgpuscope_loop_restarts_total",
        type="counter",
        help="Background loops that died and were started again, by loop; the log says why.",
        unit="",
        scope=scope,
        labels=(),
        extra=("loop",),
        each=None,
    )
