"""Every page of the console shows the numbers that the API answers, under the codes of their definitions.

The fleet of these tests stands still, so that a page and an answer are of one moment. `AUDIT_DOM=all` opens every page
at every range in both languages.
"""

import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from importlib.resources import files

import pytest
from playwright.async_api import Browser, Response, async_playwright, expect

from tests.audit.dom import Chart, Page, Shown, read
from tests.audit.plan import rich
from tests.audit.shown import Answers
from tests.audit.stage import World, world
from tests.needed import needed

pytestmark = pytest.mark.xdist_group("console")

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
PAGES = {
    "overview": "",
    "nodes": "nodes",
    "node": "nodes/hami-0",
    "node-mig": "nodes/mig-2",
    "gpus": "gpus",
    "gpu": "gpus/{shared}",
    "gpu-mig": "gpus/{cut}?mig={mig}",
    "namespaces": "namespaces",
    "namespace": "namespaces/{namespace}",
    "workloads": "workloads",
    "owners": "workloads?by=owner",
    "by-namespace": "workloads?by=namespace",
    "pod": "workloads/{namespace}/{pod}",
    "idle": "idle",
    "cases": "idle?view=cases",
    "scheduling": "scheduling",
    "pending": "scheduling/{waits}",
    "doctor": "doctor",
    "events": "events",
}
RANGES = ("1h", "24h", "7d", "30d")
RANGED = {"overview", "node", "gpu", "namespace", "pod", "idle", "gpu-mig"}  # with charts or sums of a range
# Numbers that no answer has, and that are not made again here: why.
ONLY_HERE = {
    "list.rows": "compared with the rows of its table",
    "list.rows_found": "what a filter leaves",
    "list.rows_by_value": "what a filter would leave",
}


@contextlib.asynccontextmanager
async def _visited() -> AsyncIterator[tuple[World, Browser]]:
    built = files("vgpuscope.http").joinpath("assets", "console", "index.html").is_file()
    needed("the console", package="nodejs; then run `make console`", there=built)
    needed("chromium", package="chromium-headless-shell", there=CHROMIUM is not None)
    async with world(rich(28, hours=30)) as found, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found, browser
        await browser.close()


class Visitor:
    """Opens pages, and keeps the answers that each of them received."""

    def __init__(self, found: World, browser: Browser) -> None:
        self.world, self.browser = found, browser
        self.problems: list[str] = []
        self.numbers = 0

    async def prepare(self) -> None:
        self._openapi = await self.world.get("/openapi.json")
        self._definitions = await self.world.get("/api/v1/definitions")
        rows = (await self.world.get("/api/v1/gpus"))["rows"]
        shared = max(rows, key=lambda row: len(row["tenants"]))
        cut = next(row for row in rows if row["mig"] and row["tenants"])
        waits = (await self.world.get("/api/v1/scheduling"))["pending"][0]
        tenant = shared["tenants"][0]
        self.names = {
            "shared": shared["gpu_id"],
            "cut": cut["gpu_id"],
            "mig": cut["mig"],
            "namespace": tenant["namespace"],
            "pod": tenant["pod"],
            "waits": f"{waits['namespace']}/{waits['pod']}",
        }

    async def visit(self, name: str, *, range_: str, language: str, headers: dict[str, str]) -> None:
        path = PAGES[name].format(**self.names)
        path += ("&" if "?" in path else "?") + f"range={range_}"
        context = await self.browser.new_context(
            viewport={"width": 1400, "height": 4000}, extra_http_headers=headers, reduced_motion="reduce"
        )
        await context.add_init_script(
            f"localStorage.setItem('vgpuscope.language', '{language}'); localStorage.setItem('vgpuscope.refresh', '0');"
        )
        page = await context.new_page()
        received: list[Response] = []
        page.on("response", lambda response: received.append(response))  # noqa: PLW0108 - Playwright marks its handlers
        await page.goto(f"{self.world.url}/ui/{path}")
        await page.wait_for_selector("main h1, main .empty")
        await expect(page.locator(".skeleton")).to_have_count(0, timeout=60_000)
        shown, now = await read(page), time.time()
        answers = Answers(self._openapi, self._definitions)
        for response in received:
            if "/api/v1/" in response.url and response.status == 200 and "json" in response.headers["content-type"]:
                answers.add(response.url, await response.json(), now=now)
        await context.close()
        answers.finish()
        self.numbers += len(shown.numbers)
        where = f"{name} at {range_} in {language}"
        self.problems += [f"{where}: {problem}" for problem in problems(shown, answers)]


