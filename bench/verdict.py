"""The shared parts of the reports of all benches: targets, the machine, and where results are written."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

_HERE = Path(__file__).parent
DOCS = _HERE.parent / "docs" / "performance.md"


class Target(Struct, frozen=True, kw_only=True):
    """One target and its measured value."""

    what: str
    measured: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


class Machine(Struct, frozen=True, kw_only=True):
    """The machine on which it was measured."""

    cpu: str
    cores: int
    python: str
    kernel: str


class Result(Struct, frozen=True, kw_only=True):
    """The content of a file in bench/results."""

    command: str
    machine: Machine
    targets: tuple[Target, ...]
    figures: Any


def result(figures: Any, targets: tuple[Target, ...]) -> Result:
    """The result of the run, with its targets."""
    return Result(command="make bench", machine=_machine(), targets=targets, figures=figures)


def terminal(result: Result) -> str:
    """The table of targets for the terminal."""
    width = max(len(t.what) for t in result.targets)
    lines = [f"{'':{width}} {'measured':>12} {'target':>10}"]
    for t in result.targets:
        sign = "≥" if t.at_least else "≤"
        verdict = "met" if t.met else "MISSED"
        lines.append(f"{t.what:{width}} {t.measured:>9.2f} {t.unit:2} {sign} {t.bound:g} {t.unit:2}  {verdict}")
    return "\n".join(lines)


def save(name: str, result: Result, tables: str) -> None:
    """Write the JSON and update the document."""
    folder = _HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    begin, end = _marks(name)
    inner = f"{begin}\n{tables}\n{end}"
    text = DOCS.read_text()
    DOCS.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: inner, text, flags=re.DOTALL))


def promises(result: Result) -> list[str]:
    """Rows of the table of targets."""
    return [
        "| what | target | measured | |",
        "|---|---|---|---|",
        *(
            f"| {t.what} | {'≥' if t.at_least else '≤'} {t.bound:g} {t.unit} | {t.measured:.2f} {t.unit} | "
            f"{'met' if t.met else '**missed**'} |"
            for t in result.targets
        ),
    ]


def place(result: Result, speed: float) -> str:
    """The sentence about the machine."""
    m = result.machine
    return (
        f"Machine: {m.cpu}, {m.cores} cores, {m.python}, Linux {m.kernel}; other work on it left {speed:.0%} of its "
        "speed."
    )


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- bench {name}: begin, written by `make bench` -->", f"<!-- bench {name}: end -->"


def _machine() -> Machine:
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return Machine(
        cpu=models[0] if models else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernel=platform.release(),
    )
