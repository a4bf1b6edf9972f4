"""A real Chromium for the page's tests: one browser for a module, a fresh profile for each tab."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import pytest
import pytest_asyncio

from tests.page.fixture_api import AdminFixture

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

Scheme = Literal["light", "dark"]
# Chromium as root needs --no-sandbox; the rest keeps it from asking anything of the world.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FAILED_LOAD = "Failed to load resource"
"""What Chromium says in the console of every answer of 400 and more."""


class Tabs:
    """Opens pages of one server and keeps what went wrong on them."""

    def __init__(self, browser: Browser, url: str, api: AdminFixture | None = None) -> None:
        self._browser, self.url, self._api = browser, url, api
        self.problems: list[str] = []
        self.forgiven: str | None = None
        """Console messages that begin so are expected here."""

    @property
    def api(self) -> AdminFixture:
        """The server behind the page, where it is the fixture."""
        assert self._api is not None
        return self._api

    async def open(self, hash_: str = "", *, scheme: Scheme = "light", width: int = 1200) -> Page:
        """A tab at that place of the page."""
        context = await self._browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme
        )
        page = await context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("request", lambda request: self._saw(request.url))
        await page.goto(self.url + hash_)
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not (self.forgiven and text.startswith(self.forgiven)):
            self.problems.append(f"{kind}: {text}")

    def _saw(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.problems.append(f"asked outside: {url}")

    async def close(self) -> None:
        """Close every tab."""
        for context in self._browser.contexts:
            await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium without a window; skips where it or its driver is missing."""
    driver = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("chromium is not installed: apt-get install chromium, or make ops as root")
    async with driver.async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        await running.close()


Serve = Callable[..., Awaitable[Tabs]]


@pytest_asyncio.fixture(loop_scope="module")
async def serve(browser: Browser) -> AsyncIterator[Serve]:
    """Starts a fixture server; afterwards no tab may have complained or asked anything outside."""
    served: list[Tabs] = []

    async def start(api: AdminFixture | None = None) -> Tabs:
        api = api or AdminFixture()
        tabs = Tabs(browser, await api.start(), api)
        served.append(tabs)
        return tabs

    yield start
    for tabs in served:
        await tabs.close()
        await tabs.api.stop()
    assert [problem for tabs in served for problem in tabs.problems] == []
