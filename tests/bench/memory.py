"""What it costs to remember: the engine alone, with 10,000 sessions of one stream with 256 relayed ids.

Real frames go through `Exchange`; each kind of id is measured in a process of its own, as growth of RSS.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from proxy.engine.exchange import Exchange
from proxy.engine.findings import Ending
from proxy.engine.heads import Answer, Request
from proxy.engine.ledger import Bounds, Upstream
from proxy.engine.sessions import Ledger

SESSIONS = 10_000
IDS = 256
LIMIT_MIB = 120
MIB = 1024 * 1024
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
KINDS: dict[str, Callable[[int, int], str]] = {
    "integer": lambda session, n: str(n),
    "stream_seq": lambda session, n: f"{session:08x}-standalone_{n}",
    "opaque": lambda session, n: f"{(session * 0x9E3779B97F4A7C15 + n * 0xBF58476D1CE4E5B9) % 2**128:032x}",
}


def rss_bytes() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def session_key(number: int) -> bytes:
    """The id of a session."""
    return b"%032x" % number


def frames(kind: str, session: int, count: int) -> bytes:
    """`count` events as a server sends them."""
    name = KINDS[kind]
    data = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"line %d"}}'
    return b"".join(f"id: {name(session, n)}\ndata: {data % n}\n\n".encode() for n in range(count))


class Engine:
    """The ledger, and the exchanges that fill it."""

    def __init__(self, ids_per_stream: int = 1024) -> None:
        self.ledger = Ledger(Bounds(ids_per_stream=ids_per_stream, ledger_bytes=1 << 40), {"mcp": None})

    @property
    def upstream(self) -> Upstream:
        """The one upstream."""
        return self.ledger.upstreams["mcp"]

    def open_session(self, key: bytes) -> None:
        """An `initialize` and its answer."""
        request = Request("POST", None, None, "2025-11-25")
        exchange = Exchange(self.ledger, self.upstream, request, 0.0, deadline_s=5.0)
        exchange.began(0.0)
        exchange.uploaded(INITIALIZE)
        exchange.responded(Answer(200, False, session=key), 0.0)
        exchange.ended(Ending.CLEAN, 0.0)

    def open_stream(self, key: bytes, cursor: bytes | None = None) -> Exchange:
        """A GET answered by an event stream, resumed from `cursor` if there is one."""
        request = Request("GET", key, cursor, "2025-11-25")
        exchange = Exchange(self.ledger, self.upstream, request, 0.0, deadline_s=5.0)
        exchange.began(0.0)
        exchange.responded(Answer(200, True), 0.0)
        assert exchange.relay is not None
        return exchange

    def fill(self, kind: str, sessions: int, ids: int, *, streaming: bool) -> list[Exchange]:
        """Sessions whose stream has shown ids; the exchanges that stay open, none unless `streaming`."""
        still_open = []
        for number in range(sessions):
            exchange = self.fill_one(kind, number, ids)
            if streaming:
                still_open.append(exchange)
            else:
                exchange.ended(Ending.CLIENT_LEFT, 2.0)
        return still_open

    def fill_one(self, kind: str, number: int, ids: int) -> Exchange:
        """One of them."""
        key = session_key(number)
        self.open_session(key)
        exchange = self.open_stream(key)
        exchange.receive(frames(kind, number, ids), 1.0)
        return exchange


def measure(kind: str, *, streaming: bool, profile: bool) -> str:
    """One line of the table; `streaming` keeps the streams open, else they have ended."""
    warm = Engine()
    warm.fill(kind, 10, IDS, streaming=streaming)
    gc.collect()
    if profile:
        tracemalloc.start()
    before = rss_bytes()
    engine = Engine()
    exchanges = engine.fill(kind, SESSIONS, IDS, streaming=streaming)
    gc.collect()
    grown = rss_bytes() - before
    assert engine.upstream.sessions_active == SESSIONS
    assert len(exchanges) == (SESSIONS if streaming else 0)
    if profile:
        top = tracemalloc.take_snapshot().statistics("lineno")[:20]
        print("\n".join(f"{stat.size / SESSIONS:8.0f} B/session  {stat.traceback}" for stat in top))
    state = "open" if streaming else "ended"
    accounted = engine.ledger.held_bytes / MIB
    return f"{kind:12}{state:8}{grown / MIB:12.1f}{accounted:12.1f}{grown / SESSIONS:14.0f}"


def main(argv: list[str] | None = None) -> int:
    """Measure every kind, or one, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind of id, in this process")
    parser.add_argument("--open", action="store_true", help="with --kind: the streams stay open")
    parser.add_argument("--profile", action="store_true", help="with --kind: where the memory was allocated")
    options = parser.parse_args(argv)
    if options.kind is not None:
        print(measure(options.kind, streaming=options.open, profile=options.profile), flush=True)
        return 0
    print(f"{SESSIONS} sessions x {IDS} ids: at most {LIMIT_MIB} MiB")
    print(f"{'ids':12}{'streams':8}{'RSS, MiB':>12}{'counted':>12}{'B a session':>14}", flush=True)
    for kind in KINDS:
        for flags in ([], ["--open"]) if kind == "integer" else ([],):
            subprocess.run([sys.executable, "-m", "tests.bench.memory", "--kind", kind, *flags], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
