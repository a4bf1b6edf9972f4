"""The admin page in use: keyboard, feed, paging, contrast, and everything that can be missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.page.answers import line, session_id
from tests.page.conftest import FAILED_LOAD, Scheme, Serve, Tabs
from tests.page.fixture_api import AdminFixture
from tests.page.timelines import TIMELINES

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.ops, pytest.mark.asyncio(loop_scope="module")]

FEED_ROWS = 500
PAGE_ROWS = 50
AA = 4.5
CONTRAST = Path(__file__).with_name("contrast.js").read_text()
FOCUSED = "document.activeElement.id || document.activeElement.textContent"


def alarm(name: str = "fork", **more: Any) -> dict[str, Any]:
    """The log line of the last resume of that session."""
    return line(TIMELINES[name][-1]["judged"], session_id(name), **more)


async def count(page: Page, selector: str, wanted: int) -> None:
    """Return once that many elements are there."""
    from playwright.async_api import expect

    await expect(page.locator(selector)).to_have_count(wanted)


async def live(tabs: Tabs, rows: int, **more: Any) -> Page:
    """A tab whose feed shows that many rows."""
    page = await tabs.open(**more)
    await count(page, "#feed-rows li", rows)
    return page


async def test_the_keyboard_alone_reaches_a_picture(serve: Serve) -> None:
    """Tab to a session, Enter opens it, Escape comes back to its row, `/` goes to the filter."""
    tabs = await serve()
    page = await tabs.open("#/sessions")
    wanted = session_id("fork")
    await page.get_by_role("link", name=wanted).wait_for()
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate(FOCUSED) == wanted:
            break
    assert await page.evaluate(FOCUSED) == wanted
    assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    await page.keyboard.press("Enter")
    await page.locator("#picture svg").wait_for()
    assert await page.evaluate(FOCUSED) == "session-title"
    await page.keyboard.press("Escape")
    await page.locator("#view-sessions").wait_for()
    assert await page.evaluate(FOCUSED) == wanted
    await page.keyboard.press("/")
    assert await page.evaluate(FOCUSED) == "sessions-verdict"


async def test_ten_thousand_sessions_are_paged(serve: Serve) -> None:
    """Fifty rows at most, within a second, and only the page that is shown is ever asked for."""
    tabs = await serve(AdminFixture(filler=10_000))
    page = await tabs.open("#/sessions")
    await page.locator("#sessions-rows tr").first.wait_for()
    assert await page.evaluate("performance.now()") < 1000
    assert await page.locator("#sessions-rows tr").count() == PAGE_ROWS
    first = await page.locator("#sessions-rows a").first.text_content() or ""
    await page.get_by_role("link", name="Older sessions").click()
    await count(page, f"#sessions-rows a >> text={first}", 0)
    await count(page, "#sessions-rows tr", PAGE_ROWS)
    assert page.url.endswith("#/sessions?after=50")
    asked = {each for each in tabs.api.requests if each.startswith("/api/v1/sessions")}
    assert asked == {"/api/v1/sessions?limit=50", "/api/v1/sessions?limit=50&after=50"}
    await page.get_by_role("link", name="Newest sessions").click()
    await page.locator("#sessions-rows a", has_text=first).wait_for()


async def test_sessions_are_filtered_by_the_address(serve: Serve) -> None:
    """A shared link filters, and a filter makes a link."""
    tabs = await serve()
    page = await tabs.open("#/sessions?verdict=gap")
    await count(page, "#sessions-rows tr", 3)
    await page.locator("#sessions-verdict").select_option("crossed")
    await count(page, "#sessions-rows tr", 1)
    assert page.url == f"{tabs.url}#/sessions?verdict=crossed"


async def test_the_feed_is_live_and_bounded(serve: Serve) -> None:
    """Newest first, 500 rows at most, and an alarm outlives a flood of good news."""
    tabs = await serve()
    tabs.api.emit(alarm())
    page = await live(tabs, 1)
    for number in range(2500):
        tabs.api.emit(alarm("healthy", stream=f"post-{number}"))
    await page.locator("#feed-rows li", has_text="post-2499").wait_for()
    rows = page.locator("#feed-rows li")
    assert await rows.count() == FEED_ROWS
    assert "post-2499" in (await rows.first.text_content() or "")
    await page.locator("#feed-verdict").select_option("fork")
    await count(page, "#feed-rows li", 1)
    assert session_id("fork") in (await rows.first.text_content() or "")


async def test_the_feed_goes_on_where_it_was(serve: Serve) -> None:
    """A broken feed comes back with Last-Event-ID and shows nothing twice."""
    tabs = await serve()
    tabs.api.emit(alarm())
    page = await live(tabs, 1)
    tabs.api.end_feeds()
    tabs.api.emit(alarm("gap"))
    await count(page, "#feed-rows li", 2)
    assert tabs.api.last_event_ids == [None, "b1-1"]


async def test_the_feed_says_when_forkwatch_was_started_anew(serve: Serve) -> None:
    """Another boot in the feed's ids is another log: the page says so of its own feed."""
    tabs = await serve()
    tabs.api.emit(alarm())
    page = await live(tabs, 1)
    tabs.api.emit(alarm("gap"), boot="b2")
    await page.locator("#feed-rows li", has_text="forkwatch was started anew here").wait_for()
    assert await page.locator("#feed-rows li").count() == 3


