"""What leaves of a resumed stream in `annotate` and `enforce`: frame by frame, or with insertions.

Offsets count the bytes of the upstream's body. Insertions stand between its bytes, never between a
CR and its LF nor before a BOM; the bytes themselves leave unchanged and in order, or not at all.
"""

from __future__ import annotations

from proxy.engine.sse import Frame, Scanner
from proxy.engine.terminal import VOID


class Outlet:
    """The part of a stream that has come but not left, and what is to be inserted into it.

    `hold` keeps an unfinished frame back until it is whole, or larger than `gate_bytes`.
    """

    __slots__ = ("_boundary", "_buffer", "_held_s", "_held_since", "_in_line", "_inserts", "_notice",
                 "_pending", "_scanner", "gate_bytes", "hold", "sent")  # fmt: skip

    def __init__(self, scanner: Scanner, *, hold: bool, gate_bytes: int) -> None:
        self._scanner = scanner
        self.hold = hold
        self.gate_bytes = gate_bytes
        self.sent = 0
        """The offset up to which the client has the stream."""
        self._held_s = 0.0
        self._held_since: float | None = None
        self._buffer = bytearray()
        self._in_line = False
        self._inserts: list[tuple[int, bytes]] = []
        self._pending = b""
        """A comment that waits for a frame."""
        self._notice = b""
        """A frame of ours that waits for the end of one."""
        self._boundary = b""
        """A frame of ours that waits for the LF that may follow the CR which ended the last one."""

    def take(self, chunk: bytes) -> None:
        """More of the stream has come; the scanner is fed after this."""
        self._in_line = self._scanner.partial_line
        if self._boundary:
            self._inserts.append((self._scanner.offset + chunk.startswith(b"\n"), self._boundary))
            self._boundary = b""
        self._buffer += chunk

    def completed(self, frame: Frame) -> None:
        """A frame is whole: a comment that waits for a place may stand before it, or inside."""
        if self._pending or self._notice:
            comment, notice = self._pending, self._notice
            self._pending = self._notice = b""
            self.annotate(frame, comment, notice)

    def annotate(self, frame: Frame, comment: bytes, notification: bytes) -> None:
        """Mark the frame that decided, and send a notification (b"" for none) after it."""
        self._inserts.append((self._place(frame), comment))
        if not notification:
            return
        if self._scanner.after_cr and frame.end == self._scanner.offset:
            self._boundary = notification
        else:
            self._inserts.append((frame.end, notification))

    def annotate_silence(self, comment: bytes, notification: bytes) -> bytes:
        """Nothing that came decided: what to send now, as far as it need not wait for the next frame.

        All that came must have left. Before the first byte a BOM may still come, after a CR its LF.
        """
        scanner = self._scanner
        if not scanner.offset or scanner.partial_line or scanner.after_cr:
            self._pending, self._notice = comment, notification
            return b""
        if scanner.mid_frame:
            self._notice = notification
            return comment
        return comment + notification

    def _place(self, frame: Frame) -> int:
        return frame.start if frame.start >= self.sent else frame.blank

    @property
    def idle(self) -> bool:
        """Whether nothing is held back or waits to be inserted."""
        return not (self._buffer or self._pending or self._notice or self._boundary)

    def holds(self, frame: Frame) -> bool:
        """Whether nothing of this frame has left."""
        return frame.start >= self.sent

    def release(self, upto: int, now: float) -> bytes:
        """The stream up to offset `upto`, with what is inserted into it: to be sent now."""
        if self._inserts:
            parts = []
            for at, data in sorted(self._inserts, key=lambda insert: insert[0]):
                parts += [self._cut(at), data]
            self._inserts.clear()
            out = b"".join([*parts, self._cut(upto)])
        else:
            out = self._cut(upto)
        self._held_s = self.held_s(now)
        self._held_since = now if self._buffer else None
        return out

    def held_s(self, now: float) -> float:
        """Seconds during which anything was held back, up to now."""
        return self._held_s + (0.0 if self._held_since is None else now - self._held_since)

    def release_rest(self, now: float) -> bytes:
        """Everything, at the end of the stream; last what found no frame to stand at."""
        scanner = self._scanner
        out = self.release(
            self.sent + len(self._buffer), now
        )  # the scanner may have failed on the last of it
        if self._pending:
            out += (b"\n" if scanner.partial_line else b"") + self._pending
        return out + self._boundary + (b"" if scanner.mid_frame else self._notice)

    def _cut(self, upto: int) -> bytes:
        size = upto - self.sent
        if size <= 0:
            return b""
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.sent = upto
        return data

    def deliverable(self) -> int:
        """The offset up to which bytes may leave while a verdict is to come."""
        begun = self._scanner.begun
        if not self.hold or begun is None or begun < self.sent:
            return self._scanner.offset  # a frame of which a part has left cannot be held back
        return begun

    def overflows(self) -> bool:
        """Whether the unfinished frame is larger than the gate may hold."""
        return self._scanner.offset - self.deliverable() > self.gate_bytes

    def void(self) -> bytes:
        """What ends a frame of which the client holds a part; b"" if it holds none."""
        begun = self._scanner.begun
        if begun is None or begun >= self.sent:
            return b""
        return void(in_line=self._scanner.partial_line)

    def void_completed(self, frame: Frame) -> bytes:
        """The same for a frame that has just become whole but whose last bytes have not left."""
        return b"" if self.holds(frame) else void(in_line=self._in_line)


def void(*, in_line: bool) -> bytes:
    """Make a partly delivered frame one that nobody listens to; `in_line`: its last byte ends no line."""
    return b"\n" + VOID if in_line else VOID
