"""A dashboard of the tables as Grafana's classic JSON, with grafana-foundation-sdk."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from grafana_foundation_sdk.builders import (
    barchart,
    bargauge,
    common,
    heatmap,
    histogram,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as m
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.dashboards.promql import SERVICES, metrics_in
from tools.dashboards.spec import COLUMNS, Board, Panel, Query, Row, Steps, Target, Variable
from tools.dashboards.words import LABELS, NEUTRAL, WORDS, Language, Text, Word, both

Drawn = Any  # a builder of the SDK: they share their methods, but no type
SOURCE = m.DataSourceRef(type_val="prometheus", uid="${datasource}")
REFRESH = "1m"
_ALL = ".*"  # also matches series without the label, as nodes that only an annotation names
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDE = 12  # from this width on, a legend stands on the right
_OPEN = Text("Open in the console", "在控制台中打开")
_PATHS: dict[Target, tuple[str, ...]] = {
    "gpu": ("gpus", "gpu_uuid"),
    "node": ("nodes", "node"),
    "namespace": ("namespaces", "namespace"),
    "pod": ("workloads", "namespace", "pod"),
    "pending": ("scheduling",),
}


def uid_of(board: Board, language: Language) -> str:
    """One uid for each dashboard and language; the file has the same name."""
    return f"vgpuscope-{board.name}" + ("-zh" if language == "zh" else "")


def tag_of(language: Language) -> str:
    """The tag by which dashboards of one language link to each other."""
    return "vgpuscope-zh" if language == "zh" else "vgpuscope"


def dashboard_json(board: Board, language: Language) -> str:
    """The file of a dashboard in one language."""
    drawn = m.Dashboard(
        uid=uid_of(board, language),
        title=f"vgpuscope · {board.title.of(language)}",
        description=board.about.of(language),
        tags=[tag_of(language), "gpu", "hami"],
        timezone="browser",
        graph_tooltip=m.DashboardCursorSync.CROSSHAIR,
        time=m.DashboardDashboardTime(from_val=board.range, to="now"),
        refresh=REFRESH,
        version=1,
        panels=list(_placed(board, language)),
        templating=m.DashboardDashboardTemplating(
            list_val=[_datasource(language), *(_variable(one, language) for one in board.variables)]
        ),
        annotations=m.AnnotationContainer(list_val=[]),
        links=[_to_others(language), _to_console(language)],
    )
    plain = json.loads(json.dumps(drawn, cls=JSONEncoder))
    return json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


# ── where panels stand ───────────────────────────────────────────────────────────────────────────────────────────


def _placed(board: Board, language: Language) -> Iterator[m.Panel | m.RowPanel]:
    """Rows from the top, their panels from left to right; a panel that does not fit begins the next line."""
    top, number = 0, 0
    for row in board.rows:
        number += 1
        heading = None
        if row.title is not None:
            heading = m.RowPanel(title=row.title.of(language), collapsed=row.collapsed, id_val=number, panels=[])
            heading.grid_pos = m.GridPos(h=1, w=COLUMNS, x=0, y=top)
            top += 1
            yield heading
        panels, top = _flowed(row, language, top, number)
        number += len(panels)
        if heading is not None and row.collapsed:
            heading.panels = panels
        else:
            yield from panels


def _flowed(row: Row, language: Language, top: int, number: int) -> tuple[list[m.Panel], int]:
    panels: list[m.Panel] = []
    left, deepest = 0, 0
    for panel in row.panels:
        if left + panel.width > COLUMNS:
            left, top, deepest = 0, top + deepest, 0
        drawn = _KINDS[panel.kind](panel, language)
        built: m.Panel = _common(drawn, panel, language).build()
        built.id_val = number + len(panels) + 1
        built.grid_pos = m.GridPos(h=panel.height, w=panel.width, x=left, y=top)
        left, deepest = left + panel.width, max(deepest, panel.height)
        panels.append(built)
    return panels, top + deepest


# ── what all panels have ─────────────────────────────────────────────────────────────────────────────────────────


def _common(drawn: Drawn, panel: Panel, language: Language) -> Drawn:
    drawn = drawn.title(panel.title.of(language)).description(_described(panel, language)).datasource(SOURCE)
    drawn = drawn.unit(panel.unit).no_value(panel.empty.of(language))
    if panel.decimals is not None:
        drawn = drawn.decimals(panel.decimals)
    if panel.least is not None:
        drawn = drawn.min(panel.least)
    if panel.most is not None:
        drawn = drawn.max(panel.most)
    if panel.steps:
        drawn = drawn.thresholds(_thresholds(_readable(panel.steps) if panel.kind == "stat" else panel.steps))
    for letter, query in zip(_LETTERS, panel.queries, strict=False):
        drawn = drawn.with_target(_target(panel, query, letter, language))
    for word in WORDS.get(panel.words or "", ()):
        drawn = drawn.override_by_name(word.value, _painted(word.colour, word.text.of(language)))
    for name, colour in panel.fixed:
        drawn = drawn.override_by_name(name.of(language), _painted(colour))
    if panel.link and panel.kind != "table":
        drawn = drawn.data_links([_link(panel.link, language, "${__field.labels.%s}")])
    return drawn


def _described(panel: Panel, language: Language) -> str:
    """What the panel shows, and which service and metrics say so."""
    used = metrics_in(" ".join(query.expr for query in panel.queries))
    services = [
        f"{zh if language == 'zh' else en} ({', '.join(f'`{name}`' for name in used if name in own)})"
        for en, zh, own in SERVICES
        if own & set(used)
    ]
    lead = "数据来源：" if language == "zh" else "Source: "
    end = "。" if language == "zh" else "."
    return f"{panel.about.of(language)}\n\n{lead}{'; '.join(services)}{end}"


def _target(panel: Panel, query: Query, letter: str, language: Language) -> Drawn:
    now = panel.kind in {"table", "columns", "histogram"} or (panel.kind in {"stat", "bars"} and panel.instant)
    target = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(SOURCE)
    target = target.instant() if now else target.range()
    if panel.kind in {"table", "columns"}:
        return target.format(PromQueryFormat.TABLE)
    if panel.kind == "heatmap":
        return target.format(PromQueryFormat.HEATMAP).legend_format("{{le}}")
    name = both(query.name).of(language)
    return target.legend_format(name) if name else target


def _readable(steps: Steps) -> Steps:
    """Colours of text: what is neither good nor bad has the colour of text in the theme that is shown."""
    return tuple((value, "text" if colour == NEUTRAL else colour) for value, colour in steps)


def _thresholds(steps: Steps) -> Drawn:
    marks = [m.Threshold(value=value, color=colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(m.ThresholdsMode.ABSOLUTE).steps(marks)


def _painted(colour: str, name: str | None = None) -> list[m.DynamicConfigValue]:
    own = [m.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})]
    return [*own, m.DynamicConfigValue(id_val="displayName", value=name)] if name else own


def _link(target: Target, language: Language, field: str) -> Drawn:
    """A link to the console; `field` is the template by which Grafana reads a label of the series or row."""
    page, *labels = _PATHS[target]
    path = "/".join([page, *(field % label for label in labels)])
    return build.DashboardLink(_OPEN.of(language)).url(f"${{console}}/ui/{path}").target_blank(True)


# ── kinds of panels ──────────────────────────────────────────────────────────────────────────────────────────────


def _reduced() -> Drawn:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


def _stat(panel: Panel, language: Language) -> Drawn:
    del language
    drawn = stat.Panel().reduce_options(_reduced()).graph_mode(c.BigValueGraphMode.NONE)
    drawn = drawn.color_mode(c.BigValueColorMode.VALUE if panel.steps else c.BigValueColorMode.NONE)
    return drawn.text_mode(c.BigValueTextMode.VALUE).justify_mode(c.BigValueJustifyMode.CENTER)


def _lines(panel: Panel, language: Language) -> Drawn:
    del language
    drawn = timeseries.Panel().line_width(1).fill_opacity(0).show_points(c.VisibilityMode.AUTO).span_nulls(False)
    drawn = drawn.tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI).sort(c.SortOrder.DESCENDING))
    if panel.steps:
        style = common.GraphThresholdsStyleConfig().mode(c.GraphThresholdsStyleMode.DASHED)
        drawn = drawn.thresholds_style(style)
    return drawn.color_scheme(_palette()).legend(_legend(panel))


def _stack(panel: Panel, language: Language) -> Drawn:
    stacked = common.StackingConfig().mode(c.StackingMode.NORMAL).group("A")
    return _lines(panel, language).fill_opacity(70).line_width(0).stacking(stacked)


def _palette() -> Drawn:
    return build.FieldColor().mode(m.FieldColorModeId.PALETTE_CLASSIC)


def _legend(panel: Panel) -> Drawn:
    legend = common.VizLegendOptions().show_legend(panel.legend != "none")
    if panel.legend != "table":
        return legend.display_mode(c.LegendDisplayMode.LIST).placement(c.LegendPlacement.BOTTOM)
    where = c.LegendPlacement.RIGHT if panel.width > _WIDE else c.LegendPlacement.BOTTOM
    return legend.display_mode(c.LegendDisplayMode.TABLE).placement(where).calcs(["lastNotNull", "mean", "max"])


def _bars(panel: Panel, language: Language) -> Drawn:
    del language
    drawn = bargauge.Panel().reduce_options(_reduced()).orientation(c.VizOrientation.HORIZONTAL)
    drawn = drawn.display_mode(c.BarGaugeDisplayMode.BASIC).value_mode(c.BarGaugeValueMode.COLOR)
    return drawn if panel.steps else drawn.color_scheme(_one_colour())


def _one_colour() -> Drawn:
    return build.FieldColor().mode(m.FieldColorModeId.FIXED).fixed_color(NEUTRAL)


def _histogram(panel: Panel, language: Language) -> Drawn:
    del language
    drawn = histogram.Panel().bucket_size(panel.bucket).combine(True).fill_opacity(80).line_width(1)
    return drawn.color_scheme(_one_colour()).legend(_legend(panel))


def _columns(panel: Panel, language: Language) -> Drawn:
    """Upright bars of one label: the first label is the name below each bar."""
    label = LABELS[panel.labels[0]].of(language)
    drawn = barchart.Panel().x_field(label).orientation(c.VizOrientation.AUTO).show_value(c.VisibilityMode.AUTO)
    drawn = drawn.fill_opacity(80).x_tick_label_spacing(100).color_scheme(_palette()).legend(_legend(panel))
    return _shaped(drawn, panel, language)


def _heatmap(panel: Panel, language: Language) -> Drawn:
    del language
    colours = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
    colours = colours.scale(HeatmapColorScale.LINEAR).reverse(False).fill("blue").exponent(0.5)
    drawn = heatmap.Panel().calculate(False).color(colours).cell_gap(1)
    return drawn.y_axis(heatmap.YAxisConfig().unit(panel.unit).decimals(0).reverse(False))


def _timeline(panel: Panel, language: Language) -> Drawn:
    """States over time: each number stands for the word at its place."""
    drawn = statetimeline.Panel().merge_values(True).show_value(c.VisibilityMode.NEVER).row_height(0.9)
    drawn = drawn.legend(common.VizLegendOptions().show_legend(True).display_mode(c.LegendDisplayMode.LIST))
    words = WORDS[panel.words or ""]
    shown = {str(at): _result(at, word, language) for at, word in enumerate(words)}
    return drawn.mappings([m.ValueMap(options=shown)]).tooltip(
        common.VizTooltipOptions().mode(c.TooltipDisplayMode.SINGLE).sort(c.SortOrder.NONE)
    )


def _result(at: int, word: Word, language: Language) -> m.ValueMappingResult:
    return m.ValueMappingResult(text=word.text.of(language), color=word.colour, index=at)


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _table(panel: Panel, language: Language) -> Drawn:
    drawn = table.Panel().show_header(True).cell_options(c.TableAutoCellOptions()).filterable(True)
    if panel.sort:
        order = common.TableSortByFieldState().display_name(panel.sort.of(language)).desc(not panel.ascending)
        drawn = drawn.sort_by([order])
    drawn = _shaped(drawn, panel, language)
    for label in panel.labels_words:
        drawn = drawn.override_by_name(LABELS[label].of(language), _properties(_worded(WORDS[label], language)))
    for label, target in panel.links:
        link = _link(target, language, '${__data.fields["%s"]}').build()
        link = m.DashboardLink(title=link.title, url=_renamed(link.url or "", language), target_blank=True)
        own = [m.DynamicConfigValue(id_val="links", value=[_data_link(link)])]
        drawn = drawn.override_by_name(LABELS[label].of(language), own)
    for query in panel.queries:
        if both(query.name).of(language):
            drawn = drawn.override_by_name(both(query.name).of(language), _column(query, language))
    return drawn


def _data_link(link: m.DashboardLink) -> dict[str, object]:
    return {"title": link.title, "url": link.url, "targetBlank": True}


def _renamed(url: str, language: Language) -> str:
    """A row is read by the headers of its columns, which are the names of its fields after the transformation."""
    for label, text in LABELS.items():
        url = url.replace(f'${{__data.fields["{label}"]}}', f'${{__data.fields["{text.of(language)}"]}}')
    return url


def _shaped(drawn: Drawn, panel: Panel, language: Language) -> Drawn:
    """One row for each set of labels, with columns in order and with headers."""
    single = len(panel.queries) == 1
    fields = [f"Value #{letter}" for letter, _ in zip(_LETTERS, panel.queries, strict=False)]
    fields = ["Value"] if single else fields
    headers = {label: LABELS[label].of(language) for label in ("cluster", *panel.labels)}
    for field, query in zip(fields, panel.queries, strict=True):
        headers[field] = both(query.name).of(language)
    hidden = {"Time": True, **{field: True for field in fields if not headers[field]}}
    organize = {
        "excludeByName": hidden,
        "indexByName": {name: at for at, name in enumerate(headers)},
        "renameByName": {name: text for name, text in headers.items() if text},
    }
    if not single:
        drawn = drawn.with_transformation(m.DataTransformerConfig(id_val="merge", options={}))
    return drawn.with_transformation(m.DataTransformerConfig(id_val="organize", options=organize))


def _column(query: Query, language: Language) -> list[m.DynamicConfigValue]:
    own: dict[str, object] = _worded(WORDS[query.words], language) if query.words else {}
    if query.unit:
        own["unit"] = query.unit
    if query.decimals is not None:
        own["decimals"] = query.decimals
    own |= _gauge(query) if query.cell == "gauge" else _coloured(query)
    return _properties(own)


def _gauge(query: Query) -> dict[str, object]:
    own: dict[str, object] = {"custom.cellOptions": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}}
    own["min"] = 0
    if query.unit == "percentunit":
        own["max"] = 1
    if query.steps:
        return own | {"thresholds": _marks(query.steps)}
    return own | {"color": {"mode": "fixed", "fixedColor": NEUTRAL}}


def _coloured(query: Query) -> dict[str, object]:
    if not query.steps:
        return {}
    return {"thresholds": _marks(_readable(query.steps)), "custom.cellOptions": {"type": "color-text"}}


def _marks(steps: Steps) -> dict[str, object]:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _worded(words: tuple[Word, ...], language: Language) -> dict[str, object]:
    """The colour is behind the word, since Grafana then takes an ink that can be read on it."""
    shown = {w.value: {"text": w.text.of(language), "color": w.colour, "index": at} for at, w in enumerate(words)}
    return {
        "mappings": [{"type": "value", "options": shown}],
        "custom.cellOptions": {"type": "color-background", "mode": "basic"},
    }


def _properties(own: dict[str, object]) -> list[m.DynamicConfigValue]:
    return [m.DynamicConfigValue(id_val=key, value=value) for key, value in own.items()]


_KINDS: dict[str, Callable[[Panel, Language], Drawn]] = {
    "stat": _stat,
    "lines": _lines,
    "stack": _stack,
    "bars": _bars,
    "table": _table,
    "histogram": _histogram,
    "columns": _columns,
    "timeline": _timeline,
    "heatmap": _heatmap,
}


# ── variables and links ──────────────────────────────────────────────────────────────────────────────────────────


def _datasource(language: Language) -> m.VariableModel:
    label = Text("Data source", "数据源").of(language)
    return _without_auto(build.DatasourceVariable("datasource").label(label).type("prometheus").build())


def _variable(variable: Variable, language: Language) -> m.VariableModel:
    drawn = _kind_of(variable).label(variable.label.of(language))
    return _without_auto((drawn.description(variable.about.of(language)) if variable.about else drawn).build())


def _without_auto(variable: m.VariableModel) -> m.VariableModel:
    """The SDK writes fields of interval variables for every kind; Grafana's schema of a dashboard has none."""
    variable.auto = variable.auto_min = variable.auto_count = None
    return variable


