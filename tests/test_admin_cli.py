"""The commands that ask a running proxy: what each asks for, and every line it prints of the answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proxy.cli
from proxy.cli import main
from proxy.cli.sessions import sessions_lines
from proxy.cli.tables import Screen, ago, duration, escaped
from proxy.engine.findings import Verdict
from proxy.engine.privacy import hash_session
from tests.admin_interface import (
    AFTER,
    BEFORE,
    DETAIL,
    NOW,
    PROBLEM,
    SESSION,
    STATUS,
    SUMMARY,
    Interface,
    isolated,
    lines,
    serving,
)

ROOT = Path(__file__).parent.parent
Printed = pytest.CaptureFixture[str]

SESSION_TEXT = """\
s_5b2f0c9e41aa  tools  active
opened 14:03:00 (20 s ago), used 12 s ago
protocol 2025-06-18, ids integer, epoch 2
10 events in 1 stream, 1 open, 1 request in flight

STREAM  KIND  NEWEST ID  IDS  EPOCH  OPEN  IN FLIGHT  REPLICA
get-1   get           3   10      2     1          1  -

CONNECTION  KIND    OPENED    FOR    EVENTS  REPLICA  ENDED           VERDICT
get-1       get     14:03:00  7.0 s       7  pod-a    upstream_reset  -
get-1       resume  14:03:08  12 s        3  pod-b    open            fork/log_restarted proven
(2 older connections forgotten)

get-1, resumed 14:03:08
       pod-a                             1.0 s away ║ pod-b
  H 7 │                                           ○ ║░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
      │                                    ○        ║░░░░░░░░░░░░░░░ 2 lost ░░░░░░░░░░░░░░░░░░░░░░
  L 5 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄║┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
      │                      ○                      ║
      │               ○                             ║                                           x
      │        ○                                    ║                      x
got 1 │ ○                                           ║ x
      └─────────────────────────────────────────────╨─────────────────────────────────────────────
        14:03:01                            14:03:07  14:03:08                            14:03:10
        ○ before  x of another log  ░ due
FORK: the client asked for what follows 5 and got id 1: another log (log_restarted, proven). 2
events are lost. 1 request had no answer yet: one that comes now may be another's. The replica
changed from pod-a to pod-b. In enforce the session would have been cut here.
Hint: The replicas differ: route by Mcp-Session-Id.
"""
"""What `session` prints of it."""


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing comes from whoever runs the tests."""
    with isolated(monkeypatch):
        yield


@pytest.fixture
def directory() -> Iterator[str]:
    """A directory with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="fw-") as path:
        yield path


@pytest.fixture
def interface(directory: str) -> Iterator[Interface]:
    """An interface where one of a proxy at port 8080 would be."""
    with serving(f"{directory}/forkwatch-8080.sock") as server:
        yield server


def test_status(interface: Interface, capsys: Printed) -> None:
    """The process, its upstreams, and everything that is out of order."""
    interface.replies["GET /api/v1/status"] = (200, STATUS)
    assert main(["status", *interface.flags]) == 0
    out, err = capsys.readouterr()
    assert (lines(out), err) == (
        lines("""
forkwatch 0.1.0  draining (draining)  up 100 min  pid 17  python 3.13.1
listen   http://127.0.0.1:8080
status   http://127.0.0.1:9464
admin    unix:/run/forkwatch/forkwatch-8080.sock
config   /etc/f.yaml, the last reload failed; in force is that of 12:23:20 (100 min ago)
         f.yaml:3: x
ledger   3.0 MiB of 256 MiB
open     4 exchanges

UPSTREAM  MODE      SESSIONS  QUARANTINED  STREAMS  IN FLIGHT  RESUMES  FORK  CROSSED  GAP  REWOUND  REFUSED
tools     observe*         3            1        4          1       12     1        0    0        0        1

