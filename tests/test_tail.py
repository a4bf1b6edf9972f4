"""`forkwatch tail`: what a line looks like, which lines are kept, and how it behaves in a pipeline."""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import main, tail
from proxy.config.settings import LogSettings
from proxy.engine.privacy import hash_session
from proxy.log_view import LEVELS, MAX_LINE_BYTES, Filter, Layout, Lines, View, read
from proxy.logs import BOUND, EVENTS, Level, open_log

ROOT = Path(__file__).parent.parent
DEADLINE_S = 20.0
RAW = "3f0c1d5e-raw"
HASHED = hash_session(RAW)


def line(event: str, level: str = "info", ts: str = "2026-11-29T14:03:41.133Z", **fields: object) -> bytes:
    """One line of the proxy's log."""
    return json.dumps({"ts": ts, "level": level, "event": event, **fields}).encode() + b"\n"


TOOLS = {"upstream": "tools", "session": "s_9c33081dfd7f", "stream": "get-1"}
FORK = line(
    "resume.judged",
    "error",
    **TOOLS,
    verdict="fork",
    reason="log_restarted",
    certainty="proven",
    cursor="4821",
    high="4821",
    outstanding=0,
    first_id="1",
    lost=0,
    away_s=3.204,
    replica="pod-b",
    previous_replica="pod-a",
    action="pass",
    took_ms=0.4,
)
FORK_SHOWN = (
    "14:03:41.133 ERRO tools    s_9c33081dfd7f get-1   resume.judged        fork/log_restarted proven "
    " cursor=4821 high=4821 outstanding=0 first_id=1 lost=0 away_s=3.204 replica=pod-b (was pod-a)"
    " action=pass took_ms=0.4\n"
)
READY = line("proxy.ready", listen="127.0.0.1:8080")
READY_SHOWN = "14:03:41.133 INFO                                 proxy.ready          listen=127.0.0.1:8080\n"
HEAD = "14:03:41.133 INFO                                 "


def piped(kept: Filter | None = None) -> View:
    """A view for an output that is no terminal."""
    return View(kept or Filter(), Layout(), terminal=False)


