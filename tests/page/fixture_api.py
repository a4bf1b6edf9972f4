"""A small server of the admin API's shapes, for the page alone.

`AdminFixture` listens on a loopback port, sends a content security policy as strict as the real listener's, and can
be told to ask for a token, to hold thousands of sessions, to emit feed lines, and to go away.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from base64 import b64encode
from pathlib import Path

from aiohttp import web

from tests.page.answers import detail, session_id, status, summary
from tests.page.timelines import TIMELINES, Json

PAGE = Path(__file__).parents[2] / "proxy/admin/page/index.html"


def policy(page: str) -> str:
    """The content security policy with the hashes of the one inline style and the one inline script."""

    def digest(tag: str) -> str:
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {digest('style')}; script-src {digest('script')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class AdminFixture:
    """The server. `filler` adds that many dull sessions; `token` is asked for if set; a test may add timelines."""

    def __init__(self, *, filler: int = 0, token: str | None = None, empty: bool = False) -> None:
        self.filler, self.token, self.empty = filler, token, empty
        self.timelines = dict(TIMELINES)
        self.port = 0
        self.requests: list[str] = []
        self.last_event_ids: list[str | None] = []
        self._feeds: set[asyncio.Queue[bytes | None]] = set()
        self._sent: list[tuple[int, bytes]] = []
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Listen on a free port, or on this one; the address of the page."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/api/v1/status", self._status)
        app.router.add_get("/api/v1/sessions", self._sessions)
        app.router.add_get("/api/v1/sessions/{id}", self._session)
        app.router.add_get("/api/v1/events", self._events)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True).start()
        self.port = int(self._runner.addresses[0][1])
        return f"http://127.0.0.1:{self.port}/"

    async def stop(self) -> None:
        """Close the listener and every feed."""
        self.end_feeds()
        if self._runner is not None:
            await self._runner.cleanup()

    def end_feeds(self) -> None:
        """End the open feeds, as a restarted listener would."""
        for feed in self._feeds:
            feed.put_nowait(None)

    def emit(self, body: Json, boot: str = "b1") -> None:
        """Send one log line to the open feeds, and to those that come later."""
        number = len(self._sent) + 1
        frame = f"id: {boot}-{number}\nevent: {body['event']}\ndata: {json.dumps(body)}\n\n".encode()
        self._sent.append((number, frame))
        for feed in self._feeds:
            feed.put_nowait(frame)

    def _refuse(self, request: web.Request) -> web.Response | None:
        self.requests.append(request.path_qs)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _problem(401, "unauthorized", "send the token of admin_token_file")
        return None

    async def _page(self, _request: web.Request) -> web.Response:
        page = PAGE.read_text()
        return web.Response(
            text=page, content_type="text/html", headers={"Content-Security-Policy": policy(page)}
        )

    async def _status(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response(status(self.filler))

    async def _sessions(self, request: web.Request) -> web.Response:
        if refused := self._refuse(request):
            return refused
        query = request.query
        start, limit = int(query.get("after", "0")), int(query.get("limit", "50"))
        rows = [] if self.empty else [summary(name, each) for name, each in self.timelines.items()]
        rows += [summary(f"filler {place}", TIMELINES["calm"]) for place in range(self.filler)]
        for key in ("state", "upstream"):
            rows = [row for row in rows if query.get(key) in (None, row[key])]
        if wanted := query.get("verdict"):
            rows = [row for row in rows if row["verdict"] and row["verdict"]["verdict"] == wanted]
        more = str(start + limit) if start + limit < len(rows) else None
        return web.json_response({"sessions": rows[start : start + limit], "next": more})

    async def _session(self, request: web.Request) -> web.Response:
        if refused := self._refuse(request):
            return refused
        for name, connections in self.timelines.items():
            if request.match_info["id"] in (session_id(name), name):
                return web.json_response(detail(name, connections))
        return _problem(404, "unknown session", "it expired, was evicted, or is another process's")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if refused := self._refuse(request):
            return refused
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        last = request.headers.get("Last-Event-ID")
        self.last_event_ids.append(last)
        feed: asyncio.Queue[bytes | None] = asyncio.Queue()
        for number, sent in self._sent:
            if last is None or number > int(last.split("-")[1]):
                feed.put_nowait(sent)
        self._feeds.add(feed)
        try:
            await response.write(b": welcome\n\n")
            while (frame := await feed.get()) is not None:
                await response.write(frame)
        finally:
            self._feeds.discard(feed)
        return response


def _problem(code: int, title: str, detail_: str) -> web.Response:
    body = {"type": title.replace(" ", "-"), "title": title, "status": code, "detail": detail_}
    return web.json_response(body, status=code, content_type="application/problem+json")
