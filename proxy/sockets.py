"""What the kernel is asked to do about silent peers, on both sides of the proxy."""

from __future__ import annotations

import socket

_PROBES = 4
"""So many unanswered ones, a quarter of the idle time apart, and the peer is given up."""

_MOST_S = 32767
"""The longest that Linux waits before it probes."""

_IDLE: int = getattr(socket, "TCP_KEEPIDLE", 0x10)
"""macOS has it as TCP_KEEPALIVE."""


def keep_alive(sock: socket.socket, idle_s: float | None) -> None:
    """Have the kernel probe a peer that was silent for `idle_s` seconds; None is never.

    What is set on a listening socket holds for the connections that it accepts.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, idle_s is not None)
    if idle_s is None:
        return
    idle = min(max(1, round(idle_s)), _MOST_S)
    sock.setsockopt(socket.IPPROTO_TCP, _IDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(idle / _PROBES)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
