"""The dialect table: any id of up to 64 KiB is read without an error and in bounded time, and order is an order.

An input is lines: the first is what stands under `ids:` in the configuration, the others are event ids of one
stream in their order. `{:*60000}` inside an id stands for so many repetitions.
"""

from __future__ import annotations

import itertools
import re
import time

from proxy.engine.ids import (
    DIALECTS,
    RMCP,
    Dialect,
    EventId,
    Evidence,
    IdClass,
    compare,
    forced,
    guess,
    known,
)
from tests.fuzz.target import Target, bounded, chance, must, same

LARGEST = 64 * 1024
_SHORT = 1024
_SUSPECT_S = 0.0003
"""Ten times what reading a short id may take; one that takes longer is tried at its full length."""
_REPEATED = re.compile(rb"\{([^{}\n]{1,16})\*([0-9]{1,5})\}")
SESSION = b"session-1"


def expanded(id: bytes, largest: int) -> bytes:
    """The id with its repetitions written out."""
    return _REPEATED.sub(lambda found: found[1] * min(int(found[2]), largest // len(found[1])), id)[:largest]


def swift(dialect: Dialect | None, line: bytes) -> None:
    """Guessing and parsing take bounded time whatever the id's length; most are only tried while short."""
    short, long = expanded(line, _SHORT), expanded(line, LARGEST)
    began = time.thread_time()
    with bounded(f"reading {len(short)} bytes that begin with {short[:32]!r}"):
        guess(short) if dialect is None else dialect.parse(short)
    suspect = time.thread_time() - began > _SUSPECT_S
    if suspect or chance(line).random() < 1 / 16:
        with bounded(f"reading {len(long)} bytes that begin with {long[:32]!r}"):
            guess(long) if dialect is None else dialect.parse(long)


def configured(setting: bytes) -> Dialect | None:
    """The dialect that the setting forces; `auto` for what is none."""
    text = setting.decode("latin-1")
    if not known(text):
        try:
            forced(text)
        except ValueError:
            return None
        must(False, "forced() takes what known() does not", text)
    return forced(text)


def parsed_apart(dialect: Dialect, ids: list[bytes]) -> list[EventId]:
    """What the dialect reads in the ids, with what holds for each of them."""
    found = []
    for id in ids:
        recognised = dialect.recognises(id)
        parsed = dialect.parse(id)
        opaque = dialect.cls is IdClass.OPAQUE
        must((parsed is not None) == (recognised and not opaque), "recognised is read", dialect, id, parsed)
        if parsed is not None:
            must(bool(parsed.seq) and all(n >= 0 for n in parsed.seq), "a sequence of numbers", dialect, id)
            tags = [tag for tag in (parsed.stream, parsed.epoch) if tag]
            must(all(tag in id for tag in tags), "tags are parts of the id", dialect, id, parsed)
            found.append(parsed)
    return found


def order(dialect: Dialect, ids: list[EventId]) -> None:
    """The laws of `compare`: reflexive, antisymmetric, transitive, and silent across tags."""
    for a in ids:
        same("compare with itself", compare(a, a, dialect), 0)
        same("compare with nothing", (compare(a, None, dialect), compare(None, a, dialect)), (None, None))
    for a, b in itertools.combinations(ids, 2):
        there, back = compare(a, b, dialect), compare(b, a, dialect)
        same("turned round", back, None if there is None else -there)
        if there is not None:
            equal = (a.session, a.epoch) == (b.session, b.epoch)
            must(equal and not (dialect.per_stream and a.stream != b.stream), "order within equal tags", a, b)
            same("order of the sequences", there, (a.seq > b.seq) - (a.seq < b.seq))
    for a, b, c in itertools.permutations(ids, 3):
        steps = compare(a, b, dialect), compare(b, c, dialect)
        if None not in steps and max(steps) <= 0:  # type: ignore[type-var,operator]
            same("transitive", compare(a, c, dialect), min(steps))  # type: ignore[type-var]


def weighed(dialect: Dialect | None, ids: list[bytes]) -> None:
    """One session's evidence: peeking changes nothing, and what has turned out false stays so."""
    evidence = Evidence(dialect)
    previous: EventId | None = None
    for id in ids:
        before = [getattr(evidence, name) for name in Evidence.__slots__]
        doubted = evidence.disordered or evidence.tags_broken
        peeked = evidence.peek(id)
        same("evidence after a peek", [getattr(evidence, name) for name in Evidence.__slots__], before)
        current = evidence.read(id)
        same("peeked and read", peeked, current)
        evidence.observe(previous, current, SESSION)
        must(not (doubted and evidence.convicts), "doubt stays", ids)
        must(not evidence.tags_convict or not evidence.tags_broken, "broken tags convict nobody", ids)
        if dialect is not None:
            same("a forced dialect", evidence.dialect, dialect)
        previous = current if current is not None else previous


def round_trip(dialect: Dialect | None, ids: list[EventId]) -> None:
    """What a pattern such as `epoch:seq` reads is what stands there: put together again it reads the same."""
    if dialect is None or dialect in (*DIALECTS, RMCP):
        return
    for id in ids:
        tags = {"session": id.session, "stream": id.stream, "epoch": id.epoch, "seq": b"%d" % id.seq[0]}
        words = re.findall(r"[a-z]+|[^a-z]+", dialect.name)
        written = b"".join(tags.get(word) or word.encode("latin-1") for word in words)
        same("written and read again", dialect.parse(written), id)


def check(data: bytes) -> None:
    """All laws for one setting and a few ids."""
    setting, *rest = data.split(b"\n")
    dialect = configured(setting)
    for line in rest[:8]:
        swift(dialect, line)
    ids = [expanded(line, _SHORT) for line in rest[:8]]
    for id in ids:
        found = guess(id)
        must(found.recognises(id), "what is guessed is recognised", id, found)
    for each in DIALECTS if dialect is None else (dialect,):
        read = parsed_apart(each, ids)
        order(each, read[:6])
        round_trip(dialect, read)
    weighed(dialect, ids)


TARGET = Target(
    check,
    [
        b"auto\n",
        b"integer\n",
        b"epoch:seq\n",
        b"stream_seq\n",
        b"epoch:stream:seq\n",
        b"session/stream/seq\n",
        b"{:*60000}",
        b"{a_*30000}",
        b"{1*60000}",
        b"{_*60000}",
        b"{-*60000}",
        b"{,a:b*12000}",
        b"{=*60000}",
        b"12",
        b"3/4",
        b"4#s",
        b"_7",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_3",
        b"1795973200386",
        b"s_1795973200386_ab12",
        b"p_1795973200386_0a1b_x",
        b"1795973200386-3",
        b"czE=:Nw==:5",
        b"s:00000000000000ff",
        b"abcdefghijk:9",
        b"01234567-89ab-cdef-0123-456789abcdef",
        b"s::1795973200386_",
        b"seq",
        b"stream",
        b"epoch",
        b"session",
        b"swift",
        b"mcp-lite",
        b"csharp",
        b"typescript",
        b"opaque",
        b"rmcp",
        b"b'1795973200386-0'",
    ],
    largest=1024,
)