async def test_a_paused_feed_waits_and_focus_stays(serve: Serve) -> None:
    """New verdicts take no focus; a paused feed counts them and shows them afterwards."""
    tabs = await serve()
    tabs.api.emit(alarm())
    page = await live(tabs, 1)
    await page.locator("#feed-rows a").focus()
    tabs.api.emit(alarm("gap"))
    await count(page, "#feed-rows li", 2)
    assert await page.evaluate(FOCUSED) == session_id("fork")
    await page.locator("#pause").click()
    tabs.api.emit(alarm("crossed"))
    await page.locator("#pause", has_text="Go on (1 new)").wait_for()
    assert await page.locator("#feed-rows li").count() == 2
    await page.locator("#pause").click()
    await count(page, "#feed-rows li", 3)


async def test_screen_readers_hear_of_alarms(serve: Serve) -> None:
    """A polite region says what came, once for several."""
    tabs = await serve()
    tabs.api.emit(alarm("healthy"))
    page = await live(tabs, 1)
    assert await page.locator("#live").text_content() == ""
    tabs.api.emit(alarm())
    await page.locator("#live", has_text="1 alarm: fork on tools").wait_for(state="attached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_contrast(serve: Serve, scheme: Scheme) -> None:
    """Every text has the contrast that WCAG AA asks for."""
    tabs = await serve()
    for each in TIMELINES.values():
        tabs.api.emit(line(each[-1]["judged"], "s_x") if each and each[-1]["judged"] else alarm())
    page = await live(tabs, len(TIMELINES), scheme=scheme)
    sessions = {f"#/session/{session_id(name)}": "#picture svg" for name in TIMELINES if TIMELINES[name]}
    for hash_, shown in {"#/": "#feed-rows li", "#/sessions": "#sessions-rows tr", **sessions}.items():
        await page.goto(tabs.url + hash_)
        await page.locator(shown).first.wait_for()
        found = await page.evaluate(CONTRAST)
        assert len(found) > 10
        assert [each for each in found if each[0] < AA] == [], hash_


async def test_a_token_is_asked_for_and_kept_in_memory(serve: Serve) -> None:
    """A wrong token is refused in words, the right one shows everything, none is stored."""
    tabs = await serve(AdminFixture(token="right"))
    tabs.forgiven = FAILED_LOAD
    tabs.api.emit(alarm())
    page = await tabs.open()
    await page.locator("#token-input").fill("wrong")
    await page.keyboard.press("Enter")
    await page.locator("#token-text", has_text="That token was refused").wait_for()
    await page.locator("#token-input").fill("right")
    await page.keyboard.press("Enter")
    await page.locator("#feed-rows li").wait_for()
    await page.locator("#upstreams article").first.wait_for()
    assert await page.locator("#token").is_hidden()
    assert page.url == tabs.url
    assert await page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


async def test_an_interface_that_went_away(serve: Serve) -> None:
    """The page says that nobody answers, keeps what it shows, and goes on once somebody does."""
    tabs = await serve()
    tabs.forgiven = FAILED_LOAD
    page = await tabs.open(f"#/session/{session_id('fork')}")
    await page.locator("#headline").wait_for()
    await tabs.api.stop()
    await page.locator("#banner-text", has_text="does not answer").wait_for()
    assert await page.locator("#headline").is_visible()
    await tabs.api.start(tabs.api.port)
    await page.get_by_role("button", name="Try now").click()
    await page.locator("#banner").wait_for(state="hidden")


async def test_an_unknown_session(serve: Serve) -> None:
    """A session that is not known any more says why that may be."""
    tabs = await serve()
    tabs.forgiven = FAILED_LOAD
    page = await tabs.open("#/session/s_000000000000?upstream=tools")
    await page.locator(".headline", has_text="forkwatch does not know this session.").wait_for()
    assert "expired, was evicted" in (await page.locator("#session-body").text_content() or "")


async def test_nothing_has_happened_yet(serve: Serve) -> None:
    """Empty views say what to do."""
    tabs = await serve(AdminFixture(empty=True))
    page = await tabs.open()
    await page.locator("#feed-empty", has_text="No resume has been judged yet.").wait_for()
    await page.locator("#feed-empty", has_text="Clients connect to http://127.0.0.1:8080.").wait_for()
    await page.locator("#nav-sessions").click()
    await page.locator(
        "#sessions-empty", has_text="No sessions yet. Point an MCP client at http://127.0.0.1:8080"
    ).wait_for()


async def test_a_switched_mode_is_said(serve: Serve) -> None:
    """An upstream whose mode was switched says until when, and what comes then."""
    page = await (await serve()).open()
    card = page.locator("#upstreams article").first
    assert await card.locator(".line").text_content() == "toolsobserveuntil 00:00:00, then enforce"
    await card.get_by_role("link", name="5 forks").click()
    await page.locator("#view-sessions").wait_for()
    assert page.url.endswith("#/sessions?verdict=fork&upstream=tools")
