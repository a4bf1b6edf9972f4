"""Real SDK clients behave through the proxy as they do without it, and a healthy session raises no alarm."""

from __future__ import annotations

import pytest

from tests.peers.conftest import Serve, Watch
from tests.peers.processes import CLIENT_COMMANDS, run_client

EXPECTED = {
    "results": ["done c 3", "polled", "poked"],
    "notes": ["before-close", "c0", "c1", "c2", "g0", "g1", "g2", "while-away"],
}


@pytest.mark.parametrize("server_name", ["py1-uuid", "py2-int", "fastmcp", "ts1"])
async def test_real_clients_see_the_same_and_nothing_is_raised(
    server_name: str, serve: Serve, watch: Watch
) -> None:
    """A streamed call, a polled call, notifications and DELETE: the same results as direct, no alarm."""
    server = await serve(server_name)
    watched = await watch(server)
    for client in CLIENT_COMMANDS:
        direct = await run_client(client, f"{server.url}/mcp")
        proxied = await run_client(client, f"{watched.url}/mcp")
        assert proxied == direct, client
        assert EXPECTED.items() <= proxied.items(), client
    assert await watched.alarms() == {}
    assert await watched.counters.grown("sessions_closed_total", reason="deleted") == len(CLIENT_COMMANDS)
