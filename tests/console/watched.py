"""A page of the console of which every error of the browser and every failed request is kept."""

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import ConsoleMessage, Error, Locator, Page, Response, Route, expect

from tests.paths import REPOSITORY

AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"
# Finds what is serious for people who use a keyboard or a screen reader, or see little.
_AXE = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
    .filter((one) => one.impact === 'serious' || one.impact === 'critical')
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`)"""

# On a busy machine a page takes longer for its new width; what is too wide after five seconds stays so.
_WIDER = """() => new Promise((done) => {
    const until = performance.now() + 5000;
    const look = () => {
        const wider = document.documentElement.scrollWidth - document.documentElement.clientWidth;
        if (wider <= 0 || performance.now() > until) done(wider); else setTimeout(look, 100);
    };
    requestAnimationFrame(() => setTimeout(look, 100));
})"""


class Watched:
    """A page, with what failed on it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.failures: list[str] = []
        self.expected: list[str] = []  # regular expressions of failures that belong to a test
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._failed(f"error: {error}"))
        page.on("response", self._on_response)

    def go(self, path: str, *, settled: bool = True) -> None:
        self.page.goto(self.base + path)
        if settled:
            self.settled()

    def settled(self) -> None:
        """Until a page is shown, and nothing on it is loading."""
        self.page.wait_for_selector("main h1, main .empty")
        expect(self.page.locator(".skeleton")).to_have_count(0, timeout=60_000)

    def expect(self, *patterns: str) -> None:
        self.expected += patterns

    def main(self) -> Locator:
        return self.page.locator("main")

    def column(self, number: int) -> list[str]:
        """The texts of one column of the first table, of the rows that are drawn."""
        cells = self.page.locator(f"main .table-frame tbody tr[aria-rowindex] td:nth-child({number})")
        return [text.strip() for text in cells.all_inner_texts()]

    def copied(self) -> str:
        """What is in the clipboard; a click is answered before the text is there."""
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def count(self) -> str:
        return self.page.locator("main .count").first.inner_text()

    def axe(self) -> list[str]:
        """Serious or critical findings of axe."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text())  # not as a <script>: the policy of the page allows none but its own
        found: list[str] = self.page.evaluate(_AXE)
        return found

    def wider_than_window(self) -> int:
        """By how many pixels the page is wider than the window, once charts and tables have taken their new width."""
        width: int = self.page.evaluate(_WIDER)
        return width

    def changed(self, path: str, change: Callable[[Any], Any]) -> None:
        """From now on, answers of the API under this path are changed on their way to the browser."""

        def handle(route: Route) -> None:
            with contextlib.suppress(Error):  # the page was left while the answer was on its way
                body = route.fetch().json()
                route.fulfill(status=200, content_type="application/json", body=json.dumps(change(body) or body))

        self.page.route(re.compile(rf"/api/v1/{path}(\?|$)"), handle)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._failed(f"console: {message.text} {message.location.get('url', '')}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._failed(f"HTTP {response.status} {response.url}")

    def _failed(self, text: str) -> None:
        if not any(re.search(pattern, text) for pattern in self.expected):
            self.failures.append(text)