def shown(data: bytes, view: View | None = None) -> str:
    """What a view makes of a whole input."""
    view = view or piped()
    return (view.feed(data) + view.end()).decode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(FORK, FORK_SHOWN, id="a fork at a glance"),
        pytest.param(READY, READY_SHOWN, id="the process itself"),
        pytest.param(
            line("stream.closed", "warning", **TOOLS, kind="post", cause="upstream_reset", last_id=None),
            "14:03:41.133 WARN tools    s_9c33081dfd7f get-1   stream.closed        kind=post"
            " cause=upstream_reset\n",
            id="null is left out",
        ),
        pytest.param(
            line(
                "policy.action", "debug", mode="enforce", action="cut", verdict="gap", reason="forward_jump"
            ),
            HEAD.replace("INFO", "DEBU") + "policy.action        gap/forward_jump  mode=enforce action=cut\n",
            id="the judgement first, without a certainty",
        ),
        pytest.param(
            line("resume.judged", verdict="resumed"),
            HEAD + "resume.judged        resumed\n",
            id="a verdict alone",
        ),
        pytest.param(
            line("session.closed", certainty="proven", reason="deleted"),
            HEAD + "session.closed       certainty=proven reason=deleted\n",
            id="a reason that judges nothing stays in its place",
        ),
        pytest.param(
            line("resume.judged", replica="a", previous_replica="a"),
            HEAD + "resume.judged        replica=a (same)\n",
            id="the same replica",
        ),
        pytest.param(
            line("resume.judged", replica=None, previous_replica="a"),
            HEAD + "resume.judged        replica=? (was a)\n",
            id="the replica is not known any more",
        ),
        pytest.param(
            line("resume.judged", replica="b", previous_replica=None),
            HEAD + "resume.judged        replica=b\n",
            id="the replica before is not known",
        ),
        pytest.param(
            line("resume.judged", previous_replica="a"),
            HEAD + "resume.judged        previous_replica=a\n",
            id="only the replica before",
        ),
        pytest.param(
            line("config.loaded", path="", warnings=["a b"], followed=True, n=1.5, big={"a": [1]}),
            HEAD + 'config.loaded        path="" warnings=["a b"] followed=true n=1.5 big={"a":[1]}\n',
            id="every type of value",
        ),
        pytest.param(
            line("finding.raised", detail='say "x" y', finding='"', **{"a b": "c=d"}),
            HEAD + r'finding.raised       detail="say \"x\" y" finding="\"" "a b"=c=d' + "\n",
            id="several words are quoted",
        ),
        pytest.param(
            line(
                "resume.judged",
                upstream="a\x1b[2Jb",
                cursor="\x9b1\r\n\t",
                first_id="\u202e1",
                **{"\x07": "1"},
            ),
            "14:03:41.133 INFO " + r"a\x1b[2Jb                        resume.judged        "
            r"cursor=\x9b1\r\n\t first_id=\u202e1 \x07=1" + "\n",
            id="nothing steers a terminal",
        ),
        pytest.param(
            line("resume.judged", cursor=["\x9b", "\u202e"], session=["\x7f"]),
            '14:03:41.133 INFO          ["\\x7f"]               resume.judged        cursor=["\\x9b","\\u202e"]\n',
            id="nor inside a list",
        ),
        pytest.param(
            line("resume.judged", cursor="läuft 日本"),
            HEAD + 'resume.judged        cursor="läuft 日本"\n',
            id="letters",
        ),
        pytest.param(
            line("proxy.ready", ts="2026-11-29T14:03:41Z"),
            "14:03:41.000 INFO                                 proxy.ready\n",
            id="a time without a fraction",
        ),
        pytest.param(
            line("proxy.ready", ts="2026-11-29T14:03:41.1234567Z"),
            "14:03:41.123 INFO                                 proxy.ready\n",
            id="a finer time",
        ),
        pytest.param(
            b'{"a":' * 600 + b"1" + b"}" * 600,
            (b'{"a":' * 600 + b"1" + b"}" * 600).decode(),
            id="foreign and deep",
        ),
        pytest.param(
            READY.replace(b'"127.0.0.1:8080"', b"[" * 600 + b"]" * 600),
            HEAD + "proxy.ready          listen=…\n",
            id="deeper than can be written",
        ),
        pytest.param(FORK[:-1], FORK_SHOWN, id="a last line without its newline"),
        pytest.param(FORK[:-1] + b"\r\n", FORK_SHOWN, id="CR LF"),
        pytest.param(FORK.replace(b'{"ts"', b'{ "ts"'), FORK_SHOWN, id="spaced JSON"),
    ],
)
def test_a_line_of_ours(data: bytes, text: str) -> None:
    """One line for people, with every value as one word and nothing that steers a terminal."""
    assert shown(data) == text


TEXT = FORK[:-1].decode()


