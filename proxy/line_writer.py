"""Log lines on their way out: a bounded queue and the one thread that writes it.

The reader of a process's stdout may stall, and a pipe holds 64 KiB; an event loop that waits for it
stalls every stream. So `msg` never blocks: it queues, or counts what it drops. No line is cut while
the stream works: a pipe takes up to PIPE_BUF bytes in one piece or not at all, and no more than that
is handed over at once, unless a single line is longer. A file takes more.
"""

from __future__ import annotations

import io
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

CAPACITY_LINES = 10_000
CLOSE_DEADLINE_S = 1.0
_NOTICE_EVERY_S = 1.0
_PAUSE_S = 0.02
"""How long lines gather once there is one. To wake a thread for each costs more than the line itself."""
_FILE_BYTES = 64 * 1024
"""What is written to a file at once."""


class LineWriter:
    """Writes lines to `stream` from a thread of its own, in the order they were given.

    `notice` renders the line that says how many were dropped; it is called in that thread, once
    writing goes on. If `stream` has a file descriptor it is used directly: a thread that hangs in a
    buffered writer would hang the interpreter's exit as well.
    """

    def __init__(
        self, stream: BinaryIO, *, notice: Callable[[int], bytes], capacity: int = CAPACITY_LINES
    ) -> None:
        stream.flush()
        self._stream = stream
        self._fd = _descriptor(stream)
        in_one_piece = self._fd is not None and not stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._batch_bytes = select.PIPE_BUF if in_one_piece else _FILE_BYTES
        self._notice = notice
        self._capacity = capacity
        self._lines: deque[bytes] = deque()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._closed = False
        self._torn = False
        """A failed write may have left part of a line, which the next one must not continue."""
        self._refused = 0
        self._failed = 0
        self._noticed = 0
        self._noticed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that will never be written: the queue was full, the log closed, or the write failed."""
        return self._refused + self._failed

    def msg(self, line: bytes) -> None:
        """Queue one line, which ends in a newline. Never blocks and never raises."""
        if self._closed or len(self._lines) >= self._capacity:
            self._refused += 1
            return
        self._lines.append(line)
        if not self._wake.is_set():
            self._wake.set()

    def close(self, deadline_s: float = CLOSE_DEADLINE_S) -> bool:
        """Write what is queued, for `deadline_s` at most. Whether all of it was written. Idempotent."""
        self._closed = True
        self._ended.set()
        self._wake.set()
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if not self._closed:
                self._ended.wait(_PAUSE_S)
            # Cleared before the queue is looked at: a line queued after that wakes the next turn.
            self._wake.clear()
            closing = self._closed
            while self._lines:
                self._write_batch()
                self._tell_dropped()
            if closing:
                return

    def _write_batch(self) -> None:
        lines = self._lines
        batch = [lines.popleft()]
        size = len(batch[0])
        while lines and (size := size + len(lines[0])) <= self._batch_bytes:
            batch.append(lines.popleft())
        self._failed += 0 if self._write(b"".join(batch)) else len(batch)

    def _tell_dropped(self) -> None:
        """One line for what was dropped since the last one: when caught up, else once a second."""
        dropped, now = self.dropped, time.monotonic()
        due = not self._lines or now - self._noticed_at >= _NOTICE_EVERY_S
        if dropped > self._noticed and due and self._write(self._notice(dropped - self._noticed)):
            self._noticed, self._noticed_at = dropped, now

    def _write(self, data: bytes) -> bool:
        """Whether `data` went out whole; a reader that is gone or a full disk makes it False."""
        if self._torn:
            data = b"\n" + data
        try:
            if self._fd is None:
                self._stream.write(data)
                self._stream.flush()
            else:
                self._write_all(self._fd, memoryview(data))
        except (OSError, ValueError):  # ValueError: the stream was closed under us
            return False
        return True

    def _write_all(self, fd: int, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
                self._torn = bool(rest)
            except BlockingIOError:
                # Whoever shares the descriptor made it non-blocking; wait for room as if it were not.
                room = select.poll()
                room.register(fd, select.POLLOUT)
                room.poll()


def _descriptor(stream: BinaryIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None
