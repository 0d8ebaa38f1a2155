"""Takes the pictures of the web console for the documentation, in Debian's Chromium: docs/img/console-*.png."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tools.pictures import IMAGES, demo, fetched

_WIDE, _PHONE = (1280, 860), (390, 844)
_READY = 2_000  # ms for charts to be drawn
_CASE_WITHIN = 120.0  # seconds


class Picture(NamedTuple):
    """One page as one user sees it."""

    page: str
    path: str
    language: str = "en"
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = _WIDE

    @property
    def file(self) -> Path:
        parts = [self.page, *(["zh"] if self.language == "zh" else []), *(["dark"] if self.theme == "dark" else [])]
        return IMAGES / f"console-{'-'.join([*parts, *(['phone'] if self.size == _PHONE else [])])}.png"


def pictures(analyzer: str) -> Iterator[Picture]:
    """Every page in both languages; some of them dark, and on a phone."""
    pages = dict(_pages(analyzer))
    for page, path in pages.items():
        yield Picture(page, path)
        yield Picture(page, path, language="zh")
    for page in ("overview", "gpu", "workloads"):
        yield Picture(page, pages[page], theme="dark")
    for page in ("overview", "gpus", "idle", "case", "workload"):
        yield Picture(page, pages[page], size=_PHONE)


def _pages(analyzer: str) -> Iterator[tuple[str, str]]:
    gpus = _rows(analyzer, "gpus?node=hami-a&sort=index")
    waiting = json.loads(fetched(f"{analyzer}/api/v1/scheduling"))["pending"][0]
    tenant = gpus[0]["tenants"][0]  # a pod on a shared GPU
    yield "overview", ""
    yield "gpus", "gpus"
    yield "gpu", f"gpus/{gpus[0]['gpu_id']}"
    yield "nodes", "nodes"
    yield "node", "nodes/hami-a"
    yield "workloads", "workloads"
    yield "workload", f"workloads/{tenant['namespace']}/{tenant['pod']}"
    yield "idle", "idle"
    yield "cases", "idle?view=cases"
    yield "case", f"idle/{_case(analyzer)}"
    yield "policy", "idle?view=policy"
    yield "backtest", "idle?view=backtest"
    yield "scheduling", "scheduling"
    yield "pending", f"scheduling/{waiting['namespace']}/{waiting['pod']}"
    yield "namespaces", "namespaces"
    yield "namespace", "namespaces/research"
    yield "events", "events"
    yield "audit", "audit"
    yield "doctor", "doctor"
    yield "settings", "settings"


def _case(analyzer: str) -> str:
    """A case of taking GPUs back that may still move, once there is one."""
    until = time.monotonic() + _CASE_WITHIN
    while time.monotonic() < until:
        cases = json.loads(fetched(f"{analyzer}/api/v1/reclaim"))["cases"]
        for case in cases:
            if case["state"] != "released":
                return str(case["id"])
        time.sleep(1.0)
    raise SystemExit(f"no case within {_CASE_WITHIN:.0f} s")


def _rows(analyzer: str, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(fetched(f"{analyzer}/api/v1/{path}"))["rows"]
    return rows


def take(browser: Browser, analyzer: str, picture: Picture) -> None:
    """Open the page as that user, and save what is in the window."""
    width, height = picture.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=picture.theme)
    context.add_init_script(f"localStorage.setItem('vgpuscope.language', '{picture.language}')")
    tab = context.new_page()
    tab.goto(f"{analyzer}/ui/{picture.path}")
    tab.wait_for_selector("main h1")
    tab.wait_for_timeout(_READY)
    tab.screenshot(path=str(picture.file))
    context.close()
    print(picture.file.relative_to(IMAGES.parents[1]))


def main() -> None:
    """Take all pictures."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    with demo() as (_, analyzer, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture in pictures(analyzer):
            take(browser, analyzer, picture)
        browser.close()


if __name__ == "__main__":
    main()
