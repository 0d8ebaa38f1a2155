"""Rows as lines of text: which columns fit, how wide they are, and the text of each cell."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from vgpuscope.model.quantity import Ratio
from vgpuscope.views.languages import Pair
from vgpuscope.views.node.top.processes import short_age
from vgpuscope.views.node.top.rows import REST, TopRow
from vgpuscope.views.table import WIDE, hidden_line
from vgpuscope.views.text import UNKNOWN, bar, begun, fit, fit_label, joules, percent, size, sizes, watts

_STATES: dict[str, tuple[str, str]] = {  # the state of a container or GPU: sign before the word, colour
    "active": ("●", "green"),
    "idle": ("○", "yellow"),
    "not-started": ("◌", "blue"),
    "unknown": ("?", "magenta"),
    "free": ("", "dim"),
}


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How the table uses the width it has."""

    name: int = 24
    columns: tuple[str, ...]
    busy_bar: int
    memory_bar: int
    spacious: bool = True  # two cells between columns, a sign before each state, the limit beside the power


_ALL = ("place", "state", "busy", "burst", "memory", "power", "energy", "extra", "method")
_NO_ENERGY = ("place", "state", "busy", "burst", "memory", "power", "extra", "method")
_NO_METHOD = ("place", "state", "busy", "burst", "memory", "power", "extra")
_NO_BURST = ("place", "state", "busy", "memory", "power", "extra")
_PLANS = (  # from most to least; the first plan that leaves enough room for the names is used
    ColumnPlan(columns=_ALL, busy_bar=10, memory_bar=10),
    ColumnPlan(columns=_ALL, busy_bar=6, memory_bar=8),
    ColumnPlan(columns=_NO_ENERGY, busy_bar=6, memory_bar=8),
    ColumnPlan(columns=_NO_METHOD, busy_bar=6, memory_bar=8),
    ColumnPlan(columns=_NO_BURST, busy_bar=6, memory_bar=8),
    ColumnPlan(columns=_NO_BURST, busy_bar=4, memory_bar=4, spacious=False),
    ColumnPlan(columns=("place", "state", "busy", "memory"), busy_bar=4, memory_bar=4, spacious=False),
    ColumnPlan(columns=("place", "state", "busy", "memory"), busy_bar=0, memory_bar=0, spacious=False),
    ColumnPlan(columns=("place", "busy", "memory"), busy_bar=0, memory_bar=0, spacious=False),
    ColumnPlan(columns=("memory",), busy_bar=0, memory_bar=0, spacious=False),
)
_LEAST_NAME = {True: 28, False: 20}  # cells that names get before columns do, by whether the plan is spacious
_GOOD_NAME, _GOOD_BAR, _LONGEST_BAR = 36, 8, 20


def plan(table: Sequence[TopRow], width: int | None, *, group: bool) -> ColumnPlan:
    """The richest plan that fits; with no width given, the one where nothing is cut."""
    wanted = max((cell_len(row.branch + row.name) + 2 * (not row.allocated) for row in table), default=0)
    wanted = max(wanted, 16)
    if width is None:
        return replace(_for(_PLANS[0], group), name=wanted)
    chosen, room = _for(_PLANS[-1], group), 0
    for candidate in _PLANS:
        chosen = _for(candidate, group)
        room = width - _fixed_width(chosen, table)
        enough = min(wanted, _LEAST_NAME[chosen.spacious])
        if room >= enough:
            break
    if chosen.busy_bar:
        chosen, room = _grown(chosen, room, keep=min(wanted, _GOOD_NAME), longest=_GOOD_BAR)
        chosen, room = _grown(chosen, room, keep=wanted, longest=_LONGEST_BAR)
    return replace(chosen, name=max(1, min(room, wanted)))


