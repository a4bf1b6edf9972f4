"""The picture of a resume in characters, and the sentence that goes with it: whole blocks of text."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.picture import Resume, picture
from proxy.cli.sentences import sentence
from proxy.cli.session import resumes
from proxy.cli.tables import Screen
from proxy.engine.findings import REASONS

START = 1764424980.0
"""14:03:00 UTC."""
BACK = START + 8
"""When the client is back."""
SCREEN = Screen(72)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def connection(kind: str, points: list[list[float]], **other: Any) -> dict[str, Any]:
    """A connection as the admin interface describes it."""
    return {
        "stream": "get-1",
        "kind": kind,
        "opened_at": points[0][0] if points else BACK,
        "closed_at": None,
        "cause": None,
        "events": len(points),
        "epoch": 1,
        "replica": None,
        "points": points,
        "judged": None,
    } | other


def judged(verdict: str, reason: str, **other: Any) -> dict[str, Any]:
    """A judgement about a client that has 5 of 7 events, which the proxy relayed."""
    return {
        "at": BACK,
        "verdict": verdict,
        "reason": reason,
        "certainty": "proven",
        "cursor": "5",
        "high": "7",
        "first_id": None,
        "got": None,
        "outstanding": 2,
        "lost": 0,
        "duplicated": 0,
        "in_flight": 0,
        "away_s": 1.003,
        "replica": None,
        "previous_replica": None,
        "action": "pass",
        "would_cut": False,
        "took_ms": 0.4,
        "cursor_position": 5,
        "high_position": 7,
        "got_position": None,
        "hint": None,
    } | other


def got(number: int) -> dict[str, Any]:
    """The part of a judgement that names the deciding frame."""
    return {"first_id": str(number), "got": str(number), "got_position": number}


SEVEN = connection("get", [[START + n, n] for n in range(1, 8)], replica="pod-a")
OLD = connection("get", [[START + n, 4800 + n] for n in range(1, 31)])
FAR = {
    "cursor": "4821",
    "cursor_position": 4821,
    "high": "4830",
    "high_position": 4830,
    "outstanding": 9,
    "lost": 9,
}
UP_TO_DATE = {"cursor": "7", "cursor_position": 7, "outstanding": 0}
UNKNOWN = {"high": None, "high_position": None, "outstanding": 0, "away_s": None}

CASES: dict[str, tuple[dict[str, Any] | None, list[list[float]], dict[str, Any], str]] = {
    "healthy": (
        SEVEN,
        [[BACK, 6], [BACK + 0.1, 7], [BACK + 2, 8]],
        judged("resumed", "replayed", **got(7), replica="pod-a"),
        """
     pod-a                1.0 s away ║ pod-a
    │                                ║                              ●
H 7 │                              ○ ║░░●░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
    │                         ○      ║░●░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
    │               ○                ║
    │           ○                    ║
    │      ○                         ║
    │ ○                              ║
    └────────────────────────────────╨────────────────────────────────
      14:03:01               14:03:07  14:03:08               14:03:10
      ○ before  ● came after  ░ due
""",
    ),
    "fork by restart": (
        SEVEN,
        [[BACK, 1], [BACK + 1, 2], [BACK + 2, 3]],
        judged("fork", "log_restarted", **got(1), lost=2, replica="pod-b"),
        """
       pod-a               1.0 s away ║ pod-b
  H 7 │                             ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
      │                        ○      ║░░░░░░░░░░ 2 lost ░░░░░░░░░░░░░
  L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
      │               ○               ║
      │          ○                    ║                             x
      │      ○                        ║               x
got 1 │ ○                             ║ x
      └───────────────────────────────╨───────────────────────────────
        14:03:01              14:03:07  14:03:08              14:03:10
        ○ before  x of another log  ░ due
""",
    ),
    "fork by restart, far away": (
        OLD,
        [[BACK + 30, 1], [BACK + 31, 2], [BACK + 39, 12]],
        judged("fork", "log_restarted", **got(1), **FAR, at=BACK + 30),
        """
                           1.0 s away ║
H 4830 │                          ○○○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
       │                       ○○○    ║░░░░░░░░░░ 9 lost ░░░░░░░░░░░░
       │                     ○○       ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
L 4821 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○○○○┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
       │             ○○○○             ║
       │         ○○○○                 ║
       │      ○○○                     ║
       │  ○○○○                        ║
       │ ○                            ║
       ⋮                              ║
       │                              ║                            x
       │                              ║
       │                              ║
       │                              ║    x
 got 1 │                              ║ x
       └──────────────────────────────╨──────────────────────────────
         14:03:01             14:03:30  14:03:38             14:03:47
         ○ before  x of another log  ░ due
