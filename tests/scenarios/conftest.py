"""One proxy process and one scripted upstream for all scenarios; each has sessions of its own."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.forkwatch_process import Counters, Forkwatch
from tests.scenarios.exchange import ScriptedUpstream
from tests.scenarios.lab import Lab

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All scenarios run in one loop, for the upstream lives in it."""
    for item in items:
        if HERE in item.path.parents and inspect.iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def entry(name: str, port: int, **settings: Any) -> dict[str, Any]:
    """The configuration of one way to the scripted upstream: what is below /NAME, unless told."""
    url = f"http://127.0.0.1:{port}"
    return {"name": name, "url": url, "match": {"path": f"/{name}"}, "replay_deadline": "300ms", **settings}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scripted_upstream() -> AsyncIterator[tuple[ScriptedUpstream, int]]:
    """The upstream of all scenarios, and its port."""
    upstream = ScriptedUpstream()
    port = await upstream.start()
    yield upstream, port
    upstream.server.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def proxy(
    scripted_upstream: tuple[ScriptedUpstream, int], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Forkwatch]:
    """The proxy of all scenarios, which logged no traceback in the end."""
    _, port = scripted_upstream
    upstreams = [
        entry("epoch", port, ids="epoch:seq"),
        entry("alone", port),
        entry("annotate", port, mode="annotate"),
        entry("enforce", port, mode="enforce"),
        entry("mcp", port, match={"path": "/"}),
    ]
    forkwatch = Forkwatch(upstreams, tmp_path_factory.mktemp("forkwatch")).start()
    yield forkwatch
    forkwatch.stop()
    assert "Traceback" not in forkwatch.errors.read_text()
    assert "Traceback" not in forkwatch.log_file.read_text()


@pytest_asyncio.fixture(loop_scope="session")
async def lab(proxy: Forkwatch, scripted_upstream: tuple[ScriptedUpstream, int]) -> AsyncIterator[Lab]:
    """A laboratory with a session of its own, opened on the entry in `observe`."""
    lab = Lab(proxy, scripted_upstream[0], await Counters.since_now(proxy))
    yield lab
    await lab.close()
    assert await lab.counters.grown("fail_open_total") == 0, (
        "the proxy gave up judging: see check.failed_open"
    )
