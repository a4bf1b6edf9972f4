"""A session with a pending call, and the fork that cuts it."""

from __future__ import annotations

from proxy.engine.findings import CloseCause, StreamClosed
from proxy.engine.policy import Policy
from tests.engine.drive import event
from tests.engine.shell import Client, Shell

FORKED = event(1, "reborn")
"""The first frame of another log."""


def pending(policy: Policy | None = None) -> Shell:
    """A session whose call 7 is owed an answer: its stream has shown 1 to 5 and lost its connection."""
    shell = Shell(policy)
    shell.open_session()
    shell.owing(7, *(event(number) for number in range(1, 6)))
    return shell


def cut(shell: Shell) -> Client:
    """A resume that is answered by another log."""
    client = shell.open_get(5)
    client.send(FORKED, event(2, "reborn"))
    assert shell.quarantined == [b"s1"]
    return client


def closed(shell: Shell, kind: str) -> list[CloseCause]:
    """Why streams of this kind ended."""
    return [item.cause for item in shell.reports if isinstance(item, StreamClosed) and item.kind == kind]
