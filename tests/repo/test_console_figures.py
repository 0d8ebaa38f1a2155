"""The console and the table of figures name the same figures."""

import re

from tests.paths import REPOSITORY
from vgpuscope.catalog.figures import BY_CODE, FIGURES
from vgpuscope.model.console.history import QUANTITIES

SOURCES = REPOSITORY / "web" / "src"
SUBJECTS = "|".join(sorted({figure.subject for figure in FIGURES}))
# figure="x", figure: "x", figure={a ? "x" : "y"}, ["x", text], idleForColumn("x", …), <Highest of="x">
PLACES = (r'figure(?:=|: )"({c})"', r'\[\s*"({c})",', r'Column\(\s*"({c})"', r'undefined,\s*"({c})"', r'[?:] "({c})"')
MADE = {  # codes that are made of a part
    *(f"chart.{quantity}" for quantity in QUANTITIES),
    *(f"{code}_{end}" for code in ("gpu.ecc", "gpu.remapped") for end in ("corrected", "uncorrected")),
    *(f"{code}_{end}" for code in ("gpu.use", "workload.use") for end in ("max", "p95")),
    *("fleet.use_before", "fleet.idle_gpu_hours_day_before"),
    *(f"policy.{name}" for name in ("gpu_hours", "false_alarms", "actions", "workloads", "busy_later", "ended")),
    *("policy.still_idle", "policy.unknown_gpu_hours"),
}
TEXTS = {*re.findall(r'^  "([a-z_.0-9-]+)":', (SOURCES / "words" / "en.ts").read_text(), re.MULTILINE)}


def named() -> dict[str, str]:
    """Every code that a file of the console names, with the file; keys of texts look like codes."""
    code = rf"(?:{SUBJECTS})\.[a-z0-9_]+"
    return {
        name: path.name
        for path in sorted(SOURCES.rglob("*.ts*"))
        if path.parent.name != "words" and ".gen." not in path.name
        for place in PLACES
        for name in re.findall(place.format(c=code), path.read_text())
        if name not in TEXTS
    }


def test_every_figure_of_the_console_is_in_the_table():
    found = named()
    assert len(found) > 100
    assert sorted((found.keys() | MADE) - BY_CODE.keys()) == []


def test_every_figure_that_only_the_console_makes_is_shown_there():
    made = {figure.code for figure in FIGURES if figure.console}
    assert sorted(made - named().keys() - MADE) == []