@pytest.mark.parametrize(
    ("wrapped", "prefix"),
    [
        pytest.param(f"2026-11-29T14:03:41.133456789Z stdout F {TEXT}", "", id="container runtime"),
        pytest.param(f"2026-11-29T15:03:41.133456789+01:00 stderr F {TEXT}", "", id="its local time"),
        pytest.param(f"2026-11-29T14:03:41.133456789Z {TEXT}", "", id="kubectl --timestamps"),
        pytest.param(f"[pod/tools-7f/forkwatch] {TEXT}", "[pod/tools-7f/forkwatch] ", id="kubectl --prefix"),
        pytest.param(
            f"[pod/tools-7f/forkwatch] 2026-11-29T14:03:41.133456789Z {TEXT}",
            "[pod/tools-7f/forkwatch] ",
            id="kubectl with both",
        ),
        pytest.param(f"proxy-1  | {TEXT}", "proxy-1  | ", id="Docker Compose"),
        pytest.param(f"\x1b[36mproxy-1 {TEXT}", r"\x1b[36mproxy-1 ", id="a prefix that would steer"),
        pytest.param(
            json.dumps({"log": TEXT + "\n", "stream": "stdout", "time": "2026-11-29T14:03:41.2Z"}),
            "",
            id="Docker's json-file",
        ),
        pytest.param(
            "[x] " + json.dumps({"stream": "stdout", "log": TEXT + "\n"}),
            "[x] ",
            id="both a prefix and Docker",
        ),
    ],
)
def test_what_wraps_a_line(wrapped: str, prefix: str) -> None:
    """The record is found inside; a prefix that says where it comes from stays in front."""
    assert shown(wrapped.encode() + b"\n") == prefix + FORK_SHOWN


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\n \n", id="blank lines"),
        pytest.param(b"plain words\r\n", id="plain text"),
        pytest.param(b"\xff\x00\x1b[31mred\n", id="no text"),
        pytest.param(b'{"ts":1\n', id="broken JSON"),
        pytest.param(b'["ts","level","event"]\n', id="a list"),
        pytest.param(b'{"level":"info","event":"proxy.ready"}\n', id="no time"),
        pytest.param(READY.replace(b"2026-", b"26-"), id="another time"),
        pytest.param(READY.replace(b"info", b"notice"), id="another level"),
        pytest.param(READY.replace(b'"info"', b'["info"]'), id="a level that is no text"),
        pytest.param(READY.replace(b"proxy.ready", b"request handled"), id="another event"),
        pytest.param(b'{"log":"words\\n","stream":"stdout"}\n', id="Docker's, with words"),
        pytest.param(b'{"log":{"ts":1}}\n', id="a log that is no text"),
        pytest.param(READY[:-1] + b" and more\n", id="more after the object"),
        pytest.param(b"2026-11-29T14:03:41Z stdout P " + READY[:40] + b"\n", id="part of a line"),
        pytest.param(b"x" * 1100 + READY, id="far behind other text"),
        pytest.param(b"no newline", id="no newline"),
    ],
)
def test_lines_that_are_not_ours_pass_unchanged(data: bytes) -> None:
    """To the byte, when the output is no terminal; and with a filter they are dropped."""
    view = piped()
    assert view.feed(data) + view.end() == data
    view = piped(Filter(level="debug"))
    assert view.feed(data) + view.end() == b""


LOG = {
    "ready": READY,
    "opened": line("session.opened", upstream="tools", session=HASHED),
    "raw": line("resume.attempted", upstream="files", session=RAW),
    "fork": line("resume.judged", "error", upstream="files", session="s_000000000000", verdict="fork"),
    "gap": line("resume.judged", "warning", upstream="tools", session=HASHED, verdict="gap"),
    "cut": line("policy.action", "warning", upstream="tools", session=HASHED, verdict="gap", action="cut"),
    "odd": line("stream.opened", "debug", upstream=["tools"], session=[RAW], verdict=["gap"]),
}


