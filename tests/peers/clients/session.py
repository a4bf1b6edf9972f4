"""What every Python client does in the peer tests; prints what it saw as one JSON line.

A streamed call, a call whose stream the server closes on purpose, standalone notifications, and the end.
"""

import json

import anyio

POKED = {"g0", "g1", "g2"}


class Notes:
    """The texts of the notifications that arrived, and a way to wait for some of them."""

    def __init__(self):
        self.texts = []
        self._changed = anyio.Event()

    def add(self, data):
        """One more arrived; fastmcp's servers wrap the text in an object."""
        self.texts.append(data["msg"] if isinstance(data, dict) else data)
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_for(self, texts):
        """Return once all these arrived; TimeoutError after ten seconds."""
        with anyio.fail_after(10):
            while not texts <= set(self.texts):
                await self._changed.wait()


async def run(call, notes):
    """Make the three calls; `call(name, arguments)` returns the text of the result."""
    results = [await call("count", {"n": 3}), await call("poll", {}), await call("poke", {"n": len(POKED)})]
    await notes.wait_for(POKED)
    return results


def report(results, notes):
    """Print what this client saw, in an order that does not depend on which stream was faster."""
    print(json.dumps({"results": results, "notes": sorted(notes.texts)}))
