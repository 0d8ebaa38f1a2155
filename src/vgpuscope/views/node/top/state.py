"""`vgpuscope top`, the part without I/O: samples and keys update a state, and the screen is drawn from the state.

text ◄─ rows ◄─ processes ◄─ table ◄─ state ─► notes
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Group
from rich.text import Text

from vgpuscope.model.quantity import Seconds
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.views.node.top.notes import heading, notices
from vgpuscope.views.node.top.processes import with_processes
from vgpuscope.views.node.top.rows import DESCENDING, REST, SORTS, Sort, TopRow, narrowed, rows
from vgpuscope.views.node.top.table import hidden, table_lines
from vgpuscope.views.table import WIDEN
from vgpuscope.views.text import clean, span

__all__ = [
    "SORTS",
    "Sort",
    "TopRow",
    "TopState",
    "missed",
    "narrowed",
    "page",
    "press",
    "rows",
    "sampled",
    "screen",
    "settle",
]


Panel = Literal["", "help", "notices"]


class TopState(Struct, frozen=True, kw_only=True):
    """Everything that the screen depends on."""

    url: str = ""
    snapshot: NodeSnapshot | None = None
    arrived: NodeSnapshot | None = None  # the newest one; differs from the one shown while paused
    error: str | None = None  # why the last fetch failed
    hint: str = ""
    now: float = 0.0  # by the agent's clock
    utc_offset: Seconds = 0.0
    sort: Sort = "gpu"
    reverse: bool = False
    pattern: str = ""
    typing: str | None = None  # a pattern being typed; None: keys are commands
    group: bool = True
    rest: bool = True  # show the rows that belong to no container
    processes: bool = False  # show the processes below their containers
    paused: bool = False
    panel: Panel = ""
    quit: bool = False
    scroll: int = 0
    page: int = 1  # lines the body has room for
    length: int = 0  # lines the body has

    @property
    def needle(self) -> str:
        return self.pattern if self.typing is None else self.typing

    def table(self) -> tuple[TopRow, ...]:
        """The rows to show now."""
        if self.snapshot is None:
            return ()
        found = rows(self.snapshot, sort=self.sort, reverse=self.reverse, pattern=self.needle, group=self.group)
        shown = found if self.rest else tuple(row for row in found if row.kind not in REST)
        if not self.processes:
            return shown
        there = narrowed(self.snapshot, self.needle)
        return with_processes(shown, there, sort=self.sort, reverse=self.reverse)


def sampled(state: TopState, snapshot: NodeSnapshot, *, now: float) -> TopState:
    """A sample arrived; a paused screen keeps what it shows."""
    shown = state.snapshot if state.paused and state.snapshot else snapshot
    return replace(state, arrived=snapshot, snapshot=shown, error=None, hint="", now=now)


def missed(state: TopState, error: str, *, hint: str, now: float) -> TopState:
    """A fetch failed; the last data is kept."""
    return replace(state, error=error, hint=hint, now=now)


def press(state: TopState, key: str) -> TopState:
    """What one key does. Keys are characters, or words: up down pgup pgdn home end enter esc backspace clear."""
    if state.typing is not None:
        return _typed(state, state.typing, key)
    if state.panel and key not in _MOVES:
        return replace(state, panel="", scroll=0)
    action = _MOVES.get(key) or _ACTIONS.get(key)
    return state if action is None else action(state)


def _typed(state: TopState, text: str, key: str) -> TopState:
    match key:
        case "enter":
            return replace(state, pattern=text.strip(), typing=None, scroll=0)
        case "esc":
            return replace(state, typing=None, scroll=0)
        case "backspace":
            return replace(state, typing=text[:-1], scroll=0)
        case "clear":
            return replace(state, typing="", scroll=0)
        case _ if len(key) == 1 and key.isprintable():
            return replace(state, typing=(text + key)[:64], scroll=0)
    return state


def _moved(state: TopState, lines: int) -> TopState:
    return replace(state, scroll=max(0, min(state.scroll + lines, state.length - state.page)))


def _resorted(state: TopState) -> TopState:
    return replace(state, sort=SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)], scroll=0)


def _unpaused(state: TopState) -> TopState:
    return replace(state, paused=not state.paused, snapshot=state.arrived if state.paused else state.snapshot)


_ACTIONS: dict[str, Callable[[TopState], TopState]] = {
    "q": lambda s: replace(s, quit=True),
    "esc": lambda s: replace(s, quit=True),
    "s": _resorted,
    "r": lambda s: replace(s, reverse=not s.reverse),
    "/": lambda s: replace(s, typing=s.pattern),
    "g": lambda s: replace(s, group=not s.group, scroll=0),
    "l": lambda s: replace(s, rest=not s.rest),
    "p": lambda s: replace(s, processes=not s.processes, scroll=0),
    " ": _unpaused,
    "n": lambda s: replace(s, panel="notices", scroll=0),
    "?": lambda s: replace(s, panel="help", scroll=0),
}
_MOVES: dict[str, Callable[[TopState], TopState]] = {
    "j": lambda s: _moved(s, 1),
    "k": lambda s: _moved(s, -1),
    "down": lambda s: _moved(s, 1),
    "up": lambda s: _moved(s, -1),
    "pgdn": lambda s: _moved(s, s.page),
    "pgup": lambda s: _moved(s, -s.page),
    "home": lambda s: _moved(s, -s.length),
    "end": lambda s: _moved(s, s.length),
}


_HELP = (
    ("q, Esc", "quit"),
    ("s", "sort by the next column: gpu, memory, sm, power, name"),
    ("r", "reverse the order"),
    ("/", "filter by namespace, pod, container, UUID or model; Enter applies, Esc cancels"),
    ("g", "list containers below their GPU, or without GPUs"),
    ("l", "show or hide memory outside containers: system, unattributed, free"),
    ("p", "show or hide the processes of each container: pid, command, user, SM, memory, running time"),
    ("n", "all notices: failed sources, lost GPUs, rejected regions"),
    ("space", "pause or continue updates"),
    ("j k ↑ ↓", "scroll; also PgUp PgDn Home End"),
    ("?", "this page"),
    ("", ""),
    ("–", "not measured; not the same as 0"),
    ("!", "before a name: uses a GPU without an allocation"),
    ("mean max", "over the agent's last window; includes bursts between two samples"),
    ("method", "and measured, derived or shared-out; ± is how far the SM time can be off"),
    ("limit", "of HAMi, of the MIG instance, or the GPU's memory divided by the ratio"),
)
_MOST_NOTICES = 4


def settle(state: TopState, size: tuple[int, int]) -> TopState:
    """The state with its scroll inside what a screen of this size has to show."""
    above, body, below = _parts(state, size)
    room = max(1, size[1] - len(above) - len(below))
    return replace(state, page=room, length=len(body), scroll=max(0, min(state.scroll, len(body) - room)))


def screen(state: TopState, size: tuple[int, int]) -> Group:
    """The whole screen: exactly as many lines as it has, each as wide as it is."""
    width, height = size
    above, body, below = _parts(state, size)
    room = max(0, height - len(above) - len(below))
    shown = body[state.scroll : state.scroll + room]
    shown += [Text()] * (room - len(shown))
    lines = [*[*above, *shown, *below][: max(height - 1, 0)], _status(state, length=len(body), room=room, width=width)]
    return Group(*(_filled(line, width) for line in lines[:height]))


def _filled(line: Text, width: int) -> Text:
    line.no_wrap, line.overflow = True, "crop"
    line.truncate(width, overflow="ellipsis" if line.cell_len > width else "crop", pad=True)
    return line


def _parts(state: TopState, size: tuple[int, int]) -> tuple[list[Text], list[Text], list[Text]]:
    """Lines that stay above, lines that scroll, lines that stay below (the last is for the keys)."""
    bottom = [Text()]
    title = [Text().append(f" vgpuscope top {state.panel} ".replace("  ", " "), "bold reverse"), Text()]
    if state.panel == "help":
        return title, _help_lines(), bottom
    if state.snapshot is None:
        return title, _waiting(state), bottom
    if state.panel == "notices":
        return title, notices(state.snapshot) or [Text(" no notices")], bottom
    width, height = size
    titles, body = table_lines(state.table(), width, group=state.group)
    head = heading(state.snapshot, now=state.now, utc_offset=state.utc_offset, paused=state.paused, width=width)
    below = _folded(notices(state.snapshot), max(1, min(_MOST_NOTICES, height // 8)))
    if narrow := hidden(state.table(), width, group=state.group, how=WIDEN):
        below.append(Text(f" {narrow}", "dim"))
    above, body = [*head, Text(), *titles], body or [_nothing(state)]
    if state.error:
        above, body = ([Text(line.plain, "dim") for line in lines] for lines in (above, body))
        age = span(max(0.0, state.now - state.snapshot.at))
        below = [Text(f" ✗ {clean(state.error)}", "bold red"), Text(f" data is {age} old; retrying", "yellow")]
    return above, body, [*below, *bottom]


def _folded(lines: list[Text], most: int) -> list[Text]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], Text(f" … and {len(lines) - most + 1} more: press n", "yellow")]


def _help_lines() -> list[Text]:
    return [Text().append(f"  {key:<10}", "bold cyan").append(meaning) for key, meaning in _HELP]


def _waiting(state: TopState) -> list[Text]:
    if state.error is None:
        return [Text(f" connecting to {clean(state.url)} …")]
    return [
        Text(f" ✗ {clean(state.error)}", "bold red"),
        Text(f"   hint: {state.hint}"),
        Text("   retrying", "yellow"),
    ]


def _status(state: TopState, *, length: int, room: int, width: int) -> Text:
    line = _keys(state)
    if length > room:
        where = f" {state.scroll + 1}–{min(length, state.scroll + room)} of {length} "
        line.truncate(max(0, width - len(where)), overflow="ellipsis", pad=True)
        line.append(where, "yellow")
    return line


def _keys(state: TopState) -> Text:
    if state.typing is not None:
        return Text().append(" filter: ", "bold reverse").append(f" {clean(state.typing)}").append("▏", "blink")
    if state.panel:
        return Text().append(" press any key to go back ", "reverse")
    arrow = "↑" if (state.sort in DESCENDING) == state.reverse else "↓"
    keys = (
        ("q", "quit"),
        ("s", f"sort {state.sort}{arrow}"),
        ("/", f"filter “{clean(state.pattern)}”" if state.pattern else "filter"),
        ("g", "containers" if state.group else "by GPU"),
        ("space", "continue" if state.paused else "pause"),
        ("?", "help"),
    )
    line = Text()
    for key, word in keys:
        line.append(f" {key} ", "reverse").append(f" {word} ")
    return line


def page(state: TopState, width: int | None) -> list[Text]:
    """The whole page, for `--once`: heading, table, notices."""
    assert state.snapshot is not None
    snapshot = state.snapshot
    titles, body = table_lines(state.table(), width, group=state.group)
    head = heading(snapshot, now=state.now, utc_offset=state.utc_offset, paused=False, width=width)
    if body and (narrow := hidden(state.table(), width, group=state.group)):
        body.append(Text(f" {narrow}", "dim"))
    below = notices(snapshot)
    lines = [*head, Text(), *titles, *(body or [_nothing(state)]), *([Text()] if below else []), *below]
    return [_trimmed(line, width) for line in lines]


def _trimmed(line: Text, width: int | None) -> Text:
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    line.rstrip()
    return line


def _nothing(state: TopState) -> Text:
    if state.needle:
        return Text(f" no rows match “{clean(state.needle)}”", "italic")
    return Text(" no container uses a GPU" if not state.group else " no GPUs", "italic")