""",
    ),
    "content_diverged": (
        SEVEN,
        [[BACK, 6], [BACK + 1, 7], [BACK + 2, 8]],
        judged("fork", "content_diverged", **got(7), at=BACK + 1, lost=1),
        """
         pod-a              1.0 s away ║
        │                              ║                            x
H=got 7 │                            ○ ║░░░░░░░░░░░░░░░x░░░░░░░░░░░░░░
        │                       ○      ║░●░░░░░░░░ 1 lost ░░░░░░░░░░░░
    L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
        │               ○              ║
        │          ○                   ║
        │     ○                        ║
        │ ○                            ║
        └──────────────────────────────╨──────────────────────────────
          14:03:01             14:03:07  14:03:08             14:03:10
          ○ before  ● came after  x of another log  ░ due
""",
    ),
    "gap": (
        SEVEN,
        [[BACK, 6], [BACK + 2, 9]],
        judged("gap", "successors_skipped", **got(9), at=BACK + 2, lost=1),
        """
       pod-a               1.0 s away ║
got 9 │                               ║                             ●
      │                               ║
  H 7 │                             ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░x░
      │                        ○      ║░●░░░░░░░░ 1 lost ░░░░░░░░░░░░░
  L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
      │               ○               ║
      │          ○                    ║
      │      ○                        ║
      │ ○                             ║
      └───────────────────────────────╨───────────────────────────────
        14:03:01              14:03:07  14:03:08              14:03:10
        ○ before  ● came after  x lost  ░ due
""",
    ),
    "gap, nothing came": (
        SEVEN,
        [],
        judged("gap", "nothing_replayed", at=BACK + 5, lost=2),
        """
     pod-a                1.0 s away ║
H 7 │                              ○ ║░x░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
    │                         ○      ║░x░░░░░░░░ 2 lost ░░░░░░░░░░░░░░
L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
    │               ○                ║
    │           ○                    ║
    │      ○                         ║
    │ ○                              ║
    └────────────────────────────────╨────────────────────────────────
      14:03:01               14:03:07  14:03:08
      ○ before  x lost  ░ due
""",
    ),
    "gap by a jump": (
        SEVEN,
        [[BACK, 11]],
        judged("gap", "forward_jump", **got(11), **UP_TO_DATE, lost=3),
        """
        pod-a              1.0 s away ║
got 11 │                              ║ ●
       │                              ║ x
 H=L 7 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
       │                       ○      ║
       │                   ○          ║
       │               ○              ║
       │          ○                   ║
       │     ○                        ║
       │ ○                            ║
       └──────────────────────────────╨──────────────────────────────
         14:03:01             14:03:07  14:03:08
         ○ before  ● came after  x lost
""",
    ),
    "rewound": (
        SEVEN,
        [[BACK + n / 10, n] for n in range(1, 9)],
        judged("rewound", "cursor_ignored", **got(1), at=BACK + 0.5, duplicated=5),
        """
       pod-a               1.0 s away ║
      │                               ║                             ●
  H 7 │                             ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░●░░░░░
      │                        ○      ║░░░░░░░░░░░░░░░░░░░░░●░░░░░░░░░
  L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄=┄┄┄┄┄┄┄┄┄┄┄┄┄
      │               ○               ║             =
      │          ○                    ║         =
      │      ○                        ║     =
got 1 │ ○                             ║ =
      └───────────────────────────────╨───────────────────────────────
        14:03:01              14:03:07  14:03:08
        ○ before  ● came after  = came twice  ░ due
""",
    ),
    "crossed": (
        SEVEN,
        [[BACK, 6], [BACK + 1, 12], [BACK + 2, 13]],
        judged("crossed", "other_stream", **got(12), at=BACK + 1, lost=1),
        """
        pod-a              1.0 s away ║
       │                              ║                            x
got 12 │                              ║               x
       │                              ║
   H 7 │                            ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
       │                       ○      ║░●░░░░░░░░ 1 lost ░░░░░░░░░░░░
   L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
       │               ○              ║
       │          ○                   ║
       │     ○                        ║
       │ ○                            ║
       └──────────────────────────────╨──────────────────────────────
         14:03:01             14:03:07  14:03:08             14:03:10
         ○ before  ● came after  x not of this stream  ░ due
