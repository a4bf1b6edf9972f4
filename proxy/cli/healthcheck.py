"""`forkwatch healthcheck`: asks a running proxy's status listener whether it is ready.

The standard library only, and of that not its HTTP client, which takes longer to import than the
question takes to answer.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time

from proxy.endpoint import Endpoint

DEFAULT_STATUS = "127.0.0.1:9464"
DEADLINE_S = 3.0
"""For everything together. Container runtimes give up after a time of their own, often 5 s or more."""

_HEAD_BYTES = 64
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run(args: argparse.Namespace) -> int:
    """0 if ready, 1 if not ready or not reachable, 2 if the address is none; with one line saying which."""
    text = args.status or os.environ.get("FORKWATCH__STATUS", "").strip() or DEFAULT_STATUS
    try:
        endpoint = Endpoint.parse(text)
    except ValueError as error:
        print(f"forkwatch: the status address is {error}", file=sys.stderr)
        return 2
    endpoint = Endpoint(_EVERY_ADDRESS.get(endpoint.host, endpoint.host), endpoint.port)
    try:
        status = _status_of(endpoint, time.monotonic() + DEADLINE_S)
    except (OSError, ValueError) as error:
        print(f"not ready: {endpoint}: {error}", file=sys.stderr)
        return 1
    if status == 200:
        print(f"ready: {endpoint}")
        return 0
    print(f"not ready: {endpoint}: /readyz answered {status}", file=sys.stderr)
    return 1


def _status_of(endpoint: Endpoint, deadline: float) -> int:
    """The HTTP status of `/readyz`. Raises OSError, or ValueError when the answer is not HTTP."""
    request = f"GET /readyz HTTP/1.1\r\nHost: {endpoint}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((endpoint.host, endpoint.port), timeout=DEADLINE_S) as connection:
        connection.sendall(request.encode("ascii"))
        head = b""
        while b"\r\n" not in head and len(head) < _HEAD_BYTES:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            data = connection.recv(_HEAD_BYTES)
            if not data:
                break
            head += data
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        raise ValueError("the answer is not HTTP")
    return int(rest[:3])