@pytest.mark.parametrize(
    ("kept", "names"),
    [
        pytest.param(Filter(), "ready opened raw fork gap cut odd", id="nothing asked for"),
        pytest.param(Filter(session=RAW), "opened raw gap cut", id="a raw session"),
        pytest.param(Filter(session=HASHED), "opened raw gap cut", id="a hashed session"),
        pytest.param(Filter(session="s_000000000000"), "fork", id="another session"),
        pytest.param(Filter(session="3f0c1d5e"), "", id="no part of a session"),
        pytest.param(Filter(verdicts=frozenset({"gap"})), "gap cut", id="a verdict"),
        pytest.param(Filter(verdicts=frozenset({"gap", "fork"})), "fork gap cut", id="two verdicts"),
        pytest.param(Filter(verdicts=frozenset({"None"})), "", id="no verdict is none"),
        pytest.param(Filter(upstream="tools"), "opened gap cut", id="an upstream"),
        pytest.param(Filter(upstream="tool"), "", id="no part of an upstream"),
        pytest.param(Filter(level="debug"), "ready opened raw fork gap cut odd", id="least level"),
        pytest.param(Filter(level="warning"), "fork gap cut", id="a level"),
        pytest.param(Filter(level="error"), "fork", id="greatest level"),
        pytest.param(Filter(event="resume.judged"), "fork gap", id="an event"),
        pytest.param(Filter(event="resume."), "raw fork gap", id="the start of an event"),
        pytest.param(Filter(session=RAW, event="resume.", level="info"), "raw gap", id="all must hold"),
    ],
)
def test_filters(kept: Filter, names: str) -> None:
    """Of a whole log, the lines of which everything asked for holds."""
    found = [name for name, data in LOG.items() if kept.keeps(read(data))]
    assert found == names.split()
    assert kept.keeps(None) is (kept == Filter())


def test_columns_grow_with_what_they_hold() -> None:
    """A longer name moves the columns behind it from there on, and a monstrous one only so far."""
    view = piped()
    lines = [line("proxy.ready", upstream=name) for name in ("a", "b" * 12, "c", "d" * 1000, "e")]
    rows = [shown(each, view).rstrip("\n") for each in lines]
    assert [row.index("proxy.ready") for row in rows] == [50, 54, 54, 1042, 106]


@pytest.mark.parametrize(
    ("level", "tag", "colour"),
    [("debug", "DEBU", "2"), ("info", "INFO", "32"), ("warning", "WARN", "33"), ("error", "ERRO", "1;31")],
)
def test_colour_by_level(level: str, tag: str, colour: str) -> None:
    """The level and the judgement are painted, nothing else."""
    record = read(
        line("resume.judged", level, verdict="gap", reason="forward_jump", certainty="proven", lost=1)
    )
    assert record is not None
    assert Layout(colours=True).render(record) == (
        f"14:03:41.133 \x1b[{colour}m{tag}\x1b[0m                                 resume.judged       "
        f" \x1b[{colour}mgap/forward_jump proven\x1b[0m  lost=1"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\tb\n", b"a\tb\n"),
        (b"\x1b]0;owned\x07 \x9b2J \xc2\x9b2J\n", rb"\x1b]0;owned\x07 \x9b2J \x9b2J" + b"\n"),
        ("äß 日本 \u202e\r\n".encode(), "äß 日本 \\u202e\n".encode()),
        (b"no newline\r", b"no newline"),
        (b"x\x1b" * MAX_LINE_BYTES, rb"x\x1b" * MAX_LINE_BYTES),
    ],
    ids=["tab", "controls", "letters", "no newline", "overlong"],
)
def test_foreign_lines_on_a_terminal(data: bytes, text: bytes) -> None:
    """What could steer it is written out."""
    view = View(Filter(), Layout(), terminal=True)
    assert view.feed(data) + view.end() == text


def test_a_terminal_of_another_encoding() -> None:
    """Letters it does not have are written out."""
    view = View(Filter(), Layout(), terminal=True, encoding="latin-1")
    assert view.feed("ä 日\n".encode()) == b"\xe4 \\u65e5\n"


def test_every_event_of_the_catalogue_is_ours() -> None:
    """What the proxy writes is recognised, whatever the event and the level, and has its columns."""
    out = io.BytesIO()
    log = open_log(LogSettings(format="json", level="debug"), stream=out, env={})
    levels: tuple[Level, ...] = ("debug", "info", "warning", "error")
    for name, keys in EVENTS.items():
        for level in levels:
            log.event(name, level, **{key: key for key in (*BOUND, *sorted(keys))})
    assert log.close()
    records = [read(each) for each in out.getvalue().splitlines()]
    assert [(each.event, each.level) for each in records if each] == [
        (name, level) for name in EVENTS for level in LEVELS
    ]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\x00", b"\n")), st.lists(st.integers(1, 9)))