""",
    ),
    "refused": (
        SEVEN,
        [],
        judged("refused", "not_found"),
        """
     pod-a                1.0 s away ║
H 7 │                              ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
    │                         ○      ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄┄║┄x refused: not_found ┄┄┄┄┄┄┄┄┄┄
    │               ○                ║
    │           ○                    ║
    │      ○                         ║
    │ ○                              ║
    └────────────────────────────────╨────────────────────────────────
      14:03:01               14:03:07  14:03:08
      ○ before  ░ due
""",
    ),
    "nothing known before": (
        None,
        [[BACK, 6]],
        judged("unverifiable", "no_baseline", **got(6), **UNKNOWN),
        """
                            reconnect ║
got 6 │                               ║ ●
  L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
      └───────────────────────────────╨───────────────────────────────
                                        14:03:08
        ● came after
""",
    ),
}


def drawn(
    before: dict[str, Any] | None, points: list[list[float]], judgement: dict[str, Any], on: Screen = SCREEN
) -> list[str]:
    """The picture of a resume that showed `points`."""
    return picture(Resume(before, connection("resume", points, judged=judgement)), on)


@pytest.mark.parametrize("name", CASES)
def test_the_picture(name: str) -> None:
    """Every verdict has its own look."""
    before, points, judgement, expected = CASES[name]
    assert drawn(before, points, judgement) == expected.strip("\n").splitlines()


def test_the_held_back_event_has_a_place() -> None:
    """An event that was never delivered, since the session was cut, is shown where it would have been."""
    cut = judged("fork", "log_restarted", **got(1), lost=2, action="cut")
    last_row = drawn(SEVEN, [], cut)[-4]
    assert last_row.split() == ["got", "1", "│", "○", "║", "x"]


@pytest.mark.parametrize("width", [60, 72, 100, 200])
@pytest.mark.parametrize("name", CASES)
def test_the_picture_fits(name: str, width: int) -> None:
    """No line is wider than the screen, and there are few enough to be seen at once."""
    before, points, judgement, _ = CASES[name]
    lines = drawn(before, points, judgement, Screen(width))
    assert max(map(len, lines)) <= width
    assert len(lines) <= 22


@pytest.mark.parametrize("name", CASES)
def test_ascii_is_enough(name: str) -> None:
    """An output without Unicode gets the same picture of other characters."""
    before, points, judgement, expected = CASES[name]
    lines = drawn(before, points, judgement, Screen(72, unicode=False))
    table = str.maketrans("○●░┄│⋮║─└╨", "o*.-|:#-+#")
    assert lines == expected.strip("\n").translate(table).splitlines()


def test_colour_changes_nothing_else() -> None:
    """On a terminal what harms is red and what is well is green; the characters are the same."""
    before, points, judgement, expected = CASES["content_diverged"]
    lines = drawn(before, points, judgement, Screen(72, colour=True))
    text = "\n".join(lines)
    assert re.sub(r"\x1b\[[0-9]+m", "", text) == expected.strip("\n")
    assert ("\x1b[31mx\x1b[0m" in text, "\x1b[32m●\x1b[0m" in text) == (True, True)


PLACE = st.none() | st.integers(0, 12) | st.integers(0, 2**70)
POINTS = st.lists(
    st.tuples(st.floats(START, START + 1e6), st.integers(0, 40) | st.integers(0, 2**70)), max_size=32
)


@given(
    st.sampled_from(list(REASONS)),
    POINTS,
    POINTS,
    st.fixed_dictionaries(
        {
            "cursor_position": PLACE,
            "high_position": PLACE,
            "got_position": PLACE,
            "outstanding": st.integers(0, 9),
        }
    ),
    st.sampled_from([60, 100]),
)
def test_any_resume_can_be_drawn(
    verdict: str,
    before: list[tuple[float, int]],
    after: list[tuple[float, int]],
    places: dict[str, Any],
    width: int,
) -> None:
    """Whatever a server's ids did, the picture has few lines, and none is too wide."""
    points = [[list(point) for point in sorted(each)] for each in (before, after)]
    judgement = judged(verdict, "x", got="x" * 99, lost=3, **places)
    lines = drawn(connection("get", points[0]), points[1], judgement, Screen(width))
    assert len(lines) <= 26
    assert max(map(len, lines), default=0) <= width


def test_no_place_no_picture() -> None:
    """Opaque ids of a client nobody knows have no place: a sentence has to do."""
    unknown = judged("unverifiable", "no_baseline", **UNKNOWN | {"cursor_position": None})
    assert drawn(None, [], unknown) == []