* tools: switched until 14:13:20, then enforce again
tools: 9 events lost at least, 0 came twice
tools: 2 requests never got an answer
tools: 1 resume would have been cut in enforce
tools: the detector gave up 1 time; see check.failed_open in the log
tools: 3 upstream errors; see upstream.error in the log
1 log line dropped: the log's reader stalls
"""),
        "",
    )


def test_a_question_is_a_plain_get(interface: Interface) -> None:
    """Questions carry neither the header of mutations nor an Origin, and a host that is this one."""
    interface.replies["GET /api/v1/status"] = (200, STATUS)
    assert main(["status", *interface.flags]) == 0
    assert [(each.method, each.target, each.body) for each in interface.asked] == [
        ("GET", "/api/v1/status", "")
    ]
    assert interface.asked[0].headers == {
        "Host": "localhost",
        "Accept-Encoding": "identity",
        "Accept": "application/json",
        "Connection": "close",
    }


@pytest.mark.parametrize(
    ("argv", "asked", "answer"),
    [
        (["status"], "GET /api/v1/status", STATUS),
        (["session", SESSION, "--upstream", "a b"], f"GET /api/v1/sessions/{SESSION}?upstream=a+b", DETAIL),
        (["config"], "GET /api/v1/config", {"path": None, "settings": []}),
        (["policy", "observe"], "POST /api/v1/policy", {"changed": []}),
        (["reload", "--dry-run"], "POST /api/v1/reload?dry_run=1", {"reloaded": False, "changed": ["x\x9b"]}),
        (["drain"], "POST /api/v1/drain", {"state": "draining", "open_exchanges": 1}),
        (["quarantine", SESSION], f"POST /api/v1/sessions/{SESSION}/quarantine", {"session": SESSION}),
    ],
)
def test_json_is_the_answer(
    argv: list[str], asked: str, answer: object, interface: Interface, capsys: Printed
) -> None:
    """`--json` prints what the interface said, in characters that are safe anywhere."""
    interface.replies[asked] = (200, answer)
    assert main([*argv, *interface.flags, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == (answer, "")
    assert out.isascii()


def test_session(interface: Interface, capsys: Printed) -> None:
    """The facts, the logs, the connections, the picture and what it means."""
    interface.replies[f"GET /api/v1/sessions/{SESSION}"] = (200, DETAIL)
    assert main(["session", SESSION, *interface.flags]) == 0
    assert capsys.readouterr() == (SESSION_TEXT, "")


def test_a_raw_session_id_does_not_travel(interface: Interface, capsys: Printed) -> None:
    """A raw id is hashed before it is asked for, since it is a credential."""
    raw = "9d1f/../secret?x"
    hashed = hash_session(raw)
    interface.replies[f"GET /api/v1/sessions/{hashed}"] = (200, DETAIL | {"session": hashed})
    assert main(["session", raw, *interface.flags]) == 0
    assert [each.target for each in interface.asked] == [f"/api/v1/sessions/{hashed}"]
    assert capsys.readouterr().out.startswith(f"{hashed}  tools  active\n")


def test_a_session_without_resumes(interface: Interface, capsys: Printed) -> None:
    """Nothing judged is a sentence, a quarantine by hand a line."""
    timeline = {"now": NOW, "forgotten": 0, "connections": [BEFORE | {"replica": None}]}
    quarantine = {"since_at": NOW - 60, "until_at": NOW + 300, "verdict": None, "reason": "operator"}
    detail = DETAIL | {
        "state": "quarantined",
        "quarantine": quarantine,
        "timeline": timeline,
        "protocol": None,
        "logs": [],
    }
    interface.replies[f"GET /api/v1/sessions/{SESSION}"] = (200, detail)
    assert main(["session", SESSION, *interface.flags]) == 0
    assert capsys.readouterr() == (
        """\
s_5b2f0c9e41aa  tools  quarantined
opened 14:03:00 (20 s ago), used 12 s ago
protocol -, ids integer, epoch 2
10 events in 1 stream, 1 open, 1 request in flight
quarantined since 14:02:20 (by hand), 5 min left

CONNECTION  KIND  OPENED    FOR    EVENTS  REPLICA  ENDED           VERDICT
get-1       get   14:03:00  7.0 s       7  -        upstream_reset  -

no resume yet: nothing to judge
""",
        "",
    )


def test_sessions() -> None:
    """One line a session, and whether there are more."""
    other = SUMMARY | {"state": "quarantined", "verdict": None, "upstream": "other", "events": 12345}
    assert sessions_lines([SUMMARY, other], NOW, Screen(), more=True) == lines("""
