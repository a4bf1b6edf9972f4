"""The admin API: each handler turns a request into a question or an order, and the answer into JSON."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from proxy import __version__
from proxy.admin import directory, views
from proxy.admin.controls import Controls
from proxy.admin.guard import Refusal
from proxy.config import rows
from proxy.config.values import Rejected, duration_s
from proxy.drain import Service
from proxy.engine.findings import Action, Verdict
from proxy.engine.ledger import Session, Upstream
from proxy.engine.policy import Mode
from proxy.engine.privacy import hash_session
from proxy.errors import ConfigError, ListenFailed
from proxy.modes import TTL_S, Change

MAX_BODY_BYTES = 64 * 1024
_MOST = 500
_DEFAULT = 50


class Problem(Exception):
    """A request that cannot be answered as asked; becomes a problem document."""

    def __init__(self, status: int, type: str, detail: str, **more: object) -> None:
        """`detail` is a sentence with the remedy; `more` joins the document."""
        super().__init__(detail)
        self.refusal = Refusal(status, type, detail)
        self.more = more


class Api:
    """The handlers, over one process's `Controls`."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls

    # ---- reading

    async def status(self, _request: web.Request) -> web.Response:
        """How the process is, upstream by upstream."""
        c = self._controls
        upstreams = [self._upstream(name) for name in self._configured()]
        return answer(
            {
                "version": __version__,
                "python": platform.python_version(),
                "pid": os.getpid(),
                "started_at": round(c.started_at, 3),
                "now": round(time.time(), 3),
                "state": self._state(),
                "reasons": c.ready.reasons,
                **c.where,
                "config": {
                    "path": None if c.reload.loaded.path is None else str(c.reload.loaded.path),
                    "last_reload_ok": c.metrics.config_reload_ok,
                    "last_reload_at": round(c.metrics.config_reload_at, 3),
                    "errors": c.reload.errors,
                },
                "upstreams": upstreams,
                "ledger_bytes": c.ledger.held_bytes,
                "log_messages_dropped": c.log.dropped,
                "open_exchanges": c.listener.open_exchanges,
                "limits": c.metrics.limits,
            }
        )

    def _state(self) -> str:
        service = self._controls.drain.service
        if service is not Service.SERVING:
            return str(service.value)
        return "starting" if self._controls.ready.reasons else "ready"

    def _configured(self) -> list[str]:
        return [upstream.name for upstream in self._controls.reload.loaded.settings.upstreams]

    def _upstream(self, name: str) -> views.View:
        c = self._controls
        counters, state, until = c.metrics.upstream(name), c.ledger.upstreams[name], c.modes.until(name)
        settings = next(u for u in c.reload.loaded.settings.upstreams if u.name == name)
        return {
            "upstream": name,
            "url": settings.url,
            "mode": c.modes.in_force(name),
            "configured_mode": c.modes.configured(name),
            "until_at": None if until is None else c.lens().at(until),
            "sessions": {"active": state.sessions_active, "quarantined": state.sessions_quarantined},
            "requests_in_flight": state.requests_in_flight,
            "streams_open": {kind.value: count for kind, count in counters.streams_open.items()},
            "resume_attempts": counters.resume_attempts,
            "verdicts": views.counts(counters.resume_verdicts),
            "would_cut": counters.policy_actions[Action.WOULD_CUT],
            "cut": counters.policy_actions[Action.CUT],
            "events_lost": counters.events_lost,
            "events_duplicated": counters.events_duplicated,
            "requests_unanswered": counters.requests_unanswered,
            "fail_open": sum(counters.fail_open.values()),
            "upstream_errors": sum(counters.upstream_errors.values()),
        }

    async def sessions(self, request: web.Request) -> web.Response:
        """One page of the sessions, newest first."""
        query = request.query
        wanted = directory.Wanted(
            state=_one_of(query, "state", ("active", "quarantined", "ended")),
            verdict=_verdict(query),
            after=_after(query),
        )
        found, token = await directory.page(self._upstreams(query), wanted, _limit(query))
        lens = self._controls.lens()
        return answer({"sessions": [views.summary(session, lens) for session in found], "next": token})

    async def session(self, request: web.Request) -> web.Response:
        """Everything known of one session."""
        session = await self._find(request)
        return answer(views.whole(session, self._controls.lens(), self._controls.clock()))

    async def config(self, _request: web.Request) -> web.Response:
        """Every setting in force and where it comes from. Settings hold no secret, only files of some."""
        loaded = self._controls.reload.loaded
        settings = [
            {"key": key, "value": value, "source": loaded.sources.get(key, "default")}
            for key, value in rows(loaded.settings)
        ]
        return answer({"path": None if loaded.path is None else str(loaded.path), "settings": settings})

    # ---- orders

    async def quarantine(self, request: web.Request) -> web.Response:
        """Cut a session as a verdict would."""
        session = await self._find(request)
        if session.quarantine is not None or session.ended:
            state = views.state_of(session)
            raise Problem(409, f"session-{state}", f"the session is {state} already: there is nothing to cut")
        ended = self._controls.quarantine(session)
        assert session.quarantine is not None
        until = self._controls.lens().at(session.quarantine.until)
        return answer({**_named(session), "until_at": until, "ended_exchanges": ended})

    async def release(self, request: web.Request) -> web.Response:
        """Let a quarantined session go."""
        session = await self._find(request)
        if session.quarantine is None:
            raise Problem(
                409, "not-quarantined", "the session is not quarantined: there is nothing to release"
            )
        self._controls.release(session)
        return answer(_named(session))

    async def policy(self, request: web.Request) -> web.Response:
        """Switch the mode of one upstream or of all, for a time."""
        wanted = await _body(request)
        mode, upstream, ttl = wanted.get("mode"), wanted.get("upstream"), wanted.get("ttl")
        modes = [*(mode.value for mode in Mode), "configured"]
        if mode not in modes:
            raise Problem(400, "bad-mode", f"mode must be one of {', '.join(modes)}")
        if upstream is not None and upstream not in self._configured():
            raise self._no_upstream()
        names = self._configured() if upstream is None else [str(upstream)]
        changes = self._controls.modes.switch(
            names,
            None if mode == "configured" else Mode(mode),
            _ttl_s(ttl),
            self._controls.clock(),
            by="admin",
        )
        return answer({"changed": [self._change(change) for change in changes]})

    def _change(self, change: Change) -> views.View:
        return {
            "upstream": change.upstream,
            "mode": change.mode,
            "previous_mode": change.previous_mode,
            "until_at": None if change.until is None else self._controls.lens().at(change.until),
            "released": change.released,
        }

    async def reload(self, request: web.Request) -> web.Response:
        """Read the configuration again; 422 with every problem, and nothing changed, if it has any."""
        dry = request.query.get("dry_run", "0") not in ("", "0", "false")
        try:
            done = await self._controls.reload.run(dry=dry)
        except ConfigError as error:
            detail = "the configuration was rejected, the old one is in force: see errors"
            raise Problem(422, "config-rejected", detail, reloaded=False, errors=error.lines()) from error
        return answer(
            {
                "reloaded": not dry,
                "dry_run": dry,
                "changed": done.changed,
                "restart_needed": done.restart_needed,
                "warnings": done.warnings,
            }
        )

    async def drain(self, _request: web.Request) -> web.Response:
        """Begin to take the proxy out of service; status says how far it has come."""
        self._controls.drain.begin()
        return answer(
            {
                "state": self._controls.drain.service.value,
                "open_exchanges": self._controls.listener.open_exchanges,
            },
            status=202,
        )

    async def undrain(self, _request: web.Request) -> web.Response:
        """Take clients again."""
        if self._controls.ending:
            raise Problem(409, "ending", "the process was told to stop: start another one")
        try:
            await self._controls.drain.undo()
        except ListenFailed as error:
            raise Problem(409, "address-taken", f"{error}; the proxy stays drained") from error
        return answer({"state": self._state()})

    # ---- which session, which upstream

    def _upstreams(self, query: Mapping[str, str]) -> list[Upstream]:
        """The one that is asked for; else all, and of those no longer configured their last sessions."""
        known, name = self._controls.ledger.upstreams, query.get("upstream")
        if name is None:
            return list(known.values())
        if name not in known:
            raise self._no_upstream()
        return [known[name]]

    def _no_upstream(self) -> Problem:
        return Problem(400, "no-such-upstream", f"upstream must be one of {', '.join(self._configured())}")

    async def _find(self, request: web.Request) -> Session:
        found = await directory.find(self._upstreams(request.query), request.match_info["id"])
        if not found:
            detail = "this proxy does not know the session: it expired, was evicted, or is another proxy's"
            raise Problem(404, "no-such-session", detail)
        if len(found) > 1:
            names = ", ".join(session.upstream.name for session in found)
            raise Problem(
                409, "ambiguous-session", f"several upstreams know it ({names}): add ?upstream=NAME"
            )
        return found[0]


