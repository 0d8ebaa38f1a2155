"""The dashboards against Grafana's own types: npm's @grafana/schema, read by the TypeScript compiler."""

import json
import re
import subprocess

import pytest

from tests.dashboards.boards import BOARDS, everything
from tests.needed import needed
from tests.paths import REPOSITORY

pytestmark = pytest.mark.real
MODULES = REPOSITORY / "web" / "node_modules"
NODE = REPOSITORY / "tools" / "console" / "node"  # prints where Node.js is
RAW = "./node_modules/@grafana/schema/dist/esm/raw/composable"
KINDS = {  # type of a panel: its folder, its file, and what it calls the settings of a field
    "stat": ("stat", "Stat", None),
    "timeseries": ("timeseries", "TimeSeries", "FieldConfig"),
    "bargauge": ("bargauge", "BarGauge", None),
    "barchart": ("barchart", "BarChart", "FieldConfig"),
    "table": ("table", "Table", "FieldConfig"),
    "histogram": ("histogram", "Histogram", "FieldConfig"),
    "heatmap": ("heatmap", "Heatmap", "FieldConfig"),
    "state-timeline": ("statetimeline", "StateTimeline", "FieldConfig"),
}
# JSON has the values of an enumeration, not its names. What has a default may be absent.
PLAIN = """
type Plain<T> = T extends string ? `${T}` : T extends number ? (number extends T ? number : `${T}` extends
  `${infer N extends number}` ? N : T) : T extends (infer U)[] ? Plain<U>[] : T extends object ?
  { [K in keyof T]: Plain<T[K]> } : T;
type Loose<T> = T extends (infer U)[] ? Loose<U>[] : T extends object ? { [K in keyof T]?: Loose<T[K]> } : T;
type Board = Plain<Dashboard>;
type Shown = Plain<Omit<Panel, "options">> & { options: unknown };
"""


def program(boards) -> str:
    """One constant for each part, so that the compiler checks it for missing, wrong and unknown fields."""
    lines = ['import type { Dashboard, Panel, RowPanel } from "@grafana/schema";']
    for folder, file, custom in KINDS.values():
        names = f"Options as {file}Options" + (f", FieldConfig as {file}Field" if custom else "")
        lines.append(f'import type {{ {names} }} from "{RAW}/{folder}/panelcfg/x/{file}PanelCfg_types.gen";')
    lines.append(PLAIN)
    for at, board in enumerate(boards):
        lines.append(f"export const b{at}: Board = {json.dumps(board | {'panels': []})};")
        for panel in everything(board):
            lines += parts(f"b{at}p{panel['id']}", panel)
    return "\n".join(lines)


def parts(name: str, panel):
    if panel["type"] == "row":
        return [f"export const {name}: Plain<RowPanel> = {json.dumps(panel | {'panels': []})};"]
    _, file, custom = KINDS[panel["type"]]
    fields = panel["fieldConfig"]["defaults"]
    lines = [
        f"export const {name}: Shown = {json.dumps(panel)};",
        f"export const {name}o: Loose<Plain<{file}Options>> = {json.dumps(panel['options'])};",
    ]
    if custom:
        lines.append(f"export const {name}f: Loose<Plain<{file}Field>> = {json.dumps(fields.get('custom', {}))};")
    else:
        assert not fields.get("custom")
    return lines


@pytest.fixture
def compiled(tmp_path):
    needed("tsc", package="nodejs; then run `make console`", there=(MODULES / "@grafana" / "schema").exists())
    (tmp_path / "node_modules").symlink_to(MODULES)

    def run(text: str):
        (tmp_path / "boards.ts").write_text(text)
        flags = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext"]
        node = subprocess.run([NODE], capture_output=True, text=True, check=True).stdout.strip()
        command = [
            f"{node}/node",
            str(MODULES / "typescript" / "bin" / "tsc"),
            *flags,
            "--moduleResolution",
            "bundler",
            "boards.ts",
        ]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_every_dashboard_is_what_grafana_calls_one(compiled):
    done = compiled(program([*BOARDS["en"], *BOARDS["zh"]]))
    assert done.returncode == 0, done.stdout[:4000]


WRONG = (
    (("graphTooltip",), "yes"),
    (("panels", 0, "gridPos", "w"), "wide"),
    (("panels", 0, "options", "colorMode"), "rainbow"),
    (("panels", 0, "fieldConfig", "defaults", "unlt"), "percent"),
    (("templating", "list", 0, "type"), "guess"),
)


def test_a_dashboard_that_is_not_one_is_refused(compiled):
    text = program([broken(*one) for one in WRONG])
    said = {int(line) for line in re.findall(r"^boards\.ts\((\d+),", compiled(text).stdout, re.M)}
    names = {re.match(r"export const (b\d+)", text.splitlines()[line - 1])[1] for line in said}
    assert names == {f"b{at}" for at in range(len(WRONG))}


def broken(path, value):
    board = json.loads(json.dumps(BOARDS["en"][0]))
    part = board
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return board