SESSION         UPSTREAM  STATE        OPENED    USED      EVENTS  OPEN  IN FLIGHT  VERDICT
s_5b2f0c9e41aa  tools     active       14:03:00  12 s ago      10     1          1  fork/log_restarted proven
s_5b2f0c9e41aa  other     quarantined  14:03:00  12 s ago   12345     1          1  -
(the newest 2; --limit 0 shows all)
""")
    assert sessions_lines([], NOW, Screen()) == [
        "no session matches: one appears when a client has initialized through the proxy; clients of the"
        " 2026-07-28 revision, and stateless servers, open none"
    ]


def pages(interface: Interface, count: int, query: str = "") -> None:
    """`count` sessions, which the interface gives in pages of at most 500, and of any size asked for."""
    for start in range(0, count, 500):
        for size in {min(500, count - start), 500, 10, 20}:
            end = min(start + size, count)
            target = f"GET /api/v1/sessions?{query}limit={size}" + (f"&after=t{start}" if start else "")
            found = [SUMMARY | {"events": n} for n in range(start, end)]
            body = {"sessions": found, "next": f"t{end}" if end < count else None}
            interface.replies[target] = (200, body)


@pytest.mark.parametrize(
    ("limit", "shown", "after", "requests"),
    [("10", 10, "t10", 1), ("0", 1020, None, 3), ("510", 510, "t510", 2), ("2000", 1020, None, 3)],
)
def test_sessions_are_paged(
    limit: str, shown: int, after: str | None, requests: int, interface: Interface, capsys: Printed
) -> None:
    """As many pages as the limit takes, no more of each than is wanted, all of them for 0."""
    pages(interface, 1020)
    assert main(["sessions", *interface.flags, "--limit", limit, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["events"] for each in answer["sessions"]] == [*range(shown)]
    assert (answer["next"], len(interface.asked)) == (after, requests)


def test_sessions_are_filtered_there(interface: Interface, capsys: Printed) -> None:
    """Filters are the interface's."""
    pages(interface, 1, "state=active&upstream=tools&verdict=fork&")
    flags = ["--state", "active", "--upstream", "tools", "--verdict", "fork", "--limit", "10"]
    assert main(["sessions", *interface.flags, *flags]) == 0
    assert [line.split()[0] for line in lines(capsys.readouterr().out)] == ["SESSION", SESSION]


CHANGE = {
    "upstream": "tools",
    "mode": "observe",
    "previous_mode": "enforce",
    "until_at": NOW + 600,
    "released": 2,
}
BACK = {"upstream": "tools", "mode": "enforce", "previous_mode": "observe", "until_at": None, "released": 0}


@pytest.mark.parametrize(
    ("argv", "sent", "changed", "expected"),
    [
        (
            ["observe", "--upstream", "tools", "--ttl", "10m"],
            {"mode": "observe", "upstream": "tools", "ttl": "10m"},
            [CHANGE, CHANGE | {"mode": "enforce", "released": 0}],
            """
tools: observe, was enforce, until 14:13:20 or forkwatch policy configured; 2 quarantined sessions released
tools: enforce, until 14:13:20 or forkwatch policy configured
""",
        ),
        (
            ["configured"],
            {"mode": "configured", "upstream": None, "ttl": None},
            [BACK],
            "tools: enforce, was observe, as configured",
        ),
        (["annotate"], {"mode": "annotate", "upstream": None, "ttl": None}, [], "nothing changed"),
    ],
)
def test_policy(
    argv: list[str],
    sent: dict[str, object],
    changed: list[dict[str, object]],
    expected: str,
    interface: Interface,
    capsys: Printed,
) -> None:
    """A switch says what it changed and when it ends; its request carries the header of mutations."""
    interface.replies["POST /api/v1/policy"] = (200, {"changed": changed})
    assert main(["policy", *argv, *interface.flags]) == 0
    out, err = capsys.readouterr()
    assert (lines(out), err) == (lines(expected), "")
    (asked,) = interface.asked
    assert (json.loads(asked.body), asked.headers["X-Forkwatch-Admin"]) == (sent, "1")
    assert "Origin" not in asked.headers


def test_quarantine_and_release(interface: Interface, capsys: Printed) -> None:
    """Both say what they did to which session."""
    path = f"/api/v1/sessions/{SESSION}/quarantine"
    answer = {
        "session": SESSION,
        "upstream": "tools",
        "state": "quarantined",
        "until_at": NOW,
        "ended_exchanges": 1,
    }
    interface.replies[f"POST {path}?upstream=tools"] = (200, answer)
    interface.replies[f"DELETE {path}"] = (200, answer | {"state": "active"})
    assert main(["quarantine", SESSION, "--upstream", "tools", *interface.flags]) == 0
    assert main(["quarantine", SESSION, "--release", *interface.flags]) == 0
    assert lines(capsys.readouterr().out) == [
        f"{SESSION} of tools is quarantined until 14:03:20; 1 exchange ended",
        f"{SESSION} of tools is released: its requests go upstream again",
    ]
    assert [each.headers["X-Forkwatch-Admin"] for each in interface.asked] == ["1", "1"]


