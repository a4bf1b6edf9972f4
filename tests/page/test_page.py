"""The admin page in a real browser: each thing that can happen to a session has its picture and its sentence."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from proxy.engine.findings import REASONS
from tests.page.answers import line, session_id
from tests.page.conftest import Scheme, Serve
from tests.page.timelines import TIMELINES, Json, climb, connection, judged

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.ops, pytest.mark.asyncio(loop_scope="module")]

ODD_TIMELINES = 60
ASKED = "The client asked for what follows"
HEADLINES = {
    "healthy": f"Healthy: the client asked{ASKED[16:]} 5 and got exactly what it had missed.",
    "fork": f"{ASKED} 5 and got 1: the server had begun another log.",
    "diverged": f"{ASKED} 5 and got another 6: the same id with other content, so this is another log.",
    "large": f"{ASKED} 4821 and got 1: the server had begun another log.",
    "gap": f"{ASKED} 5 and got 8: what lies between never came.",
    "jump": f"{ASKED} 5 and got 9: what lies between never came.",
    "nothing": f"{ASKED} 5 and got nothing, although the server had sent more before.",
    "rewound": "The same log goes on, but the server began before 5: the client got events twice.",
    "crossed": f"{ASKED} 5 and got 12, an event of another stream of this session.",
    "refused": "The server said no to the reconnect (404): out loud, so the client knows that it must start anew.",
    "idle": "Calm: nothing was waiting for the client, and nothing has come since.",
    "cut": f"{ASKED} 5 and got 1: the server had begun another log.",
    "calm": "Calm: no client has reconnected in this session, so there is nothing to judge.",
    "empty": "Calm: no client has reconnected in this session, so there is nothing to judge.",
    "opaque": f"Suspected: {ASKED} 0a6f2d6e-9…d5f1b7c11 and got another 77aa2f0d-9…f2d6e7c11: the same id with other "
    "content, so this is another log.",
    "hostile": f"{ASKED} 5 and got <i>1</i>: the server had begun another log.",
    "busy": f"{ASKED} 13 and got 1: the server had begun another log.",
}
CALLOUTS = {
    "healthy": "RESUMED: the same log goes on",
    "fork": "FORK: another log",
    "diverged": "FORK: another log",
    "gap": "GAP: a hole in the log",
    "rewound": "REWOUND: events came twice",
    "crossed": "CROSSED: events of another log",
    "refused": "REFUSED: said no: 404",
    "idle": "RESUMED: the same log goes on",
}
MARKS = {  # diamonds of another log, hatched losses, triangles that came twice, replayed dots, unread dots
    "healthy": (0, 0, 0, 2, 2),
    "fork": (7, 1, 0, 0, 2),
    "diverged": (5, 1, 0, 0, 2),
    "gap": (0, 1, 0, 0, 2),
    "jump": (0, 1, 0, 0, 0),
    "nothing": (0, 1, 0, 0, 2),
    "rewound": (0, 0, 3, 2, 2),
    "crossed": (3, 0, 0, 0, 2),
    "refused": (0, 0, 0, 0, 2),
    "idle": (0, 0, 0, 0, 0),
    "cut": (1, 1, 0, 0, 2),
    "calm": (0, 0, 0, 0, 0),
}
LOST = {
    **dict.fromkeys(("fork", "diverged", "cut", "hostile"), "6 and 7 are lost"),
    "large": "4822 to 4830 are lost (9 events)",
    "gap": "6 and 7 are lost",
    "jump": "6, 7 and 8 are lost",
    "nothing": "6 and 7 are lost",
    "opaque": "#6 and #7 are lost",
}
SAID = {  # in the colour of the verdict, inside the picture
    "refused": "said no: 404",
    "cut": "ANOTHER LOG 1",
    "diverged": "ANOTHER LOG 6′ 7′ 8′ 9′ 10′",
    "crossed": "EVENTS OF ANOTHER LOG 12 13 14",
    "gap": "",
    "healthy": "",
}
COUNT_MARKS = """() => ['.alien', 'rect.lost', 'path.twice', '.replay', '.unread']
  .map(kind => document.querySelectorAll(`#picture ${kind}`).length)"""
TEXTS = "kind => [...document.querySelectorAll(`#picture text${kind}`)].map(text => text.textContent)"


def place(name: str) -> str:
    """The link to the session of that name."""
    return f"#/session/{session_id(name)}?upstream=tools"


async def visit(page: Page, name: str) -> None:
    """Go to the session of that name, and return once its picture is there."""
    await page.evaluate("hash => { location.hash = hash; }", place(name))
    await page.locator("#session-title", has_text=session_id(name)).wait_for()
    await page.locator("#headline").wait_for()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360)])
async def test_each_session_has_its_sentence(
    serve: Serve, tmp_path: Path, scheme: Scheme, width: int
) -> None:
    """In light, dark and narrow: the sentence is right and nothing overflows; the pictures are kept."""
    page = await (await serve()).open(scheme=scheme, width=width)
    found = {}
    for name in TIMELINES:
        await visit(page, name)
        found[name] = await page.locator("#headline").text_content()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        await page.screenshot(path=tmp_path / f"{name}-{scheme}-{width}.png", full_page=True)
    assert found == HEADLINES


async def test_the_picture_draws_what_happened(serve: Serve) -> None:
    """The verdict stands at the mark; losses are named; every kind of event is there exactly where it happened."""
    page = await (await serve()).open()
    marks, callouts, lost, said = {}, {}, {}, {}
    for name in TIMELINES:
        await visit(page, name)
        marks[name] = tuple(await page.evaluate(COUNT_MARKS))
        callouts[name] = " ".join(await page.evaluate(TEXTS, ".plain.tone"))
        lost[name] = " ".join(await page.evaluate(TEXTS, ".lost-name"))
        said[name] = " ".join(await page.evaluate(TEXTS, ".tone:not(.plain)"))
    assert {name: marks[name] for name in MARKS} == MARKS
    assert {name: callouts[name] for name in CALLOUTS} == CALLOUTS
    assert {name: words for name, words in lost.items() if words} == LOST
    assert {name: said[name] for name in SAID} == SAID


async def test_a_fork_says_what_follows_and_what_to_do(serve: Serve) -> None:
    """The consequences, the hint, the axis with the real ids, the replicas and the commands."""
    page = await (await serve()).open(place("fork"))
    assert await page.locator("#consequences").text_content() == (
        "6 and 7 are lost: this client will never get them. To the client it looks like success. 1 request still "
        "waited for an answer. The client was away for 1 s and came back to another replica: pod-b instead of pod-a. "
        "forkwatch only watched; in enforce it would have cut the stream."
    )
    assert (await page.locator(".hint").text_content() or "").startswith(
        "What to do: The replicas do not share"
    )
    assert await page.evaluate(TEXTS, ".strong") == ["get-1", "L 5", "H 7", "got 1"]
    texts: list[str] = await page.evaluate(TEXTS, ".plain")
    assert texts[-2:] == ["pod-a · client closed", "pod-b · open"]
    session = session_id("fork")
    assert await page.locator("code").all_text_contents() == [
        f"forkwatch session {session} --upstream tools --admin 127.0.0.1:9465",
        "forkwatch policy enforce --upstream tools --ttl 1h --admin 127.0.0.1:9465",
        "/",
        "Enter",
        "Esc",
    ]


async def test_another_reconnect_can_be_chosen(serve: Serve) -> None:
    """The worst is explained first; a button explains another, and its link can be shared."""
    tabs = await serve()
    page = await tabs.open(place("busy"))
    buttons = page.locator(".choice button")
    pressed = await buttons.evaluate_all("all => all.map(each => each.getAttribute('aria-pressed'))")
    assert pressed == ["false", "false", "true", "false", "false"]
    await buttons.nth(1).click()
    healthy = "Healthy: nothing was waiting for the client, and the same log goes on."
    await page.locator("#headline", has_text=healthy).wait_for()
    shared = await tabs.open(page.url.removeprefix(tabs.url))
    assert await shared.locator("#headline").text_content() == healthy


async def test_more_streams_on_demand(serve: Serve) -> None:
    """The stream that is explained comes first, four others follow, the rest on request."""
    page = await (await serve()).open(place("busy"))
    lanes = page.locator("#picture .frame")
    await lanes.first.wait_for()
    assert await lanes.count() == 5
    await page.get_by_role("button", name="Show 3 more streams").click()
    assert await lanes.count() == 8


async def test_what_peers_choose_stays_text(serve: Serve) -> None:
    """Markup in ids, replicas and hints is shown, not made."""
    tabs = await serve()
    page = await tabs.open(place("hostile"))
    assert await page.locator(".hint").text_content() == "What to do: <img src=x>"
    tabs.api.emit(line(TIMELINES["hostile"][1]["judged"], session_id("hostile"), stream="<s>x</s>"))
    await page.goto(tabs.url + "#/")
    row = page.locator("#feed-rows li")
    assert "got <i>1</i>" in (await row.text_content() or "")
    found: list[Any] = await page.evaluate(
        "[...document.querySelectorAll('main :is(b, i, s, u, img):not(.counts b)')]"
    )
    assert found == []


async def test_a_raw_id_does_not_stay_in_the_address(serve: Serve) -> None:
    """A raw session id is a credential: the address gets the hashed one."""
    tabs = await serve()
    page = await tabs.open("#/session/fork")
    await page.locator("#headline").wait_for()
    assert page.url == f"{tabs.url}#/session/{session_id('fork')}?upstream=tools"


def odd_timeline(seed: int) -> list[Json]:
    """A timeline as no healthy session has it: overlaps, refusals between, single points, unknown positions."""
    dice = random.Random(seed)
    made: list[Json] = []
    for place in range(dice.randint(1, 7)):
        opened, closed = (
            dice.choice([0.0, place, place * 3.5, 9000.0 * place]),
            dice.choice([None, 0.0, 2.0, 7.0, 8e4]),
        )
        ids = [dice.randint(0, dice.choice([9, 9, 10**6])) for _ in range(dice.choice([0, 0, 1, 3, 32]))]
        points = climb(opened + dice.choice([0, 0.1]), ids, dice.choice([0, 0.001, 2, 300]))
        verdict, reasons = dice.choice(list(REASONS.items()))
        maybe = dice.choice([None, 0, 3, 5, 10**6])
        verdict_ = judged(
            opened + dice.choice([0, 0.1]), str(verdict), str(dice.choice(list(reasons))), cursor="5", got=None,
            high=dice.choice([None, "7", "3"]), away_s=dice.choice([None, 0.0, 5e5]), lost=dice.choice([0, 2, 10**5]),
            cursor_position=dice.choice([None, 5]), high_position=maybe, got_position=dice.choice([None, 1, 8, 10**7]),
            replica=dice.choice([None, "pod-a"]), duplicated=dice.choice([0, 2]),
        )  # fmt: skip
        made.append(
            connection(
                dice.choice(["get", "post", "resume"]), opened, None if closed is None else opened + closed, points,
                stream=dice.choice(["get-1", "get-1", "post-2"]), epoch=dice.randint(1, 3), replica=None,
                judged=dice.choice([None, verdict_]),
            )
        )  # fmt: skip
    return made


async def test_no_timeline_breaks_the_picture(serve: Serve) -> None:
    """Whatever was recorded, the picture has whole numbers to draw and the browser nothing to complain of."""
    tabs = await serve()
    tabs.api.timelines = {f"odd {seed}": odd_timeline(seed) for seed in range(ODD_TIMELINES)}
    page = await tabs.open()
    for name in tabs.api.timelines:
        await visit(page, name)
        drawn = await page.locator("#picture").inner_html()
        assert not [word for word in ("NaN", "undefined", "Infinity", "null") if word in drawn], name
