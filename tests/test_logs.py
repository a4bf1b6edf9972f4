"""The log as its readers see it: whole lines, the order of keys, and what a line may not show."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import LogSettings
from proxy.engine.privacy import hash_session
from proxy.logs import EVENT_ID_KEYS, EVENTS, Level, Log, Repeats, open_log

JSON = LogSettings(format="json", level="debug")
CONSOLE = LogSettings(format="console", level="debug")
NOON = 1_790_000_000.1239
ANY = st.characters(exclude_categories=())
"""Lone surrogates too."""
TS = "2026-09-21T14:13:20.123Z"


def written(settings: LogSettings, say: Callable[[Log], object], env: Mapping[str, str] | None = None) -> str:
    """What `say` made a log write, with the clock standing at `NOON`."""
    out = io.BytesIO()
    log = open_log(settings, stream=out, env=env or {}, clock=lambda: NOON)
    say(log)
    assert log.close()
    return out.getvalue().decode()


def test_a_line_has_its_keys_in_order_and_nothing_else() -> None:
    """Time, level and event first, then what the line is bound to, then the event's own keys."""
    line = written(
        JSON,
        lambda log: log.event(
            "stream.closed",
            level="warning",
            kind="post",
            cause="upstream_reset",
            last_id=b"p7_118",
            bytes=40211,
            ttfb_ms=None,
            stream="p-7",
            session="abc",
            upstream="tools",
        ),
    )
    assert line == (
        f'{{"ts":"{TS}","level":"warning","event":"stream.closed","upstream":"tools",'
        f'"session":"{hash_session("abc")}","stream":"p-7","kind":"post","cause":"upstream_reset",'
        '"last_id":"p7_118","bytes":40211,"ttfb_ms":null}\n'
    )


def test_the_console_shows_the_same_fields_for_people() -> None:
    """One readable line, without colour where there is no terminal."""
    line = written(CONSOLE, lambda log: log.event("proxy.ready", listen="127.0.0.1:1", status=None))
    assert line.split() == [TS, "[info", "]", "proxy.ready", "listen=127.0.0.1:1", "status=None"]


def test_what_a_line_is_bound_to_is_left_out_when_empty() -> None:
    """No upstream, session or stream is no key; an event's own empty values stay."""
    line = written(
        JSON, lambda log: log.event("finding.raised", upstream="", session="", stream=None, detail="")
    )
    assert line == f'{{"ts":"{TS}","level":"info","event":"finding.raised","detail":""}}\n'


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(level: Level, expected: list[str]) -> None:
    """The configured level is the least one that appears."""

    def say(log: Log) -> None:
        log.event("proxy.ready", level="debug")
        log.event("proxy.ready")
        log.event("proxy.ready", level="warning")
        log.event("proxy.ready", level="error")

    lines = written(replace(JSON, level=level), say).splitlines()
    assert [json.loads(line)["level"] for line in lines] == expected


@pytest.mark.parametrize(
    ("session", "shown"),
    [("hash", hash_session("secret")), ("raw", "secret")],
)
def test_session_ids_are_hashed_unless_configured_raw(session: str, shown: str) -> None:
    """A session id is a credential."""
    settings = LogSettings(format="json", session_ids="raw" if session == "raw" else "hash")
    line = written(settings, lambda log: log.event("session.closed", session="secret"))
    assert json.loads(line)["session"] == shown


@pytest.mark.parametrize("key", sorted(EVENT_ID_KEYS - {"got"}))
def test_event_ids_are_text_of_a_bounded_length(key: str) -> None:
    """Bytes of a peer are decoded without loss, and cut at 128 characters."""
    event = "stream.closed" if key == "last_id" else "resume.judged"

    def shown(value: bytes, settings: LogSettings = JSON) -> str:
        fields: dict[str, object] = {key: value}
        text = json.loads(written(settings, lambda log: log.event(event, "info", **fields)))[key]
        assert isinstance(text, str)
        return text

    assert shown("7·1".encode()) == "7·1"
    assert shown(b"7\xff1") == r"7\xff1"
    assert shown(b"7" * 200) == "7" * 128
    hashed = shown(b"7" * 200, replace(JSON, event_ids="hash"))
    assert hashed.startswith("e_")
    assert len(hashed) == 14
    assert hashed != shown(b"7" * 201, replace(JSON, event_ids="hash"))