DONE = {"reloaded": True, "dry_run": False, "changed": [], "restart_needed": [], "warnings": []}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (DONE, "reloaded, nothing changed"),
        (
            DONE
            | {"dry_run": True, "changed": ["a"], "restart_needed": ["listen"], "warnings": ["b: c\x1b"]},
            """
would be reloaded
changed: a
needs a restart: listen
warning: b: c\\x1b
""",
        ),
    ],
)
def test_reload(answer: dict[str, object], expected: str, interface: Interface, capsys: Printed) -> None:
    """What changed, what did not take effect, and the warnings."""
    interface.replies["POST /api/v1/reload"] = (200, answer)
    assert main(["reload", *interface.flags]) == 0
    assert lines(capsys.readouterr().out) == lines(expected)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_reload_of_a_bad_configuration(flags: list[str], interface: Interface, capsys: Printed) -> None:
    """Every error has its line, and nothing was changed."""
    errors = ["f.yaml:3: upstreams[0].mode: no", "f.yaml:4: listen: no"]
    body = PROBLEM | {"status": 422, "reloaded": False, "errors": errors}
    interface.replies["POST /api/v1/reload"] = (422, body)
    assert main(["reload", *interface.flags, *flags]) == 1
    out, err = capsys.readouterr()
    head = "forkwatch: the configuration has errors, and the one in force stays; correct:"
    assert (out and json.loads(out), lines(err)) == ((body, []) if flags else ("", [head, *errors]))


def test_config(interface: Interface, capsys: Printed) -> None:
    """Every setting, and where it comes from."""
    settings = [
        {"key": "listen", "value": "127.0.0.1:8080", "source": "default"},
        {"key": "upstreams[0].mode", "value": "enforce", "source": "file"},
    ]
    interface.replies["GET /api/v1/config"] = (200, {"path": "/etc/f.yaml", "settings": settings})
    assert main(["config", *interface.flags]) == 0
    assert lines(capsys.readouterr().out) == lines("""
/etc/f.yaml
KEY                VALUE           SOURCE
listen             127.0.0.1:8080  default
upstreams[0].mode  enforce         file
""")


def drain_states(interface: Interface, *states: tuple[str, int], begun: int = 202) -> None:
    """A drain that goes through these states and numbers of open exchanges, one a question."""
    left = [*states]

    def status() -> tuple[int, Any]:
        state, count = left.pop(0) if len(left) > 1 else left[0]
        return 200, STATUS | {"state": state, "open_exchanges": count}

    interface.replies["POST /api/v1/drain"] = (
        begun,
        PROBLEM | {"state": "draining", "open_exchanges": states[0][1]},
    )
    interface.replies["GET /api/v1/status"] = status


@pytest.mark.parametrize(
    ("states", "wait", "exit_status", "out", "err"),
    [
        ([("draining", 2), ("draining", 1), ("drained", 0)], "20s", 0, "drained: 0 exchanges open\n", ""),
        ([("draining", 0)], "20s", 0, "draining: 0 exchanges open\n", ""),
        ([("draining", 2)], "0.3s", 1, "", "forkwatch: time ran out; draining: 2 exchanges open\n"),
        (
            [("draining", 2), ("ready", 1)],
            "20s",
            1,
            "",
            "forkwatch: somebody undid the drain; ready: 1 exchange open\n",
        ),
    ],
    ids=["drained", "nothing open", "time ran out", "undone"],
)
def test_drain_waits(
    states: list[tuple[str, int]],
    wait: str,
    exit_status: int,
    out: str,
    err: str,
    interface: Interface,
    capsys: Printed,
) -> None:
    """Until nothing is open any more, or the time is over, or somebody changes their mind."""
    drain_states(interface, *states)
    started = time.monotonic()
    assert main(["drain", "--wait", wait, *interface.flags]) == exit_status
    assert time.monotonic() - started < 10
    assert capsys.readouterr() == (out, err)


def test_drain_of_a_process_that_ends(interface: Interface, capsys: Printed) -> None:
    """One that is stopping already is waited for, and its end is the end of the wait."""
    drain_states(interface, ("draining", 2), begun=409)

    def last() -> tuple[int, Any]:
        os.unlink(interface.path)
        return 200, STATUS

    interface.replies["GET /api/v1/status"] = last
    assert main(["drain", "--wait", "20s", *interface.flags]) == 0
    assert capsys.readouterr() == ("drained: the proxy has ended\n", "")


