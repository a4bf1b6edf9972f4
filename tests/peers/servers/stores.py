"""Event stores with the logic of the official SDK's own examples, for both of its generations.

`uuid` numbers events with random ids, `int` with one counter for all streams of all sessions. Both key a
stream by the text of its JSON-RPC request id, as the SDK hands it over: sessions that use one id share it.
"""

from collections import deque
from uuid import uuid4

from mcp.server.streamable_http import EventMessage, EventStore

EVENTS_PER_STREAM = 100


class UuidStore(EventStore):
    """Random ids; the last hundred events of each stream."""

    def __init__(self):
        self.streams = {}
        self.stream_of = {}

    async def store_event(self, stream_id, message):
        """Keep one event, None for a priming event, and return its id."""
        event_id = str(uuid4())
        events = self.streams.setdefault(stream_id, deque(maxlen=EVENTS_PER_STREAM))
        if len(events) == EVENTS_PER_STREAM:
            self.stream_of.pop(events[0][0], None)
        events.append((event_id, message))
        self.stream_of[event_id] = stream_id
        return event_id

    async def replay_events_after(self, last_event_id, send_callback):
        """Send what followed the cursor on its stream; return the stream, None for an unknown cursor."""
        stream_id = self.stream_of.get(last_event_id)
        if stream_id is None:
            return None
        passed = False
        for event_id, message in list(self.streams[stream_id]):
            if passed and message is not None:
                await send_callback(EventMessage(message, event_id))
            passed = passed or event_id == last_event_id
        return stream_id


class IntStore(EventStore):
    """Integers from 1, counted over the whole store."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        """Keep one event, None for a priming event, and return its number."""
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        """Send what followed the cursor on its stream; return the stream, None for an unknown cursor."""
        cursor = int(last_event_id) if last_event_id.isdigit() else 0
        if not 0 < cursor <= len(self.events):
            return None
        stream_id, _ = self.events[cursor - 1]
        for number, (stream, message) in enumerate(self.events[cursor:], cursor + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def make(kind):
    """The store of this kind: `uuid`, `int`, or None for `none` (no event ids at all)."""
    return {"uuid": UuidStore, "int": IntStore, "none": lambda: None}[kind]()