def test_an_exception_is_one_line_of_text() -> None:
    """Its type and message, never a traceback."""
    try:
        raise ValueError("no\nsuch thing")
    except ValueError as error:
        caught = error
    line = written(JSON, lambda log: log.event("check.failed_open", component="relay", error=caught))
    assert json.loads(line)["error"] == "ValueError: no\nsuch thing"
    assert line.count("\n") == 1
    assert "Traceback" not in line


@pytest.mark.parametrize(
    ("value", "in_json", "on_console"),
    [
        ("a\x1b[31mb", "a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nfake event", "a\nfake event", r"a\nfake event"),
        ("a\x9b31mb", r"a\x9b31mb", r"a\x9b31mb"),
        ("a\u2028b", r"a\u2028b", r"a\u2028b"),
        ("a\u202eb", "a\u202eb", r"a\u202eb"),
        ("a\ud800b", r"a\ud800b", r"a\ud800b"),
        (["x", "y\x7f"], ["x", r"y\x7f"], r"y\x7f"),
        (1 << 70, str(1 << 70), str(1 << 70)),
        (float("nan"), None, "nan"),
        ({"a": 1}, "{'a': 1}", "{'a': 1}"),
    ],
    ids=["escape", "newline", "c1", "separator", "bidi", "surrogate", "list", "long", "nan", "other"],
)
def test_no_value_can_steer_a_terminal_or_forge_a_line(
    value: object, in_json: object, on_console: str
) -> None:
    """Control characters come out escaped: by JSON where it does so, as visible text elsewhere."""

    def say(log: Log) -> None:
        log.event("check.failed_open", component=value)

    line = written(JSON, say)
    assert line.endswith("\n")
    assert line[:-1].replace("\u202e", "").isprintable()
    assert json.loads(line)["component"] == in_json
    console = written(CONSOLE, say)
    assert console[:-1].isprintable()
    # The renderer quotes a value that holds a space, and so doubles its backslashes.
    assert on_console in console.replace("\\\\", "\\")


@given(
    values=st.fixed_dictionaries(
        {
            "session": st.text(alphabet=ANY) | st.binary(),
            "stream": st.text(),
            "cursor": st.binary() | st.text(),
            "high": st.none() | st.binary(),
            "replica": st.none() | st.text(alphabet=ANY),
            "outstanding": st.integers(),
            "away_s": st.floats(),
        }
    ),
    session_ids=st.sampled_from(["hash", "raw"]),
    event_ids=st.sampled_from(["hash", "raw"]),
)
def test_any_value_is_one_line(values: dict[str, object], session_ids: str, event_ids: str) -> None:
    """No bytes, text or number of a peer raises, loses the line or makes it two."""
    hidden = replace(
        JSON,
        session_ids="raw" if session_ids == "raw" else "hash",
        event_ids="raw" if event_ids == "raw" else "hash",
    )
    for settings in (hidden, replace(hidden, format="console")):
        out = written(settings, lambda log: log.event("resume.judged", "info", **values))
        assert out.count("\n") == 1
        assert out.endswith("\n")
        if settings.format == "json":
            assert json.loads(out)["event"] == "resume.judged"


@pytest.mark.parametrize(
    ("settings", "no_color", "json_lines", "colour"),
    [
        (LogSettings(format="auto"), "", False, True),
        (LogSettings(format="auto"), "1", False, False),
        (LogSettings(format="console"), "", False, True),
        (LogSettings(format="json"), "", True, False),
    ],
    ids=["auto", "no-color", "console", "json"],
)
def test_a_terminal_gets_the_console_and_colour_unless_told_otherwise(
    settings: LogSettings, no_color: str, json_lines: bool, colour: bool
) -> None:
    """`auto` asks whether the stream is a terminal; NO_COLOR is honoured."""
    controller, terminal = os.openpty()
    with open(terminal, "wb", buffering=0) as stream, open(controller, "rb", buffering=0) as screen:
        log = open_log(settings, stream=stream, env={"NO_COLOR": no_color})
        log.event("proxy.ready", listen="here")
        assert log.close()
        shown = screen.read(4096)
    assert shown.startswith(b"{") == json_lines
    assert (b"\x1b[" in shown) == colour
    assert b"proxy.ready" in shown


