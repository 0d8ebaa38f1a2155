"""The console in a real Chromium, and what is measured inside its pages by their own clock.

A time ends when the frame that shows the result is painted: after the next animation frame, a message is the first
task that runs when the frame is done. Inputs are the events that a browser dispatches for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

_CHROMIUM = "/usr/bin/chromium"
_SIZE = {"width": 1280, "height": 860}
_WITHIN = 120_000  # ms

# Runs before the page's own code: notes when the map was drawn in its final width and the figures were shown.
_WATCH = """
(() => {
  const painted = (then) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => then(performance.now());
    channel.port2.postMessage(0);
  });
  const bench = { painted, useful: null, draws: 0, drawn: () => {}, forgets: false };
  Object.defineProperty(window, "bench", { value: bench });
  const pen = CanvasRenderingContext2D.prototype;
  const put = pen.putImageData;  // all cells of the map are written at once
  pen.putImageData = function (...given) {
    put.apply(this, given);
    const canvas = this.canvas;
    if (!canvas.matches(".heat canvas")) return;
    bench.draws += 1;
    bench.drawn();
    const fits = canvas.clientWidth === canvas.parentElement.clientWidth;
    if (bench.useful === null && fits && document.querySelector(".figures")) {
      bench.useful = 0;
      painted((at) => { bench.useful = at; });
    }
  };
  // While `forgets` is set, no answer has a tag: the console reads, parses and draws as if everything had changed.
  const get = Headers.prototype.get;
  Headers.prototype.get = function (name) { return bench.forgets && name === "etag" ? null : get.call(this, name); };
})();
"""

_USEFUL = "() => new Promise((done) => { const look = () => bench.useful ? done(bench.useful) : requestAnimationFrame(look); look(); })"  # noqa: E501

# From an event until the frame is painted in which `shown` says something else.
_UNTIL_PAINTED = """
async ({ target, value, shown }) => {
  const text = () => [...document.querySelectorAll(shown)].map((one) => one.outerHTML).join();
  const frame = () => new Promise((done) => bench.painted(done));
  await frame();
  const before = text();
  const element = document.querySelector(target);
  if (!element) throw new Error("there is no " + target);
  const began = performance.now();
  if (value === null) element.click();
  else {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(element, value);
    element.dispatchEvent(new InputEvent("input", { bubbles: true }));
  }
  for (;;) {
    const at = await frame();
    if (text() !== before) return at - began;
    if (at - began > 30000) throw new Error(target + " changes nothing");
  }
}
"""

_REDRAW = """
async (target) => {
  await new Promise((done) => bench.painted(done));
  const element = document.querySelector(target);
  const drawn = new Promise((done) => { bench.drawn = done; });
  const began = performance.now();
  element.click();
  await drawn;
  return (await new Promise((done) => bench.painted(done))) - began;
}
"""

# The first item of the menu reads everything again; the map is drawn when its answer is there.
_REFRESH = """
async () => {
  const frame = () => new Promise((done) => bench.painted(done));
  const drawn = new Promise((done) => { bench.drawn = done; });
  document.querySelector('header button[aria-label="Refresh"]').click();
  await frame();
  document.querySelector("header .panel-menu button.item").click();
  await drawn;
  await frame();
}
"""


# What sorting, searching and reading rows costs without any console; and a frame in which nothing has changed.
_PLAIN = """
async (rows) => {
  const made = Array.from({ length: rows }, (_, n) => ({ name: `pod-${(n * 7919) % rows}`, use: (n * 31) % 101 }));
  const frame = () => new Promise((done) => bench.painted(done));
  const found = {};
  const time = async (what, work) => {
    await frame();
    const began = performance.now();
    work();
    await frame();
    found[what] = performance.now() - began;
  };
  const text = JSON.stringify(made);
  await time("a frame in which nothing happens", () => {});
  await time(`JSON.parse of ${rows} rows, ${Math.round(text.length / 1e5) / 10} MB`, () => JSON.parse(text));
  await time(`Array.sort of ${rows} names`, () => [...made].sort((a, b) => (a.name < b.name ? -1 : 1)));
  await time(`includes in ${rows} names`, () => made.filter((one) => one.name.includes("123")));
  return found;
}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, url: str) -> Iterator["Tab"]:
    """A page in a new profile with an empty cache; the console never refreshes by itself."""
    context = browser.new_context(viewport=_SIZE, locale="en-GB")  # type: ignore[arg-type]
    context.set_default_timeout(_WITHIN)
    context.add_init_script(_WATCH)
    context.add_init_script("localStorage.setItem('vgpuscope.refresh', '0')")
    try:
        page = context.new_page()
        page.goto(url, wait_until="commit")
        yield Tab(context, page)
    finally:
        context.close()