def test_lines_do_not_depend_on_reads(data: bytes, sizes: list[int]) -> None:
    """However the input is cut: no byte is lost, and the same lines are whole."""
    reads, at = [], 0
    for size in sizes:
        reads.append(data[at : at + size])
        at += size
    lines = Lines(limit=8)
    got = [each for part in (*reads, data[at:]) for each in lines.feed(part)] + lines.end()
    assert b"".join(piece for piece, _ in got) == data
    *ended, last = data.split(b"\n")
    expected = [text + b"\n" for text in ended if len(text) <= 8] + ([last] if 0 < len(last) <= 8 else [])
    assert [piece for piece, whole in got if whole] == expected


def test_an_overlong_line_is_passed_on_in_pieces() -> None:
    """No more than the limit and one read is ever kept, and what follows is read again."""
    lines = Lines()
    chunk = b"x" * 65536
    pieces = [each for _ in range(100) for each in lines.feed(chunk)] + lines.feed(b"\n" + READY)
    assert {len(piece) for piece, _ in pieces[:-2]} == {MAX_LINE_BYTES + 65536}
    assert sum(len(piece) for piece, _ in pieces[:-1]) == 100 * 65536 + 1
    assert [whole for _, whole in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1] == (READY, True)


def test_a_record_at_the_edge_of_a_piece_is_not_ours() -> None:
    """Whoever makes an overlong line cannot make one of its pieces look like the proxy's word."""
    view = piped()
    monster = b"x" * (MAX_LINE_BYTES + 1)
    assert view.feed(monster) + view.feed(READY) == monster + READY
    assert view.feed(READY) == READY_SHOWN.encode()


class Tail:
    """A running `forkwatch tail`, its standard input and output in our hands."""

    def __init__(self, *argv: str, stdout: int = subprocess.PIPE, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proxy", "tail", *argv],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            bufsize=0,
            env={**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **environ},
        )
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        self.output = stdout if self.process.stdout is None else self.process.stdout.fileno()

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait(DEADLINE_S)

    def until(self, expected: str, source: int | None = None, sip: int = 65536) -> None:
        """Read until `expected` is what came; fail on anything else, or when it takes too long."""
        wanted, got = expected.encode(), b""
        deadline = time.monotonic() + DEADLINE_S
        source = self.output if source is None else source
        while got != wanted and wanted.startswith(got):
            ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(source, sip) if ready else b""
            if not data:
                break
            got += data
        assert got == wanted

    def ended(self) -> tuple[int, str]:
        """The exit status, once there is one, and what stderr says."""
        assert self.process.stderr is not None
        return self.process.wait(DEADLINE_S), self.process.stderr.read().decode()


def test_lines_appear_as_they_are_written() -> None:
    """A line is shown while the pipe stays open; the last one also without its newline."""
    with Tail() as running:
        running.stdin.write(READY)
        running.until(READY_SHOWN)
        running.stdin.write(FORK[:100])
        running.stdin.write(FORK[100:] + b"words\n" + READY[:20])
        running.until(FORK_SHOWN + "words\n")
        running.stdin.write(READY[20:-1])
        running.stdin.close()
        running.until(READY_SHOWN)
        assert running.ended() == (0, "")


def test_ctrl_c_ends_it_quietly() -> None:
    """While it waits for a line, an interrupt is the normal end."""
    with Tail() as running:
        running.stdin.write(READY)
        running.until(READY_SHOWN)
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (0, "")


def test_ctrl_c_while_following(tmp_path: Path) -> None:
    """The same between two looks at a file."""
    file = tmp_path / "log"
    file.write_bytes(READY)
    with Tail("-F", "-f", str(file)) as running:
        running.until(READY_SHOWN)
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (0, "")