def test_auto_is_json_where_there_is_no_terminal() -> None:
    """A pipe or a file gets JSON."""
    line = written(LogSettings(format="auto"), lambda log: log.event("proxy.ready"))
    assert json.loads(line)["event"] == "proxy.ready"


def test_events_and_keys_outside_the_catalogue_are_mistakes() -> None:
    """An unknown name or key fails loudly in development."""
    log = open_log(JSON, stream=io.BytesIO())
    with pytest.raises(AssertionError, match=r"stream\.exploded is not in the catalogue"):
        log.event("stream.exploded")
    with pytest.raises(AssertionError, match=r"proxy\.ready has no keys \['secret'\]"):
        log.event("proxy.ready", secret="x")
    log.close()


def test_the_catalogue_is_nouns_and_verbs_in_one_form() -> None:
    """`noun.verb`, and no event redefines a key that any line may carry."""
    for name, keys in EVENTS.items():
        noun, _, verb = name.partition(".")
        assert noun.isalpha()
        assert verb.replace("_", "").isalpha()
        assert not keys & {"ts", "level", "event", "upstream", "session", "stream"}


def test_dropped_lines_are_announced_by_a_line_of_their_own() -> None:
    """Once the reader reads again, one `log.dropped` says how many lines are missing."""
    read, write = os.pipe()
    received: list[bytes] = []

    def reader() -> None:
        with open(read, "rb") as stream:
            received.extend(stream)

    os.set_blocking(write, False)
    # Nobody reads from the beginning on, so nothing is told before.
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"\n" * 4096)
    os.set_blocking(write, True)
    with open(write, "wb", buffering=0) as stream:
        log = open_log(JSON, stream=stream)
        for number in range(12_000):
            log.event("stream.closed", stream="p-1", last_id=b"%d" % number)
        dropped = log.dropped
        assert dropped > 0
        thread = threading.Thread(target=reader)
        thread.start()
        assert any(log.close() for _ in range(20))
    thread.join()
    events = [json.loads(line) for line in received if line != b"\n"]
    announced = [event for event in events if event["event"] == "log.dropped"]
    assert [(event["level"], event["count"]) for event in announced] == [("warning", dropped)]
    assert len(events) - 1 + dropped == 12_000


def said(limiter: Repeats, times: list[float], key: str = "k") -> list[int | None]:
    """What the limiter answers to one key at these times."""
    return [limiter.admit(key, now) for now in times]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, None, None]),
        ([0, 0, 0, 0, 0, 0, 10, 11, 20, 21], [0, 0, 0, 0, 0, None, 1, None, 1, None]),
        ([0, 0, 0, 0, 0, 0, 0, 25, 26, 27, 28, 29, 30], [0, 0, 0, 0, 0, None, None, 2, 0, 0, 0, 0, None]),
        ([0, 10, 20, 30, 40, 50, 60], [0] * 7),
        ([0, 0, 0, 0, 0, 0, 10, 20, 21], [0, 0, 0, 0, 0, None, 1, 0, 0]),
    ],
    ids=["burst", "then-one-a-window", "quiet-restores-burst", "slow-is-never-limited", "one-calm-window"],
)
def test_repetitions_are_thinned(times: list[float], expected: list[int | None]) -> None:
    """Five in ten seconds, then one in ten with how many went unsaid."""
    assert said(Repeats(), times) == expected


def test_keys_are_limited_apart_and_the_oldest_is_forgotten() -> None:
    """Each key has its own burst; the table is bounded by forgetting the key used least recently."""
    limiter = Repeats(burst=1, capacity=2)
    assert said(limiter, [0, 0], "a") == [0, None]
    assert said(limiter, [0], "b") == [0]
    assert said(limiter, [0], "a") == [None]
    assert said(limiter, [0], "c") == [0]
    assert said(limiter, [0], "a") == [None]
    assert said(limiter, [0], "b") == [0]
