"""The admin page of a real proxy that saw a fork: its own policy lets it run, and it shows what happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.forkwatch_process import Counters, Forkwatch, free_port
from tests.page.conftest import Tabs
from tests.scenarios.exchange import ScriptedUpstream
from tests.scenarios.frames import event
from tests.scenarios.lab import Lab

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.ops, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def forked(browser: Browser, tmp_path: Path) -> AsyncIterator[Tabs]:
    """The page of a proxy with one session, which was resumed into another log while 6 and 7 were outstanding."""
    upstream, port = ScriptedUpstream(), free_port()
    entry = {"name": "tools", "url": f"http://127.0.0.1:{await upstream.start()}"}
    log = {"format": "json", "session_ids": "hash"}
    proxy = Forkwatch([entry], tmp_path, admin=f"127.0.0.1:{port}", log=log).start()
    lab = Lab(proxy, upstream, await Counters.since_now(proxy))
    tabs = Tabs(browser, f"http://127.0.0.1:{port}/")
    try:
        await lab.initialize()
        await lab.relay(*(event(n) for n in range(1, 8)))
        await lab.resume("5", event(1, "other 1"), event(2, "other 2"))
        await lab.judged("fork", "log_restarted", "proven")
        yield tabs
        await tabs.close()
        await lab.close()
    finally:
        proxy.stop()
        upstream.server.close()
    assert tabs.problems == []


async def test_from_the_verdict_to_the_picture(forked: Tabs) -> None:
    """The feed shows the fork, its link opens the session, and the picture shows both logs."""
    page = await forked.open()
    row = page.locator("#feed-rows li")
    await row.wait_for()
    assert "The client asked for what follows 5 and got 1: the server had begun" in (
        await row.text_content() or ""
    )
    await row.get_by_role("link").click()
    await page.locator("#picture svg").wait_for()
    assert await page.locator("#headline").text_content() == (
        "The client asked for what follows 5 and got 1: the server had begun another log."
    )
    drawn = [
        await page.locator(f"#picture {kind}").count() for kind in (".dot", ".unread", ".alien", "rect.lost")
    ]
    assert drawn == [7, 2, 2, 1]
    assert await page.locator("#picture .lost-name").text_content() == "6 and 7 are lost"


async def test_the_session_is_listed(forked: Tabs) -> None:
    """The list has the session under its worst verdict, and none under another."""
    page = await forked.open("#/sessions?verdict=fork&upstream=tools")
    await page.locator("#sessions-rows tr").wait_for()
    assert (await page.locator("#sessions-rows td").all_text_contents())[1:4] == [
        "fork log_restarted",
        "active",
        "tools",
    ]
    await page.locator("#sessions-verdict").select_option("gap")
    await page.locator("#sessions-empty", has_text="No session matches.").wait_for()
