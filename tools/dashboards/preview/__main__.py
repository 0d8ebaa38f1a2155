"""`python -m tools.dashboards.preview DIRECTORY PROMETHEUS [MINUTES]` draws every dashboard."""

import html
import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tools.dashboards.preview.data import Source
from tools.dashboards.preview.pictures import picture
from tools.dashboards.write import FOLDER

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
CHROMIUM = "/usr/bin/chromium"
WIDTH, CELL, GAP = 1600, 30, 8  # Grafana's own measures: 30 pixels a row, 8 between panels
STYLE = Path(__file__).with_name("style.css").read_text()


def page(board: Json, source: Source) -> str:
    """A dashboard as HTML, each panel where its file puts it."""
    values = source.values(board)
    boxes = "".join(_box(panel, source, values) for panel in board["panels"])
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    chosen = " ".join(
        f"<span class=choice>{html.escape(one['label'])} <b>{html.escape(_said(one, values))}</b></span>"
        for one in board["templating"]["list"]
    )
    size = f"width:{WIDTH}px;height:{bottom * (CELL + GAP)}px"
    title = html.escape(board["title"])
    return f"<meta charset=utf-8><style>{STYLE}</style><h1>{title}</h1>{chosen}<main style='{size}'>{boxes}</main>"


def _said(variable: Json, values: dict[str, str]) -> str:
    if variable["type"] == "datasource":
        return "Prometheus"
    return "All" if variable.get("includeAll") else values[variable["name"]]


def _box(panel: Json, source: Source, values: dict[str, str]) -> str:
    at, column = panel["gridPos"], (WIDTH + GAP) / 24
    place = f"left:{at['x'] * column:.1f}px;top:{at['y'] * (CELL + GAP)}px;"
    place += f"width:{at['w'] * column - GAP:.1f}px;height:{at['h'] * (CELL + GAP) - GAP}px"
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f'<section class=row style="{place}">▾ {title}</section>'
    inside = picture(panel, source.answers(panel, values))
    head = f"<h3>{title} <small>ⓘ</small></h3>"
    return f'<section style="{place}">{head}<div class="in {panel["type"]}">{inside}</div></section>'


def main(folder: Path, url: str, minutes: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = Source(url, minutes)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": WIDTH + 24, "height": 900})
        for path in sorted((ROOT / FOLDER).rglob("*.json")):
            window.set_content(page(json.loads(path.read_text()), source))
            window.screenshot(path=str(folder / f"{path.stem}.png"), full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 60)