def problems(shown: Page, answers: Answers) -> list[str]:
    """What a page shows that its answers do not say, or that contradicts itself."""
    wrong = [f"cannot be read: {one}" for one in shown.unread]
    wrong += [f"has no code: {one}" for one in shown.nameless]
    for number in shown.numbers:
        if number.figure == "list.rows" and number.beside is not None:
            if number.value != number.beside:
                wrong.append(f"{number}, its table has {number.beside} rows")
        elif number.figure not in ONLY_HERE:
            wrong += _compared(number, shown, answers)
    for chart in shown.charts:
        wrong += _of_chart(chart)
    return wrong + _same_everywhere(shown)


def _compared(number: Shown, page: Page, answers: Answers) -> list[str]:
    keys = frozenset(part for part in (_of(number) or page.subject).replace(" · ", "/").split("/") if part)
    known = answers.of(number.figure, keys)
    if any(number.shows(one.value, unit=one.unit, slack=one.slack) for one in known):
        return []
    if not known:
        return [] if number.value is None else [f"{number}, and no answer has it"]
    return [f"{number}, the API answers {sorted({str(one.value) for one in known})}"]


def _of(number: Shown) -> str:
    """Of what it is: the nearest key; of a count by class, also the one around it."""
    return "/".join(number.keys[: 2 if number.figure.endswith("by_class") else 1])


def _same_everywhere(page: Page) -> list[str]:
    """One figure of one subject has one value on a page, as far as rounding lets one see."""
    wrong, first = [], dict[tuple[str, str], Shown]()
    for number in page.numbers:
        if number.figure in ONLY_HERE or "row" in number.figure:
            continue
        before = first.setdefault((number.figure, "/".join(number.keys)), number)
        if before.value is None or number.value is None:
            same = before.value is number.value
        else:
            same = abs(before.value - number.value) <= before.margin + number.margin
        if not same:
            wrong.append(f"{number}, and as {before.text!r} ({before.where})")
    return wrong


def _of_chart(chart: Chart) -> list[str]:
    """The legend shows what is drawn."""
    wrong = []
    for line in chart.lines:
        if len(line.values) != len(chart.times):
            wrong.append(f"chart {chart.name}: {line.key} has {len(line.values)} values for {len(chart.times)} times")
    return wrong


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_pages_show_what_the_api_answers(language: str) -> None:
    everything = os.environ.get("AUDIT_DOM") == "all"
    async with _visited() as (found, browser):
        visitor = Visitor(found, browser)
        await visitor.prepare()
        for name in PAGES:
            ranges = RANGES if (name in RANGED and language == "en") or everything else RANGES[1:2]
            for range_ in ranges:
                await visitor.visit(name, range_=range_, language=language, headers=found.admin)
        assert visitor.problems == []
        assert visitor.numbers > 1000


async def test_pages_of_a_caller_of_one_namespace_show_what_the_api_answers_to_that_caller() -> None:
    async with _visited() as (found, browser):
        visitor = Visitor(found, browser)
        await visitor.prepare()
        visitor.names["namespace"] = found.namespace
        mine = (await found.get(f"/api/v1/workloads?namespace={found.namespace}", found.mine))["rows"]
        visitor.names["pod"] = mine[0]["pod"]
        for name in ("overview", "nodes", "gpus", "namespaces", "namespace", "workloads", "pod", "idle"):
            await visitor.visit(name, range_="24h", language="en", headers=found.mine)
        assert visitor.problems == []