class Span(NamedTuple):
    """Seconds until the frame was painted, and seconds of CPU of the page's main thread."""

    wall: float
    cpu: float


class Tab:
    """One open page."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self._page = page
        self._tools = context.new_cdp_session(page)
        self._tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def useful(self) -> float:
        """Seconds from the start of the navigation until map and figures were painted."""
        return float(self._page.evaluate(_USEFUL)) / 1e3

    def _span(self, script: str, given: Any) -> Span:
        before = self._cpu()
        wall = float(self._page.evaluate(script, given)) / 1e3
        return Span(wall, self._cpu() - before)

    def _cpu(self) -> float:
        found = self._tools.send("Performance.getMetrics")["metrics"]
        return next(float(one["value"]) for one in found if one["name"] == "TaskDuration")

    def until_table(self) -> int:
        """Wait for the table; the number of its rows."""
        self._page.locator(".table-frame tbody tr.opens").first.wait_for()
        rows = self._page.locator(".table-frame table").get_attribute("aria-rowcount")
        return int(rows or 0) - 1

    def headings(self) -> list[str]:
        """A selector for the heading of each column."""
        columns = self._page.locator(".table-frame thead th").count()
        return [f".table-frame thead th:nth-child({place}) button" for place in range(1, columns + 1)]

    def chip(self, title: str) -> str:
        """A selector for the first choice of a filter, whose menu stays open."""
        self._page.locator(".toolbar .menu > button.chip", has_text=title).first.click()
        choice = ".toolbar .panel-menu fieldset input"
        self._page.locator(choice).first.wait_for()
        return choice

    def groups(self) -> tuple[str, str]:
        """Selectors for the buttons that group the map by model and by node."""
        return tuple(f'.segments[aria-label="Group by"] button:nth-child({at})' for at in (2, 1))  # type: ignore[return-value]

    def click(self, target: str, *, shown: str) -> Span:
        """From a click until something else is painted."""
        return self._span(_UNTIL_PAINTED, {"target": target, "value": None, "shown": shown})

    def type(self, target: str, text: str, *, shown: str) -> Span:
        """From an input until something else is painted."""
        return self._span(_UNTIL_PAINTED, {"target": target, "value": text, "shown": shown})

    def redraw(self, target: str) -> Span:
        """From a click until the map is painted again."""
        return self._span(_REDRAW, target)

    def first_frame(self) -> float:
        """Seconds from the start of the navigation until a frame was painted."""
        return float(self._page.evaluate("() => new Promise((done) => bench.painted(done))")) / 1e3

    def plain(self, rows: int) -> dict[str, float]:
        """Seconds of what the language itself needs for so many rows."""
        found: dict[str, float] = self._page.evaluate(_PLAIN, rows)
        return {what: ms / 1e3 for what, ms in found.items()}

    def forget(self) -> None:
        """From now on, the console takes every answer for a new one."""
        self._page.evaluate("() => { bench.forgets = true; }")

    def rest(self) -> None:
        """Wait until no request is under way."""
        self._page.wait_for_load_state("networkidle")

    def refresh(self) -> list[str]:
        """The console's own refresh, until every answer is there; returns the paths of its requests."""
        asked: list[Request] = []

        def note(one: Request) -> None:
            asked.append(one)

        self._page.on("request", note)
        self._page.evaluate(_REFRESH)
        self._page.remove_listener("request", note)
        return ["/api/" + one.url.partition("/api/")[2] for one in asked]

    def heap(self) -> int:
        """Bytes of the JavaScript heap, after a garbage collection."""
        self._tools.send("HeapProfiler.collectGarbage")
        return int(self._tools.send("Runtime.getHeapUsage")["usedSize"])