def test_drain_without_waiting(interface: Interface, capsys: Printed) -> None:
    """It returns at once, and can be undone; a refusal is an error then."""
    drain_states(interface, ("draining", 2))
    interface.replies["DELETE /api/v1/drain"] = (200, {"state": "ready"})
    assert main(["drain", *interface.flags]) == 0
    assert main(["drain", "--undo", *interface.flags]) == 0
    interface.replies["DELETE /api/v1/drain"] = (
        409,
        PROBLEM | {"detail": "the process is ending: start another"},
    )
    assert main(["drain", "--undo", *interface.flags]) == 1
    expected = "draining: 2 exchanges open\nready\n", "forkwatch: the process is ending: start another\n"
    assert capsys.readouterr() == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["sessions", "--limit", "-1"],
        ["sessions", "--state", "x"],
        ["sessions", "--verdict", "x"],
        ["policy", "off"],
        ["session"],
        ["drain", "--wait", "20"],
        ["drain", "--wait", ""],
        ["drain", "--wait", "1s", "--undo"],
        ["tail", "--verdict", "fork,x"],
    ],
)
def test_wrong_arguments(argv: list[str], capsys: Printed) -> None:
    """What cannot be meant exits 2 with the usage."""
    assert main(argv) == 2
    assert "usage: forkwatch" in capsys.readouterr().err


def test_a_switch_back_takes_no_time(capsys: Printed) -> None:
    """`configured` ends a switch; a time for it is a misunderstanding."""
    assert main(["policy", "configured", "--ttl", "1h"]) == 1
    expected = "forkwatch: configured ends a switch and takes no --ttl; leave it out\n"
    assert capsys.readouterr() == ("", expected)


def test_verdicts_are_the_engine_s() -> None:
    """The command line's copy of the closed set, which it cannot afford to import, is the same."""
    assert tuple(Verdict) == proxy.cli._VERDICTS


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.04, "0.0 s"),
        (9.9, "9.9 s"),
        (12.4, "12 s"),
        (119, "119 s"),
        (150, "2 min"),
        (8100, "2 h 15 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    """Two digits or so are enough."""
    assert duration(seconds) == expected
    assert ago(NOW - 3.4, NOW) == "3 s ago"
    assert ago(None, NOW) == "-"


def test_escapes() -> None:
    """Control characters, direction marks and half characters are shown; length is that of what is shown."""
    assert escaped("a\x1b[2J\n\u202e\udcff\x9bé") == "a\\x1b[2J\\n\\u202e\\udcff\\x9bé"
    assert escaped("\x00" * 99, 12) == "\\x00\\x00..."
    assert escaped("x" * 12, 12) == "x" * 12


def command(*argv: str, **other: Any) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    line = [sys.executable, "-m", "proxy", *argv]
    return subprocess.run(line, timeout=30, cwd=ROOT, check=False, **other)


def test_an_output_without_unicode(interface: Interface) -> None:
    """It gets the picture in ASCII, and escapes for what it has no characters for."""
    evil = DETAIL | {
        "timeline": {"now": NOW, "forgotten": 0, "connections": [BEFORE | {"replica": "é"}, AFTER]}
    }
    interface.replies[f"GET /api/v1/sessions/{SESSION}"] = (200, evil)
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = command("session", SESSION, *interface.flags, env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"got 1 | o     " in done.stdout
    assert b"upstream_reset  -\n" in done.stdout
    assert rb"  \xe9 " in done.stdout


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour(variables: dict[str, str], coloured: bool, interface: Interface) -> None:
    """Only on a terminal, and not if somebody minds."""
    interface.replies["GET /api/v1/status"] = (200, STATUS)
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", **variables}
    done = command("status", *interface.flags, env=env, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = os.read(ours, 65536)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"\x1b[33mdraining\x1b[0m" in shown, b"\x1b[" in shown) == (coloured, coloured)


def test_a_reader_that_leaves(interface: Interface) -> None:
    """As in `forkwatch sessions | head`: no traceback, nothing said."""
    pages(interface, 500)
    reading, writing = os.pipe()
    os.close(reading)
    done = command("sessions", *interface.flags, "--limit", "0", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_standard_library_is_enough(interface: Interface) -> None:
    """These commands start without the proxy's dependencies."""
    interface.replies[f"GET /api/v1/sessions/{SESSION}"] = (200, DETAIL)
    code = (
        f"import sys; from proxy.cli import main; main(['session', {SESSION!r}, *{interface.flags!r}]); "
        "names = {m.partition('.')[0] for m in sys.modules} - {'proxy', '__main__'}; "
        "print(*names - sys.stdlib_module_names, file=sys.stderr)"
    )
    line = [sys.executable, "-S", "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, cwd=ROOT, check=True)
    assert (done.stdout.count("FORK: "), done.stderr.split()) == (1, [])