def test_ids_of_peers_are_harmless() -> None:
    """What moves a cursor is escaped, what is long is cut, in the picture and in the sentence."""
    evil = judged(
        "fork", "log_restarted", **got(1) | {"got": "\x1b[2J\u202e" + "9" * 100}, replica="\x07" * 99
    )
    lines = [*drawn(SEVEN, [[BACK, 1]], evil), sentence(evil, "pod-a", evil["replica"])]
    assert [line for line in lines if not line.isprintable()] == []
    assert max(map(len, lines[:-1])) <= 72


SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "fork": (
        judged("fork", "log_restarted", **got(1), **FAR, in_flight=1, would_cut=True, replica="b"),
        "FORK: the client asked for what follows 4821 and got id 1: another log (log_restarted, proven). "
        "9 events are lost. 1 request had no answer yet: one that comes now may be another's. "
        "The replica changed from a to b. In enforce the session would have been cut here.",
    ),
    "content": (
        judged("fork", "content_diverged", **got(6), lost=1, action="cut"),
        "FORK: the client asked for what follows 5 and got id 6 with other content than before: another log "
        "(content_diverged, proven). 1 event is lost. The session was cut.",
    ),
    "gap": (
        judged("gap", "nothing_replayed", lost=2, certainty="suspected"),
        "GAP: the client asked for what follows 5 and got nothing of what was due "
        "(nothing_replayed, suspected). 2 events are lost.",
    ),
    "rewound": (
        judged("rewound", "cursor_ignored", **got(5) | {"first_id": "1"}, duplicated=5, action="annotate"),
        "REWOUND: the client asked for what follows 5 and got the log again from id 1 "
        "(cursor_ignored, proven). 5 events came twice. The stream was annotated.",
    ),
    "crossed": (
        judged("crossed", "other_session", **got(12), lost=1, in_flight=2),
        "CROSSED: the client asked for what follows 5 and got id 12, which is another session's "
        "(other_session, proven). 1 event is lost. 2 requests had no answer yet: one that comes now may be another's.",
    ),
    "refused": (
        judged("refused", "not_found"),
        "REFUSED: the client asked for what follows 5 and was refused with 404 (not_found, proven). "
        "The server said so out loud: the client can begin anew.",
    ),
    "healthy": (
        judged("resumed", "replayed", **got(7), in_flight=1, replica="a"),
        "RESUMED: the client asked for what follows 5 and got all of it, in order (replayed, proven).",
    ),
    "idle": (
        judged("resumed", "idle", in_flight=1),
        "RESUMED: the client asked for what follows 5 and got nothing, and nothing was due (idle, proven). "
        "A request is in flight, though: a dead stream looks the same.",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_sentence(name: str) -> None:
    """What happened, what it cost and what was done, in plain words."""
    judgement, expected = SENTENCES[name]
    assert sentence(judgement, "a" if judgement["replica"] else None, judgement["replica"]) == expected


def test_every_judgement_has_words_of_its_own() -> None:
    """No reason but a fork's is told in the words of a fork."""
    plain = {
        reason: sentence(judged(verdict, reason, **got(1)), None, None)
        for verdict, reasons in REASONS.items()
        for reason in reasons
    }
    other_log = {reason for reason, text in plain.items() if "got id 1: another log" in text}
    assert other_log == {"id_regressed", "log_restarted", "epoch_changed"}
    assert all(
        "another log" not in plain[reason]
        for verdict in REASONS
        if verdict != "fork"
        for reason in REASONS[verdict]
    )


def test_which_resumes_are_shown() -> None:
    """Of each stream the latest alarm, else its latest resume; those with an alarm first, each with what was before."""

    def resume(stream: str, verdict: str, at: float) -> dict[str, Any]:
        return connection("resume", [], stream=stream, judged=judged(verdict, "x", at=at))

    first = connection("post", [[START, 1]], stream="post-1")
    connections = [
        first,
        SEVEN,
        resume("get-1", "fork", 1.0),
        resume("get-1", "resumed", 5.0),
        connection("get", [[START, 1]], stream="get-2"),
        resume("post-1", "resumed", 4.0),
        resume("post-1", "refused", 6.0),
        resume("get-3", "gap", 2.0),
    ]
    shown = [(each.before, each.after["stream"], each.judged["at"]) for each in resumes(connections)]
    assert shown == [(None, "get-3", 2.0), (SEVEN, "get-1", 1.0), (first, "post-1", 6.0)]
