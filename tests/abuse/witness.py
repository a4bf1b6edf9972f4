"""A stream that runs beside the abuse: whoever disturbs others disturbs it.

It has an upstream of its own and runs in threads of its own, on blocking sockets, so that a test that keeps
its event loop busy does not delay it. What a busy machine does is not the proxy's doing: the time in which the
proxy could have run and got no processor is taken off, and so is what an event took on a second connection,
which does not pass the proxy.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 0.05
GAP_S = 0.3
"""No event comes so long after the one before it, if that is how long the upstream and the machine let it."""
PATIENCE_S = 10.0
_FRAME_END = b"\n\n"
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def _frame(n: int) -> bytes:
    return b"id: %d\ndata: %b" % (n, b"%d " % n * 20) + _FRAME_END


@dataclass(slots=True)
class _Reader:
    """One end of the stream: when each event came, and whether all of its bytes were as they were sent."""

    sock: socket.socket
    now: Callable[[], float]
    arrived: list[float] = field(default_factory=list)
    wrong: bytes = b""
    """What came in place of an event."""

    def run(self) -> None:
        """Read until the connection ends."""
        with self.sock.makefile("rb") as wire, contextlib.suppress(OSError, ValueError):
            while wire.readline() not in (b"\r\n", b""):
                pass
            unended = b""
            while line := wire.readline():
                unended += wire.read(int(line, 16) + 2)[:-2]
                *frames, unended = unended.split(_FRAME_END)
                for frame in frames:
                    self._note(frame + _FRAME_END, self.now())

    def _note(self, frame: bytes, now: float) -> None:
        self.arrived.append(now)
        if frame != _frame(len(self.arrived)):
            self.wrong = self.wrong or frame


class Witness:
    """The stream. `port` is its upstream's; `start` once a proxy leads there."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(PATIENCE_S)
        self.port: int = self._server.getsockname()[1]
        self._sent: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._server]
        self._taken = 0

    def start(self, pid: int, proxy_port: int, target: str) -> None:
        """Open the stream through the proxy, the process `pid`, and the one beside it."""
        waited = Path(f"/proc/{pid}/schedstat")

        def running() -> float:
            return time.monotonic() - int(waited.read_text().split()[1]) / 1e9

        self._clocks = (running, time.monotonic)
        ends = [self._open(port, target) for port in (proxy_port, self.port)]
        clients, upstream = [client for client, _ in ends], [peer for _, peer in ends]
        self._proxied, self._direct = map(_Reader, clients, self._clocks)
        self._run(self._send, upstream)
        for reader in (self._proxied, self._direct):
            self._run(reader.run)

    def _open(self, port: int, target: str) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: witness\r\n\r\n".encode())
        peer, _ = self._server.accept()
        self._sockets += [client, peer]
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(65536)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(_HEAD)
        return client, peer

    def _run(self, what: object, *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _send(self, peers: list[socket.socket]) -> None:
        while not self._over.wait(EVERY_S):
            frame = _frame(len(self._sent) + 1)
            chunk = b"%x\r\n%b\r\n" % (len(frame), frame)
            self._sent.append((self._clocks[0](), self._clocks[1]()))
            with contextlib.suppress(OSError):
                for peer in peers:
                    peer.sendall(chunk)

    def undisturbed(self) -> None:
        """Assert that every event since the last call came, unchanged, in time and in order."""
        upto = len(self._sent)
        deadline = time.monotonic() + PATIENCE_S
        while min(len(self._proxied.arrived), len(self._direct.arrived)) < upto:
            assert time.monotonic() < deadline, "events of the witness never came"
            time.sleep(EVERY_S / 10)
        assert self._proxied.wrong == b""
        late = [
            (proxied - sent) - (direct - sent_directly)
            for proxied, direct, (sent, sent_directly) in zip(
                self._proxied.arrived[self._taken : upto],
                self._direct.arrived[self._taken : upto],
                self._sent[self._taken : upto],
                strict=True,
            )
        ]
        self._taken = upto
        assert max(late, default=0.0) < GAP_S - EVERY_S

    def stop(self) -> None:
        """End the stream and its threads."""
        self._over.set()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