def answer(value: object, *, status: int = 200) -> web.Response:
    """A JSON answer, with a line end for people at a terminal."""
    return web.Response(
        status=status, body=orjson.dumps(value) + b"\n", headers={"Content-Type": "application/json"}
    )


def problem(refusal: Refusal, more: Mapping[str, object] | None = None) -> web.Response:
    """A problem document in the style of RFC 9457."""
    document = {
        **(more or {}),
        "type": f"forkwatch:{refusal.type}",
        "title": refusal.type.replace("-", " "),
        "status": refusal.status,
        "detail": refusal.detail,
    }
    response = answer(document, status=refusal.status)
    response.headers["Content-Type"] = "application/problem+json"
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="forkwatch"'
    return response


def _named(session: Session) -> views.View:
    return {
        "session": hash_session(session.key),
        "upstream": session.upstream.name,
        "state": views.state_of(session),
    }


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        value = orjson.loads(await request.read())
    except (orjson.JSONDecodeError, web.HTTPRequestEntityTooLarge) as error:
        detail = f"the body must be a JSON object of at most {MAX_BODY_BYTES} bytes"
        raise Problem(400, "bad-body", detail) from error
    if not isinstance(value, dict):
        raise Problem(400, "bad-body", "the body must be a JSON object")
    return value


def _one_of(query: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str | None:
    value = query.get(key)
    if value is not None and value not in allowed:
        raise Problem(400, f"bad-{key}", f"{key} must be one of {', '.join(allowed)}")
    return value


def _verdict(query: Mapping[str, str]) -> Verdict | None:
    value = _one_of(query, "verdict", tuple(verdict.value for verdict in Verdict))
    return None if value is None else Verdict(value)


def _after(query: Mapping[str, str]) -> directory.Place | None:
    token = query.get("after")
    try:
        return None if token is None else directory.after(token)
    except ValueError as error:
        raise Problem(400, "bad-after", "after must be the `next` of an earlier page") from error


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_DEFAULT))
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MOST:
        raise Problem(400, "bad-limit", f"limit must be from 1 to {_MOST}")
    return int(text)


def _ttl_s(value: object) -> float:
    if value is None:
        return TTL_S
    try:
        seconds = duration_s(str(value))
    except Rejected as error:
        raise Problem(400, "bad-ttl", "ttl must be a duration such as 30m or 1h") from error
    if not seconds:
        raise Problem(400, "bad-ttl", "ttl must be longer than 0s")
    return seconds
