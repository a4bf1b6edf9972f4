"""What every abuse test asks of its module's `process`: that it survives."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.abuse.process import survived
from tests.abuse.witness import Witness
from tests.wire import Lab


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: tuple[Lab, Witness]) -> AsyncIterator[Lab]:
    """The module's proxy, for one test."""
    async with survived(process) as found:
        yield found