def _grown(chosen: ColumnPlan, room: int, *, keep: int, longest: int) -> tuple[ColumnPlan, int]:
    """Longer bars from the room that the names do not need."""
    more = max(0, min((room - keep) // 2, longest - chosen.busy_bar))
    return replace(chosen, busy_bar=chosen.busy_bar + more, memory_bar=chosen.memory_bar + more), room - 2 * more


def _for(candidate: ColumnPlan, group: bool) -> ColumnPlan:
    columns = tuple(c for c in candidate.columns if not (group and c == "place"))
    return replace(candidate, columns=columns)


def _fixed_width(chosen: ColumnPlan, table: Sequence[TopRow]) -> int:
    return 1 + sum(_width(column, chosen, table) + len(_gap(chosen)) for column in chosen.columns)


def _gap(chosen: ColumnPlan) -> str:
    return "  " if chosen.spacious else " "


_TITLES: dict[str, tuple[str, str]] = {  # the first line is about GPUs, the second about containers
    "place": ("GPU", ""),
    "state": ("MODE", "state"),
    "busy": ("UTIL", "SM"),
    "burst": ("mean  max", ""),
    "memory": ("MEMORY", "used / limit"),
    "power": ("POWER", ""),
    "energy": ("ENERGY", ""),
    "extra": ("TEMP", "proc"),
    "method": ("HEALTH", "method"),
}
_RIGHT = {"place", "burst", "power", "energy", "extra"}
_LEAST = {"place": 3, "state": 12, "burst": 9, "energy": 6, "extra": 4, "method": 6}


def _width(column: str, chosen: ColumnPlan, table: Sequence[TopRow]) -> int:
    if column == "busy":
        return chosen.busy_bar + bool(chosen.busy_bar) + 4
    if column == "memory":
        return chosen.memory_bar + bool(chosen.memory_bar) + _sizes_width(table) + 5
    least = {"power": 8 if chosen.spacious else 5}.get(column) or _LEAST[column]
    return max(least, *(cell_len(_TEXTS[column](row, chosen)) for row in table), 0)


def _sizes_width(table: Sequence[TopRow]) -> int:
    return max(11, *(len(_memory_text(row)) for row in table), 0)


def _state_text(row: TopRow, chosen: ColumnPlan) -> str:
    if row.health not in {None, "ok"}:
        return f"✗ {row.health}"
    sign, _ = _STATES.get(row.state or "", ("", ""))
    return f"{sign} {row.state}" if sign and chosen.spacious else row.state or ""


_WITHOUT_POWER = REST | {"mig", "process"}  # and without a mean


def _burst_text(row: TopRow) -> str:
    if row.kind in _WITHOUT_POWER and row.busy_mean is None:
        return ""
    return f"{percent(row.busy_mean):>4} {percent(row.busy_max):>4}"


def _power_text(row: TopRow, chosen: ColumnPlan) -> str:
    if row.kind in _WITHOUT_POWER:
        return ""
    return watts(row.power, row.power_limit if chosen.spacious else None)


def _extra_text(row: TopRow) -> str:
    if row.kind in REST:
        return ""
    if row.kind == "process":
        return short_age(row.age)
    if row.kind != "gpu":
        return UNKNOWN if row.processes is None else str(row.processes)
    return UNKNOWN if row.temperature is None else f"{row.temperature:.0f}°C"


def _method_text(row: TopRow) -> str:
    if row.kind == "gpu":
        return row.health or UNKNOWN
    return (row.method or UNKNOWN) if row.kind == "container" else ""


def _memory_text(row: TopRow) -> str:
    return size(row.memory) if row.kind in REST else sizes(row.memory, row.memory_total)


_TEXTS: dict[str, Callable[[TopRow, ColumnPlan], str]] = {
    "place": lambda row, _: row.place,
    "state": _state_text,
    "burst": lambda row, _: _burst_text(row),
    "power": _power_text,
    "energy": lambda row, _: "" if row.kind in {"mig", "process"} and row.energy is None else joules(row.energy),
    "extra": lambda row, _: _extra_text(row),
    "method": lambda row, _: _method_text(row),
}


def table_lines(table: Sequence[TopRow], width: int | None, *, group: bool) -> tuple[list[Text], list[Text]]:
    """The two lines of titles, and a line for each row."""
    chosen = plan(table, width, group=group)
    shown = [row for row in table if row.kind != "ended" or "energy" in chosen.columns]
    widths = {column: _width(column, chosen, table) for column in chosen.columns}
    return _titles(chosen, widths, group=group), [_line(row, chosen, widths) for row in shown]


def hidden(table: Sequence[TopRow], width: int | None, *, group: bool, how: Pair = WIDE) -> str:
    """What has no room, in one line with the switch that shows it; empty if nothing is hidden."""
    chosen, whole = plan(table, width, group=group), plan(table, None, group=group)
    titles = [" ".join(_TITLES[column][0].split()) for column in whole.columns if column not in chosen.columns]
    shortened = chosen.name < whole.name
    return hidden_line(titles, width, "en", shortened=shortened, how=how) if titles or shortened else ""


def _titles(chosen: ColumnPlan, widths: dict[str, int], *, group: bool) -> list[Text]:
    first = Text(" " + fit("GPU" if group else "CONTAINER", chosen.name), "bold")
    second = Text(" " + fit("  container" if group else "", chosen.name), "dim")
    for column, width in widths.items():
        above, below = _TITLES[column]
        if not group:
            above, below = (above if column in {"place", "power", "memory"} or not below else below.upper()), ""
        pad = str.rjust if column in _RIGHT else str.ljust
        first.append(_gap(chosen) + pad(above, width)[:width])
        second.append(_gap(chosen) + pad(below, width)[:width])
    return [first, second] if group else [first]


def _line(row: TopRow, chosen: ColumnPlan, widths: dict[str, int]) -> Text:
    line = Text(" ")
    mark = "" if row.allocated else "! "
    room = max(0, chosen.name - cell_len(row.branch) - len(mark))
    name = _NAMES.get(row.kind, fit)(row.name, room)
    line.append(row.branch, "dim").append(mark, "bold yellow").append(name, _name_style(row))
    line = _cropped(line, chosen.name + 1)
    for column, width in widths.items():
        line.append(_gap(chosen)).append_text(_cell(column, row, chosen, width))
    if _is_lost(row):
        line.stylize("dim")
    return line


_NAMES: dict[str, Callable[[str, int], str]] = {"process": begun, "container": fit_label}  # a name in one line


def _name_style(row: TopRow) -> str:
    return {"gpu": "bold", "mig": "cyan", "container": "", "process": "dim"}.get(row.kind, "dim italic")


def _is_lost(row: TopRow) -> bool:
    return row.kind == "gpu" and row.health not in {None, "ok"} and row.memory is None


def _cell(column: str, row: TopRow, chosen: ColumnPlan, width: int) -> Text:
    if column == "busy":
        return _busy_cell(row, chosen, width)
    if column == "memory":
        return _memory_cell(row, chosen, width)
    text = _TEXTS[column](row, chosen)
    style = _style(column, row)
    return Text(text.rjust(width) if column in _RIGHT else set_cell_size(text, width), style)


def _busy_cell(row: TopRow, chosen: ColumnPlan, width: int) -> Text:
    if row.kind in REST or row.kind == "mig":
        return Text(" " * width)
    style = "bold magenta" if row.busy is not None and row.busy > 1 else "cyan"
    number = f"{percent(row.busy):>4}"
    if not chosen.busy_bar or row.kind == "process":
        return Text(number.rjust(width), style)
    return bar(row.busy, chosen.busy_bar, style).append(f" {number}", style if row.busy else "")


def _memory_cell(row: TopRow, chosen: ColumnPlan, width: int) -> Text:
    ratio = row.memory / row.memory_total if row.memory is not None and row.memory_total else None
    text = f"{_memory_text(row)} {'' if row.kind == 'process' else percent(ratio):>4}"
    if row.kind in REST or row.kind == "process":
        return Text(text.rjust(width), "dim")
    if not chosen.memory_bar:
        return Text(text.rjust(width), _fullness(ratio))
    return bar(ratio, chosen.memory_bar, _fullness(ratio)).append(text.rjust(width - chosen.memory_bar))


def _fullness(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return "bold magenta" if ratio > 1 else "red" if ratio >= 0.9 else "yellow" if ratio >= 0.75 else "green"


def _style(column: str, row: TopRow) -> str:
    if row.kind in REST or row.kind == "process":
        return "dim"
    if column == "state" or (column == "method" and row.kind == "gpu"):
        if row.health not in {None, "ok"}:
            return "bold red"
        return _STATES.get(row.state or "", ("", "cyan"))[1] if column == "state" else "green"
    if column == "extra" and row.temperature is not None:
        return "red" if row.temperature >= 85 else "yellow" if row.temperature >= 75 else ""
    if column == "power" and row.power and row.power_limit:
        return "yellow" if row.power >= 0.95 * row.power_limit else ""
    return "dim" if column == "method" else ""


def _cropped(line: Text, width: int) -> Text:
    line.truncate(width, overflow="crop", pad=True)
    return line
