"""`forkwatch tail`: the proxy's JSON log lines, from a pipe or a file, rendered for people as they come.

Reads and writes descriptors without a buffer between, so that a line is shown when it is written.
Waiting watches the output as well: `forkwatch tail -F -f LOG | head` ends with its reader.
"""

from __future__ import annotations

import argparse
import os
import select
import stat
import sys
from collections.abc import Iterator

from proxy.log_view import Filter, Layout, View

POLL_S = 0.25
"""How often a followed file is looked at: as often as a person would notice."""

_CHUNK_BYTES = 1 << 16
_STDIN, _STDOUT = 0, 1
_CLOSED = select.POLLERR | select.POLLHUP | select.POLLNVAL


def run(args: argparse.Namespace) -> int:
    """Render until the input ends, the reader is gone or Ctrl-C: 0. Returns 1 if it cannot be read."""
    if args.follow and args.file in (None, "-"):
        print("forkwatch: --follow needs a file; give one with --file", file=sys.stderr)
        return 2
    if sys.stdout is None:  # closed before the start, and the file opened next would take its number
        return 0
    view = _view(args)
    try:
        for chunk in _chunks(args):
            _write(view.feed(chunk))
        _write(view.end())
    except (KeyboardInterrupt, BrokenPipeError):
        return 0
    except _Unreadable as error:
        print(f"forkwatch: cannot read {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"forkwatch: cannot write: {error.strerror}", file=sys.stderr)
        return 1
    return 0


class _Unreadable(Exception):
    """The input cannot be opened or read: its name and why."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"{name}: {error.strerror}")


def _view(args: argparse.Namespace) -> View:
    terminal = os.isatty(_STDOUT)
    plain = args.plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    kept = Filter(
        session=args.session or "",
        verdicts=frozenset(word.strip() for words in args.verdict or () for word in words.split(",")),
        upstream=args.upstream or "",
        level=args.level or "",
        event=args.event or "",
    )
    encoding = sys.stdout.encoding or "utf-8"
    return View(kept, Layout(colours=terminal and not plain), terminal=terminal, encoding=encoding)


def _chunks(args: argparse.Namespace) -> Iterator[bytes]:
    """The input as it comes. Raises _Unreadable."""
    if args.file in (None, "-"):
        if os.isatty(_STDIN):
            print(
                "forkwatch: reading log lines from the terminal; pipe a log in, or give --file",
                file=sys.stderr,
            )
        yield from _to_end(_STDIN, "standard input")
    elif args.follow:
        yield from _followed(args.file)
    else:
        fd = _opened(args.file)
        try:
            yield from _to_end(fd, args.file)
        finally:
            os.close(fd)


def _to_end(fd: int, name: str) -> Iterator[bytes]:
    """What can be read until there is no more, now or ever."""
    while True:
        _wait(fd)
        if not (data := _read(fd, name)):
            return
        yield data


def _followed(path: str) -> Iterator[bytes]:
    """A file that grows, is truncated, or has a new one put in its place; never ends by itself."""
    fd, position, last = _opened(path), 0, b"\n"
    try:
        while True:
            # Looked for before the file is read to its end, so that nothing written until then is missed.
            successor = _successor(path, os.fstat(fd))
            for data in _to_end(fd, path):
                position, last = position + len(data), data
                yield data
            if successor is not None:
                os.close(fd)
                fd = successor
            elif _truncated(fd, position):
                os.lseek(fd, 0, os.SEEK_SET)
            else:
                _wait(None, POLL_S)
                continue
            if not last.endswith(b"\n"):  # no line goes on in another file
                yield b"\n"
            position, last = 0, b"\n"
    finally:
        os.close(fd)


def _truncated(fd: int, position: int) -> bool:
    now = os.fstat(fd)
    return stat.S_ISREG(now.st_mode) and now.st_size < position


def _successor(path: str, now: os.stat_result) -> int | None:
    """The file that has the name of the one open, opened; None while there is no other."""
    try:
        there = os.stat(path)
        if (there.st_dev, there.st_ino) == (now.st_dev, now.st_ino):
            return None
        return os.open(path, os.O_RDONLY)
    except OSError:  # being replaced at this moment, or not ours to read yet
        return None


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise _Unreadable(path, error) from error


def _read(fd: int, name: str) -> bytes:
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError as error:
        raise _Unreadable(name, error) from error


def _wait(fd: int | None, timeout_s: float | None = None) -> None:
    """Until `fd` can be read or the time is over. Raises BrokenPipeError if nobody reads the output."""
    ready = select.poll()
    if fd is not None:
        ready.register(fd, select.POLLIN)
    # Asked for nothing, a descriptor still reports that its other end is gone.
    ready.register(_STDOUT, 0)
    events = dict(ready.poll(None if timeout_s is None else timeout_s * 1000))
    if events.get(_STDOUT, 0) & _CLOSED:
        raise BrokenPipeError


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(_STDOUT, rest) :]
        except BlockingIOError:  # whoever shares the descriptor made it non-blocking
            room = select.poll()
            room.register(_STDOUT, select.POLLOUT)
            room.poll()