@pytest.mark.parametrize("argv", [[], ["-F", "-f", "FILE"]], ids=["a pipe", "a followed file"])
def test_it_ends_with_its_reader(argv: list[str], tmp_path: Path) -> None:
    """As in `| head`: at once and quietly, although no more lines come."""
    file = tmp_path / "log"
    file.write_bytes(READY)
    with Tail(*[each.replace("FILE", str(file)) for each in argv]) as running:
        running.stdin.write(READY)
        running.until(READY_SHOWN)
        assert running.process.stdout is not None
        running.process.stdout.close()
        assert running.ended() == (0, "")


def test_a_reader_that_left_before(tmp_path: Path) -> None:
    """An output that is closed from the start ends it quietly too."""
    file = tmp_path / "log"
    file.write_bytes(READY)
    read_end, write_end = os.pipe()
    os.close(read_end)
    with Tail("-f", str(file), stdout=write_end) as running:
        os.close(write_end)
        assert running.ended() == (0, "")


def test_an_output_that_takes_nothing_for_now(tmp_path: Path) -> None:
    """A full pipe that somebody made non-blocking is waited for; every line comes, in order."""
    file = tmp_path / "log"
    file.write_bytes(READY * 2000)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)  # a page of 170 kB, and sipped: it is full all the time
    with Tail("-f", str(file), stdout=write_end) as running:
        os.close(write_end)
        running.until(READY_SHOWN * 2000, read_end, sip=64)
        assert running.ended() == (0, "")
    os.close(read_end)


def test_no_output_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `>&-`: the file would be opened as standard output, and is not opened at all."""
    monkeypatch.setattr(sys, "stdout", None)
    nothing = dict.fromkeys(("session", "verdict", "upstream", "level", "event"))
    args = argparse.Namespace(**nothing, file=str(tmp_path / "nowhere"), follow=False, plain=False)
    assert tail.run(args) == 0


def test_a_full_disk() -> None:
    """An output that cannot be written is one line and a failure."""
    with open("/dev/full", "wb", buffering=0) as full, Tail(stdout=full.fileno()) as running:
        running.stdin.write(READY)
        assert running.ended() == (1, "forkwatch: cannot write: No space left on device\n")


def test_an_overlong_line_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """Three mebibytes without a newline, then a line of ours."""
    file = tmp_path / "log"
    file.write_bytes(b"x" * (3 << 20) + b"\n" + READY)
    with Tail("-f", str(file)) as running:
        running.until("x" * (3 << 20) + "\n" + READY_SHOWN)
        assert running.ended() == (0, "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nowhere", "No such file or directory"), ("", "Is a directory")],
    ids=["none", "directory"],
)
@pytest.mark.parametrize("follow", [[], ["-F"]], ids=["once", "following"])
def test_a_file_that_cannot_be_read(
    name: str, reason: str, follow: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says why, and a failure."""
    path = str(tmp_path / name)
    assert main(["tail", "--file", path, *follow]) == 1
    assert capsys.readouterr() == ("", f"forkwatch: cannot read {path}: {reason}\n")


@pytest.mark.parametrize("argv", [[], ["-f", "-"]])
def test_a_pipe_cannot_be_followed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It says what is missing."""
    assert main(["tail", "--follow", *argv]) == 2
    assert capsys.readouterr().err == "forkwatch: --follow needs a file; give one with --file\n"


def test_arguments_become_filters(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each option keeps what it says, verdicts once or several times, and a file ends by itself."""
    file = tmp_path / "log"
    file.write_bytes(b"words\n" + b"".join(LOG.values()))
    cases = {
        "": "words ready opened raw fork gap cut odd",
        f"--session {RAW} --level warning": "gap cut",
        f"--session {HASHED} --event resume.": "raw gap",
        "--upstream files": "raw fork",
        "--verdict gap,fork --event resume.judged": "fork gap",
        "--verdict gap --verdict fork": "fork gap cut",
    }
    for options, names in cases.items():
        assert main(["tail", "-f", str(file), *options.split()]) == 0
        view = piped()
        expected = "".join(shown(LOG.get(name, b"words\n"), view) for name in names.split())
        assert capfd.readouterr() == (expected, "")


