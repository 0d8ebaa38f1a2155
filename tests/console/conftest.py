"""A real Chromium, and the console of a real analyzer on the demo."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.console.processes import Demo, demo
from tests.console.watched import Watched
from tests.needed import needed

# The shell has the same engine without the browser's own windows, which took a quarter of a core.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
Opened = Callable[..., Watched]
expect.set_options(timeout=30_000)  # milliseconds; Playwright's own five seconds are too few on a busy machine


@pytest.fixture(scope="package")
def fleet() -> Iterator[Demo]:
    """One demo for all tests of the console."""
    built = files("vgpuscope.http").joinpath("assets", "console", "index.html").is_file()
    needed("the console", package="nodejs; then run `make console`", there=built)
    with demo() as found:
        yield found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Not for the session: while it is open, an event loop runs here, and other tests could start none."""
    needed("chromium", package="chromium-headless-shell", there=CHROMIUM is not None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser, fleet: Demo) -> Iterator[Opened]:
    """Opens a path of the console. At the end nothing may have failed that a test did not expect."""
    contexts: list[BrowserContext] = []
    pages: list[Watched] = []

    def open_page(
        path: str = "",
        *,
        at: str | None = None,
        language: str = "en",
        theme: str = "light",
        width: int = 1280,
        refresh: int = 0,
        before: Callable[[Page], object] | None = None,
        settled: bool = True,
        expected: Sequence[str] = (),  # regular expressions of failures that belong to the test
    ) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        # only once: a test may choose another language and load the page again
        context.add_init_script(
            f"if (!localStorage.getItem('vgpuscope.test')) {{ localStorage.setItem('vgpuscope.test', '1');"
            f"localStorage.setItem('vgpuscope.language', '{language}');"
            f"localStorage.setItem('vgpuscope.refresh', '{refresh}'); }}"
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        watched = Watched(page, at or fleet.console)
        watched.expect(*expected)
        pages.append(watched)
        if before:
            before(page)
        watched.go(path, settled=settled)
        return watched

    yield open_page
    for context in contexts:
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")  # an answer may be on its way through a route
        context.close()
    for watched in pages:
        assert watched.failures == []
