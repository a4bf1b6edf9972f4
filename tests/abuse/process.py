"""What a test asserts of the proxy's process besides its answers: memory, descriptors, its log.

The figures are read from /proc, so these tests need Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.abuse.witness import Witness
from tests.forkwatch_process import POLL_S, Forkwatch
from tests.scripted_upstream import PATIENCE_S, Upstream
from tests.wire import Lab, entry, forget_peak, lab, peak_rss_bytes, rss_bytes

MIB = 1024 * 1024
WITNESS = "/witness"
_KEEPALIVE_TIMER = "02"
_TICKS_PER_S = 100

Entries = Callable[[Upstream], list[dict[str, Any]]]


@contextlib.asynccontextmanager
async def abused(
    directory: Path, entries: Entries, *, timeouts: dict[str, str] | None = None, **top: Any
) -> AsyncIterator[tuple[Lab, Witness]]:
    """A proxy process with these upstreams, and the witness beside, whose upstream has these `timeouts`."""
    witness = Witness()

    def with_witness(upstream: Upstream) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{witness.port}"
        own = entry("witness", url, match={"path": WITNESS}, timeouts=timeouts or {})
        return [own, *entries(upstream)]

    try:
        async with lab(directory, with_witness, **top) as made:
            try:
                witness.start(made.proxy.process.pid, made.proxy.port, WITNESS)
                yield made, witness
            finally:
                witness.stop()  # before the process, whose clock it reads
    finally:
        witness.stop()


class Socket(NamedTuple):
    """One end of a TCP connection as the kernel sees it."""

    unread: int
    """Bytes that came and were not read."""
    probed_in_s: int | None
    """The seconds, rounded up, until its silent peer is probed; None while something else is waited for."""


def tcp_socket(local: int, remote: int) -> Socket:
    """The end at the port `local` of the connection to the port `remote`, both of this machine."""
    row = rf"^ *\d+: \w+:{local:04X} \w+:{remote:04X} \w+ \w+:(\w+) (\w+):(\w+) "
    found = re.search(row, Path("/proc/net/tcp").read_text(), re.MULTILINE)
    assert found is not None, f"no connection from port {local} to port {remote}"
    unread, timer, ticks = found.groups()
    probed = -(-int(ticks, 16) // _TICKS_PER_S) if timer == _KEEPALIVE_TIMER else None
    return Socket(int(unread, 16), probed)


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.asynccontextmanager
async def survived(process: tuple[Lab, Witness]) -> AsyncIterator[Lab]:
    """One test's lab; afterwards the witness was undisturbed and every descriptor is back."""
    shared, witness = process
    pid = shared.proxy.process.pid
    before = descriptors(pid)
    witness.undisturbed()
    async with shared.for_one_test() as here:
        yield here
        witness.undisturbed()
    async with asyncio.timeout(PATIENCE_S):
        while descriptors(pid) > before:
            await asyncio.sleep(POLL_S)
    witness.undisturbed()


@contextlib.contextmanager
def grows_less_than(bound: int, here: Lab) -> Iterator[None]:
    """The process's memory stays within `bound` bytes of what it was, at its peak."""
    pid = here.proxy.process.pid
    forget_peak(pid)
    before = rss_bytes(pid)
    yield
    grown = peak_rss_bytes(pid) - before
    print(f"grew by {grown / MIB:.1f} MiB of {bound / MIB:.0f}")
    assert grown < bound


async def gauge(proxy: Forkwatch, name: str, **labels: str) -> float:
    """The value of `forkwatch_NAME` now."""
    samples = await proxy.metrics()
    return samples.get((f"forkwatch_{name}", frozenset(labels.items())), 0.0)


async def logged(proxy: Forkwatch, event: str, upstream: str) -> list[dict[str, Any]]:
    """The log lines of this event about an upstream, once there is one: the log lags behind."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lines = [line for line in proxy.log() if line.get("upstream") == upstream]
            if found := [line for line in lines if line["event"] == event]:
                return found
            await asyncio.sleep(POLL_S)