def numbered(number: int) -> bytes:
    """A line of ours that differs from the others."""
    return line("proxy.ready", pid=number)


def numbered_shown(*numbers: int) -> str:
    """What is shown for these lines."""
    return "".join(shown(numbered(number)) for number in numbers)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Tail, Path]]:
    """A followed file whose two lines have been shown."""
    file = tmp_path / "log"
    file.write_bytes(numbered(1) + numbered(2))
    with Tail("--follow", "--file", str(file)) as running:
        running.until(numbered_shown(1, 2))
        yield running, file


def append(file: Path, data: bytes) -> None:
    """Write at the end of a file."""
    with file.open("ab") as out:
        out.write(data)


def test_a_followed_file_grows(followed: tuple[Tail, Path]) -> None:
    """Lines come as they are complete: half a line is not one yet."""
    running, file = followed
    append(file, numbered(3) + numbered(4)[:30])
    running.until(numbered_shown(3))
    append(file, numbered(4)[30:])
    running.until(numbered_shown(4))


def test_a_followed_file_is_rotated(followed: tuple[Tail, Path]) -> None:
    """What is left of the old file comes first, then the new one, which may come later."""
    running, file = followed
    append(file, numbered(3) + b"half a line")
    old = file.rename(file.with_suffix(".1"))
    running.until(numbered_shown(3))
    append(old, b", and its end")
    file.write_bytes(numbered(4))
    running.until("half a line, and its end\n" + numbered_shown(4))
    append(old, numbered(5))
    append(file, numbered(6))
    running.until(numbered_shown(6))


def test_a_followed_file_is_truncated(followed: tuple[Tail, Path]) -> None:
    """It is read from its start again."""
    running, file = followed
    file.write_bytes(numbered(3))
    running.until(numbered_shown(3))
    append(file, numbered(4))
    running.until(numbered_shown(4))


def test_a_followed_file_is_truncated_within_a_line(followed: tuple[Tail, Path]) -> None:
    """The line that lost its end does not swallow the first one after it."""
    running, file = followed
    append(file, numbered(3) + b"half a line")
    running.until(numbered_shown(3))
    file.write_bytes(numbered(4))
    running.until("half a line\n" + numbered_shown(4))


@pytest.mark.parametrize(
    ("argv", "environ", "coloured"),
    [
        pytest.param([], {}, True, id="colour"),
        pytest.param(["--plain"], {}, False, id="--plain"),
        pytest.param([], {"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param([], {"NO_COLOR": ""}, True, id="empty NO_COLOR"),
        pytest.param([], {"TERM": "dumb"}, False, id="dumb terminal"),
    ],
)
def test_a_terminal(argv: list[str], environ: dict[str, str], coloured: bool) -> None:
    """It gets colour unless that is not wanted, and no line steers it in any case."""
    ours, theirs = os.openpty()
    with Tail(*argv, stdout=theirs, PYTHONIOENCODING="utf-8", **environ) as running:
        os.close(theirs)
        running.stdin.write(READY + b"\x1b[2Jwords\n")
        row = READY_SHOWN.replace("INFO", "\x1b[32mINFO\x1b[0m") if coloured else READY_SHOWN
        running.until(row.replace("\n", "\r\n") + "\\x1b[2Jwords\r\n", ours)
        running.stdin.close()
        assert running.ended() == (0, "")
    os.close(ours)


def test_reading_from_a_terminal_says_so() -> None:
    """Whoever forgot the pipe is told what it waits for."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "proxy", "tail"]
    with subprocess.Popen(command, stdin=theirs, stdout=-1, stderr=-1, cwd=ROOT) as process:
        os.close(theirs)
        os.write(ours, b"words\n\x04")
        assert process.communicate(timeout=DEADLINE_S) == (
            b"words\n",
            b"forkwatch: reading log lines from the terminal; pipe a log in, or give --file\n",
        )
    os.close(ours)
