"""The admin listener: a Unix socket that only its owner may open, or a TCP address.

It serves the API, the live tail and the page. Every request passes the guard first; what changes
something, and what is refused, is logged.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path

from aiohttp import web

from proxy.admin.api import MAX_BODY_BYTES, Api, Problem, answer, problem
from proxy.admin.controls import Controls
from proxy.admin.guard import READS, Guard, Refusal
from proxy.endpoint import Endpoint
from proxy.logs import QUIET, Repeats
from proxy.side_listener import listen

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEARTBEAT_S = 15.0
_SHUTDOWN_S = 1.0
_OWNER_ONLY = 0o177
PUBLIC = frozenset({"/", "/favicon.ico"})
"""Paths that hold no data."""


class Admin:
    """The listener, from `start` to `stop`."""

    def __init__(self, controls: Controls, token: str | None, *, heartbeat_s: float = _HEARTBEAT_S) -> None:
        """`token` guards every request but the page's own; None where only this machine can connect.

        `heartbeat_s`: how long the live tail is silent at most.
        """
        self._controls = controls
        self._heartbeat_s = heartbeat_s
        self._api = Api(controls)
        self._page, self._policy = _page()
        self._own_host = ""
        self._repeats = Repeats()
        self._guard = Guard(token)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._socket_path: Path | None = None

    def use_token(self, token: str | None) -> None:
        """Guard what comes from now on by this token."""
        self._guard = Guard(token, self._own_host)

    async def start(self, where: str) -> str:
        """Listen at `unix:PATH` or `HOST:PORT`, and say where. Raises OSError if that cannot be."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guarded])
        self._route(app)
        runner = web.AppRunner(
            app, access_log=None, logger=QUIET, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True
        )
        await runner.setup()
        try:
            sock = self._bind(where)
            self._server = await listen(runner, sock)
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        if self._socket_path is not None:
            return f"unix:{self._socket_path}"
        host, port = sock.getsockname()[:2]
        return f"http://{Endpoint(str(host), int(port))}"

    async def stop(self) -> None:
        """Close the listener and its connections, and take the socket's file away. Idempotent."""
        self._controls.feed.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
            self._socket_path = None

    def _bind(self, where: str) -> socket.socket:
        if where.startswith("unix:"):
            path = Path(where.removeprefix("unix:"))
            sock = _bind_path(path)
            self._socket_path = path
            return sock
        endpoint = Endpoint.parse(where)
        self._own_host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        self._guard = self._guard.at(self._own_host)
        return socket.create_server(
            (endpoint.host, endpoint.port), family=socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        )

    def _route(self, app: web.Application) -> None:
        api, add, get = self._api, app.router.add_route, app.router.add_get  # a `get` takes HEAD as well
        get("/", self._show_page)
        get("/favicon.ico", _no_icon)
        get("/api/v1/status", api.status)
        get("/api/v1/sessions", api.sessions)
        get("/api/v1/sessions/{id}", api.session)
        add("POST", "/api/v1/sessions/{id}/quarantine", api.quarantine)
        add("DELETE", "/api/v1/sessions/{id}/quarantine", api.release)
        add("POST", "/api/v1/policy", api.policy)
        get("/api/v1/config", api.config)
        add("POST", "/api/v1/reload", api.reload)
        add("POST", "/api/v1/drain", api.drain)
        add("DELETE", "/api/v1/drain", api.undrain)
        get("/api/v1/events", self._events, allow_head=False)

    # ---- every request

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        headers: Mapping[str, str] = request.headers
        refusal = self._guard.refuses(request.method, headers, public=request.path in PUBLIC)
        if refusal is not None:
            response: web.StreamResponse = problem(refusal)
        else:
            response = await self._handled(request, handler)
        if not response.prepared:
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Server"] = "forkwatch"
        if refusal is not None or request.method not in READS:
            self._say(request, response.status)
        return response

    async def _handled(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """The answer; a mistake of ours becomes one line of the log, and disturbs nobody."""
        try:
            return await self._routed(request, handler)
        except ConnectionError:
            raise  # the client has left
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            self._controls.log.event("check.failed_open", level="error", component="admin", error=failure)
            return problem(
                Refusal(500, "internal-error", "the admin interface failed on this request; see the log")
            )

    async def _routed(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Problem as error:
            return problem(error.refusal, error.more)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = problem(Refusal(405, "method-not-allowed", f"this path takes {allowed}"))
            response.headers["Allow"] = allowed
            return response
        except web.HTTPNotFound:
            return problem(Refusal(404, "not-found", "there is no such path: see GET /api/v1/status"))

    def _say(self, request: web.Request, status: int) -> None:
        resource = request.match_info.route.resource
        # the path as it is routed: a session's id does not belong in the log
        path = "" if resource is None else resource.canonical
        # Every order that was carried out is logged; of what is refused, what a guesser needs not fill the log with.
        refused = status >= 400
        unsaid = self._repeats.admit((request.method, path, status), self._controls.clock()) if refused else 0
        if unsaid is None:
            return
        self._controls.log.event(
            "admin.request",
            level="warning" if status in (401, 403) else "info",
            method=request.method,
            path=path,
            peer=request.remote or "unix",
            status=status,
            **({"repeated": unsaid} if unsaid else {}),
        )

    # ---- the page and the live tail

    async def _show_page(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._page,
            headers={
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": self._policy,
                "Referrer-Policy": "no-referrer",
            },
        )

    async def _events(self, request: web.Request) -> web.StreamResponse:
        feed = self._controls.feed
        keys = ("event", "upstream", "session", "verdict")
        wanted = {key: value for key in keys if (value := request.query.get(key))}
        reader = feed.join(wanted, request.headers.get("Last-Event-ID"))
        if reader is None:
            return problem(Refusal(503, "too-many-readers", "too many read the live tail: close some"))
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "Server": "forkwatch"}
        )
        try:
            await response.prepare(request)
            await response.write(b": the live tail\n\n")
            while True:
                for frame in feed.frames(reader):
                    await response.write(frame)
                if feed.closed:
                    return response
                try:
                    async with asyncio.timeout(self._heartbeat_s):
                        await reader.more.wait()
                except TimeoutError:
                    await response.write(b": still here\n\n")
        except ConnectionError:
            return response  # the reader has left
        finally:
            feed.leave(reader)


def place_of(setting: str, listen: Endpoint, env: Mapping[str, str]) -> str | None:
    """Where `admin: auto` puts the socket, None if the environment names no directory for it.

    Any other setting is its own place.
    """
    if setting != "auto":
        return setting
    directory = env.get("RUNTIME_DIRECTORY", "").partition(":")[0] or env.get("XDG_RUNTIME_DIR", "")
    return f"unix:{directory}/forkwatch-{listen.port}.sock" if directory else None


def _bind_path(path: Path) -> socket.socket:
    """A socket at `path` that only its owner may open; one that a dead process left behind is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_socket(path):
            if _answers(path):
                raise OSError(None, "another process listens there")
            path.unlink()
        before = os.umask(_OWNER_ONLY)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
    except OSError:
        sock.close()
        raise
    return sock


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _page() -> tuple[bytes, str]:
    """The page, and the policy that lets nothing but its own script and style run."""
    page = files("proxy.admin").joinpath("page", "index.html").read_bytes()
    script, style = (_hash_of(page, tag) for tag in (b"script", b"style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hash_of(page: bytes, tag: bytes) -> str:
    found = re.search(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    assert found is not None, f"the page has no <{tag.decode()}>"
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"


async def _no_icon(_request: web.Request) -> web.Response:
    return answer(None, status=204)
