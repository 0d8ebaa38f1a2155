"""The demo's output: one page when it is ready, and a line for each event."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT
from vgpuscope.sim.news import STYLES, NewsEvent, clock
from vgpuscope.sim.processes import Child, Ports

_WIDTH = 80
_PLAIN_WIDTH = 160  # columns; without a terminal no line is wrapped


def console() -> Console:
    # Logs and paths may contain brackets, which must not be read as markup.
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(markup=False, highlight=False, emoji=False, width=width)


@contextlib.contextmanager
def starting(console: Console) -> Iterator[Callable[[set[str]], None]]:
    """A status line with the processes that are not ready yet, removed at the end; only in a terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda names: status.update(f"starting: {', '.join(sorted(names))}")


def print_page(console: Console, children: list[Child], root: Path, ports: Ports, found: list[str]) -> None:
    """Prints one screen: addresses, findings, and commands to try."""
    what = ": simulated GPUs with 24 h of history; every process is real"
    lines = [Text.assemble(("vgpuscope demo", "bold"), what)]
    lines += [_address(child) for child in sorted(children, key=_place)]
    if ports.moved:
        taken = ", ".join(map(str, ports.moved))
        lines.append(Text(f"  Other ports than usual: {taken} {'are' if len(ports.moved) > 1 else 'is'} taken.", "red"))
    lines.append(Text("Found by the analyzer and the cluster exporter:", "bold"))
    lines += [Text(f"  - {sentence}", "yellow") for sentence in found]
    if not found:
        lines.append(Text("  - nothing yet: the analyzer has not seen a whole window"))
    lines.append(Text("In another terminal:", "bold"))
    lines += _command_lines([*_commands(children, root)])
    lines.append(Text.assemble(("Ctrl-C ends everything.", "bold"), " Events follow as they happen:"))
    for line in lines:
        console.print(line, soft_wrap=not console.is_terminal)
    console.file.flush()


def _command_lines(commands: list[tuple[str, str]]) -> list[Text]:
    """Commands, each with its description if there is room for it."""
    room = _WIDTH - 3 - max(len(what) for _, what in commands)
    column = max((len(command) for command, _ in commands if len(command) <= room), default=0)
    return [
        Text.assemble("  ", (f"{command:{column}}", "green"), f" {what}" if len(command) <= column else "")
        for command, what in commands
    ]


def _place(child: Child) -> int:
    """Sort key: the analyzer first, then the cluster exporter and the extender, then the agents."""
    return {"analyzer": 0, "cluster": 1, "extender": 2}.get(child.plan.name, 3 if child.plan.agent else 4)


def _address(child: Child) -> Text:
    name = f"agent {child.plan.name}" if child.plan.agent else child.plan.name
    url = f"{child.url}/ui/" if child.plan.name == "analyzer" else f"{child.url}/metrics"
    return Text.assemble(f"  {name:13} ", (f"{url:31}", "cyan"), f" {child.plan.kind}")


def print_event(console: Console, event: NewsEvent) -> None:
    """Prints time, kind and description; in a terminal, long descriptions are wrapped with an indent."""
    cells = (clock(time.time()), f"{event.kind:11}", event.words)
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text(cells[0], "dim"), Text(cells[1], STYLES[event.kind]), cells[2])
        console.print(grid)
    else:
        console.print("  ".join(cells), soft_wrap=True)
    console.file.flush()


# Commands and what they show; the address, and its flag, are added only if the process is not on its default port.
_SHOWN = (
    ("results", "analyzer", "every GPU and tenant: score, verdict"),
    ("waste", "analyzer", "who let GPU-hours pass idle in 24 h"),
    ("reclaim --url", "analyzer", "reclaim cases of idle pods"),
    ("doctor --analyzer", "analyzer", "can these numbers be trusted?"),
    ("top", "hami-a", "a node, live"),
    ("nodes", "cluster", "what is allocated, what still fits"),
    ("why ml-team/sweep-12", "extender", "why a pod waits"),
    ("fit -f {root}/pod.yaml --url", "extender", "where a pod would go"),
)
# the extender's usual port is the analyzer's here, so its address is always given
_USUAL = {"analyzer": ANALYZER_PORT, "cluster": CLUSTER_PORT, "hami-a": AGENT_PORT}


def _commands(children: list[Child], root: Path) -> Iterator[tuple[str, str]]:
    program, by_name = _program(), {child.plan.name: child for child in children}
    for words, name, what in _SHOWN:
        child = by_name[name]
        command, _, flag = words.partition(" --")
        address = f"{f' --{flag}' if flag else ''} {child.url}" if child.plan.port != _USUAL.get(name) else ""
        line = f"{program} {command.format(root=root)}{address}"
        yield line if len(line) < _WIDTH - 2 else line.replace("http://", ""), what
    yield f"KUBECONFIG={root}/kubeconfig kubectl get pods -A", "the cluster"


def _program() -> str:
    """How to call this program from the working directory."""
    if shutil.which("vgpuscope"):
        return "vgpuscope"
    beside = Path(sys.executable).parent / "vgpuscope"
    return os.path.relpath(beside) if beside.exists() else f"{sys.executable} -m vgpuscope"