def _kind_of(variable: Variable) -> Drawn:
    if variable.text is not None:
        typed = m.VariableOption(selected=True, text=variable.text, value=variable.text)
        return build.TextBoxVariable(variable.name).default_value(variable.text).current(typed).options([typed])
    if variable.choices:
        first = variable.choices[0]
        chosen = m.VariableOption(selected=True, text=first, value=first)
        options = [m.VariableOption(selected=one == first, text=one, value=one) for one in variable.choices]
        return build.CustomVariable(variable.name).values(",".join(variable.choices)).current(chosen).options(options)
    query: dict[str, object] = {
        "query": variable.query,
        "refId": "PrometheusVariableQueryEditor-VariableQuery",
        "qryType": 1,
    }
    drawn = build.QueryVariable(variable.name).query(query).datasource(SOURCE).multi(True)
    drawn = drawn.sort(m.VariableSort.ALPHABETICAL_ASC).refresh(m.VariableRefresh.ON_TIME_RANGE_CHANGED)
    if not variable.everything:
        return drawn.include_all(False)
    everything = m.VariableOption(selected=True, text=["All"], value=["$__all"])
    return drawn.include_all(True).all_value(_ALL).current(everything)


def _to_others(language: Language) -> m.DashboardLink:
    title = Text("Dashboards", "仪表盘").of(language)
    drawn = build.DashboardLink(title).type(m.DashboardLinkType.DASHBOARDS).tags([tag_of(language)])
    return drawn.as_dropdown(True).include_vars(True).keep_time(True).build()


def _to_console(language: Language) -> m.DashboardLink:
    title = Text("Console", "控制台").of(language)
    drawn = build.DashboardLink(title).type(m.DashboardLinkType.LINK).url("${console}/ui/").icon("external link")
    return drawn.target_blank(True).build()
