"""The admin API of a real process, over its Unix socket and over TCP with a token."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proxy import __version__
from proxy.engine.findings import Verdict
from proxy.engine.privacy import hash_session
from tests.admin.operator import MUTATION, Desk, Operator, desk, entry
from tests.forkwatch_process import free_port
from tests.scenarios.frames import event, result

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "0123456789abcdef-token"
BEARER = f"Authorization: Bearer {TOKEN}"
READS = ("status", "sessions", "sessions/s_000000000000", "config", "events")
ORDERS = (
    "POST sessions/s_000000000000/quarantine",
    "DELETE sessions/s_000000000000/quarantine",
    "POST policy",
    "POST reload",
    "POST drain",
    "DELETE drain",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """A proxy with its interface on a Unix socket."""

    def entries(port: int) -> list[dict[str, Any]]:
        return [entry("tools", port, mode="enforce"), entry("other", port)]

    async with desk(tmp_path_factory.mktemp("local"), entries) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """A proxy with its interface on TCP, guarded by a token. The operator has none."""
    directory = tmp_path_factory.mktemp("guarded")
    file = directory / "token"
    file.write_text(f"{TOKEN}\n")
    place = f"127.0.0.1:{free_port()}"
    top = {"admin": place, "admin_token_file": str(file)}
    async with desk(directory, lambda port: [entry("tools", port)], **top) as made:
        made.admin = Operator(place)
        yield made


async def problem(
    admin: Operator, line: str, *fields: str, host: str = "localhost", body: bytes | None = None
) -> tuple[int, str]:
    """The status and type of the problem that this request gets; its document is whole."""
    answer = await admin.ask(line, *fields, host=host, body=body)
    assert answer.head.one(b"Content-Type") == b"application/problem+json"
    assert answer.head.one(b"Cache-Control") == b"no-store"
    document = answer.value
    assert set(document) >= {"type", "title", "status", "detail"}
    assert document["status"] == answer.status
    assert document["detail"]
    return answer.status, document["type"].removeprefix("forkwatch:")


# Who may ask.


@pytest.mark.parametrize("line", [*(f"GET {path}" for path in READS), *ORDERS])
@pytest.mark.parametrize(
    ("fields", "host", "kind"),
    [
        ((), "evil.example", "foreign-host"),
        (("Origin: https://evil.example",), "localhost", "foreign-origin"),
        (("Origin: null",), "localhost", "foreign-origin"),
        (("Sec-Fetch-Site: cross-site",), "localhost", "foreign-origin"),
    ],
    ids=["host", "origin", "null", "fetch"],
)
async def test_web_pages_are_refused(
    local: Desk, line: str, fields: tuple[str, ...], host: str, kind: str
) -> None:
    """A foreign Host, any Origin and a foreign fetch get 403 on every path, and nothing happens."""
    method, path = line.split(" ")
    asked = f"{method} /api/v1/{path}"
    assert await problem(local.admin, asked, MUTATION, *fields, host=host) == (403, kind)
    assert (await local.admin.get("status"))["state"] == "ready"


@pytest.mark.parametrize("line", ORDERS)
async def test_orders_need_their_header(local: Desk, line: str) -> None:
    """Without `X-Forkwatch-Admin` an order is refused, POST and DELETE alike, and nothing happens."""
    method, path = line.split(" ")
    body = b'{"mode":"observe"}'
    assert await problem(local.admin, f"{method} /api/v1/{path}", body=body) == (403, "header-missing")
    status = await local.admin.get("status")
    assert (status["state"], status["upstreams"][0]["mode"]) == ("ready", "enforce")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["sessions/s_000000000000/quarantine", "policy", "reload", "drain"])
async def test_a_read_of_an_order_changes_nothing(local: Desk, method: str, path: str) -> None:
    """What a link could do, GET and HEAD, is 405 where something is changed."""
    answer = await local.admin.ask(f"{method} /api/v1/{path}", MUTATION)
    assert answer.status == 405
    allowed = {method.strip() for method in (answer.head.one(b"Allow") or b"").decode().split(",")}
    assert allowed <= {"POST", "DELETE"}
    assert allowed
    status = await local.admin.get("status")
    assert (status["state"], status["upstreams"][0]["until_at"]) == ("ready", None)
    await local.settled()
    assert local.lines("config.reloaded") == []


async def test_refusals_and_orders_are_logged_without_ids(tmp_path: Path) -> None:
    """`admin.request` says what was asked by the path as it is routed; of what is refused again and again, less."""
    raw = "a-session-that-nobody-knows"
    async with desk(tmp_path, lambda port: [entry("tools", port)]) as made:
        for _ in range(8):
            refused = await problem(made.admin, f"POST /api/v1/sessions/{raw}/quarantine")
            assert refused == (403, "header-missing")
        assert (await made.admin.tell(f"DELETE sessions/{raw}/quarantine")).status == 404
        for _ in range(7):
            assert (await made.admin.tell("POST reload?dry_run=1")).status == 200
        await made.settled()
        lines = made.lines("admin.request")
        text = made.proxy.log_file.read_text()
    for line in lines:
        del line["ts"]
    path = "/api/v1/sessions/{id}/quarantine"
    said = {"event": "admin.request", "peer": "unix"}
    assert lines == [
        *[{"level": "warning", **said, "method": "POST", "path": path, "status": 403}] * 5,
        {"level": "info", **said, "method": "DELETE", "path": path, "status": 404},
        *[{"level": "info", **said, "method": "POST", "path": "/api/v1/reload", "status": 200}] * 7,
    ]
    assert raw not in text


@pytest.mark.parametrize("line", [*(f"GET {path}" for path in READS), *ORDERS, "GET nothing", "PUT status"])
@pytest.mark.parametrize(
    "fields",
    [(), (f"Authorization: Bearer {TOKEN}x",), (f"Authorization: Basic {TOKEN}",)],
    ids=["absent", "wrong", "scheme"],
)
async def test_a_token_guards_every_path(guarded: Desk, line: str, fields: tuple[str, ...]) -> None:
    """Without the right token every path of the API is 401, and says how to authorize."""
    method, path = line.split(" ")
    asked = f"{method} /api/v1/{path}"
    assert await problem(guarded.admin, asked, MUTATION, *fields) == (401, "unauthorized")
    answer = await guarded.admin.ask(asked, MUTATION, *fields)
    assert answer.head.one(b"WWW-Authenticate") == b'Bearer realm="forkwatch"'


@pytest.mark.parametrize("path", ["status", "sessions", "config"])
@pytest.mark.parametrize("host", ["localhost", "proxy.example"])
async def test_the_right_token(guarded: Desk, path: str, host: str) -> None:
    """With it reads are served, by whatever name the machine was reached; orders too."""
    assert (await guarded.admin.ask(f"GET /api/v1/{path}", BEARER, host=host)).status == 200
    answer = await guarded.admin.ask("POST /api/v1/reload?dry_run=1", BEARER, MUTATION, host=host)
    assert answer.status == 200


async def test_a_token_is_no_leave_for_web_pages(guarded: Desk) -> None:
    """An Origin is refused with the right token as well, and so is an order without the header."""
    admin = guarded.admin
    assert await problem(admin, "GET /api/v1/status", BEARER, "Origin: null") == (403, "foreign-origin")
    assert await problem(admin, "POST /api/v1/drain", BEARER) == (403, "header-missing")


async def test_a_changed_token(guarded: Desk) -> None:
    """After a reload the file's new token is right and the old one wrong."""
    file = Path(str(guarded.proxy.settings["admin_token_file"]))
    file.write_text("another-token-of-enough-chars")
    new = "Authorization: Bearer another-token-of-enough-chars"
    try:
        assert await problem(guarded.admin, "GET /api/v1/status", new) == (401, "unauthorized")
        assert (await guarded.hang_up())["event"] == "config.reloaded"
        assert (await guarded.admin.ask("GET /api/v1/status", new)).status == 200
        assert await problem(guarded.admin, "GET /api/v1/status", BEARER) == (401, "unauthorized")
    finally:
        file.write_text(TOKEN)
        await guarded.hang_up()
    assert (await guarded.admin.ask("GET /api/v1/status", BEARER)).status == 200


# The page.


async def test_the_page(local: Desk) -> None:
    """One page of its own script and style, which no other site may frame."""
    answer = await local.admin.ask("GET /")
    assert answer.status == 200
    assert answer.head.one(b"Content-Type") == b"text/html; charset=utf-8"
    assert answer.head.one(b"X-Content-Type-Options") == b"nosniff"
    assert answer.head.one(b"Referrer-Policy") == b"no-referrer"
    policy = (answer.head.one(b"Content-Security-Policy") or b"").decode()
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.body.lstrip().lower().startswith(b"<!doctype html>")


async def test_the_page_is_public(guarded: Desk) -> None:
    """It holds no data, so it is served without a token, and a link may lead to it; its icon is none."""
    for fields in ((), ("Sec-Fetch-Site: cross-site",)):
        assert (await guarded.admin.ask("GET /", *fields)).status == 200
    client = await guarded.admin.connect()
    for _ in range(2):  # an empty answer does not upset the connection
        client.request("GET /favicon.ico", host="localhost")
        response = await client.response()
        assert (response.status, response.body) == (204, b"")
    client.leave()
    await client.writer.wait_closed()


# What cannot be answered.


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/api/v1/nothing", "/status", "/api/v2/status", "/index.html"]
)
async def test_an_unknown_path(local: Desk, path: str) -> None:
    """404 with the place where everything begins."""
    assert await problem(local.admin, f"GET {path}") == (404, "not-found")


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"mode=observe",
        b"[]",
        b'"observe"',
        b"null",
        b"\xff",
        b'{"mode":"observe"',
        b"[" * 5000,
        b'{"mode":"observe","more":"' + b"x" * (64 * 1024) + b'"}',
    ],
    ids=["none", "empty", "form", "list", "text", "null", "bytes", "torn", "deep", "large"],
)
async def test_a_bad_body(local: Desk, body: bytes | None) -> None:
    """What is no JSON object of at most 64 KiB is 400, and switches nothing."""
    assert await problem(local.admin, "POST /api/v1/policy", MUTATION, body=body) == (400, "bad-body")
    assert (await local.status("tools"))["mode"] == "enforce"


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({}, "bad-mode"),
        ({"mode": None}, "bad-mode"),
        ({"mode": "Observe"}, "bad-mode"),
        ({"mode": ["observe"]}, "bad-mode"),
        ({"mode": "off"}, "bad-mode"),
        ({"mode": "observe", "upstream": "nobody"}, "no-such-upstream"),
        ({"mode": "observe", "upstream": ""}, "no-such-upstream"),
        ({"mode": "observe", "upstream": ["tools"]}, "no-such-upstream"),
        ({"mode": "observe", "ttl": "0s"}, "bad-ttl"),
        ({"mode": "observe", "ttl": "-1s"}, "bad-ttl"),
        ({"mode": "observe", "ttl": "1"}, "bad-ttl"),
        ({"mode": "observe", "ttl": 60}, "bad-ttl"),
        ({"mode": "observe", "ttl": ""}, "bad-ttl"),
        ({"mode": "observe", "ttl": "2 hours"}, "bad-ttl"),
        ({"mode": "observe", "ttl": "400d"}, "bad-ttl"),
        ({"mode": "observe", "ttl": {}}, "bad-ttl"),
    ],
    ids=str,
)
async def test_a_bad_switch(local: Desk, wanted: dict[str, Any], kind: str) -> None:
    """An unknown mode, upstream or duration is 400, and switches nothing."""
    body = json.dumps(wanted).encode()
    assert await problem(local.admin, "POST /api/v1/policy", MUTATION, body=body) == (400, kind)
    upstreams = (await local.admin.get("status"))["upstreams"]
    assert [(u["mode"], u["until_at"]) for u in upstreams] == [("enforce", None), ("observe", None)]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("state=open", "bad-state"),
        ("state=", "bad-state"),
        ("verdict=forked", "bad-verdict"),
        ("upstream=nobody", "no-such-upstream"),
        ("limit=0", "bad-limit"),
        ("limit=501", "bad-limit"),
        ("limit=-1", "bad-limit"),
        ("limit=ten", "bad-limit"),
        ("limit=", "bad-limit"),
        ("limit=1e2", "bad-limit"),
        ("limit=0000000019999", "bad-limit"),
        ("limit=9" + "0" * 100, "bad-limit"),
        ("after=", "bad-after"),
        ("after=1", "bad-after"),
        ("after=a-b", "bad-after"),
        ("after=-1-1", "bad-after"),
        ("after=1-1-1", "bad-after"),
        ("after=1-" + "9" * 5000, "bad-after"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_bad_question(local: Desk, query: str, kind: str) -> None:
    """A filter, bound or token that is none is 400."""
    assert await problem(local.admin, f"GET /api/v1/sessions?{query}") == (400, kind)


@pytest.mark.parametrize("limit", [1, 500])
async def test_bounds_of_a_page(local: Desk, limit: int) -> None:
    """The bounds themselves are allowed."""
    assert set(await local.admin.get(f"sessions?limit={limit}")) == {"sessions", "next"}


# Reads.


@pytest.mark.parametrize("path", ["/", "/api/v1/status", "/api/v1/sessions", "/api/v1/config"])
async def test_head(local: Desk, path: str) -> None:
    """HEAD says what GET would, without the body."""
    got, head = [await local.admin.ask(f"{method} {path}") for method in ("GET", "HEAD")]
    assert (got.status, head.status, head.body) == (200, 200, b"")
    assert head.head.one(b"Content-Type") == got.head.one(b"Content-Type")
    if path != "/api/v1/status":  # which tells the time
        assert head.head.one(b"Content-Length") == got.head.one(b"Content-Length")


async def test_status(local: Desk) -> None:
    """The whole of it, before any traffic."""
    status = await local.admin.get("status")
    assert abs(status.pop("now") - time.time()) < 5
    assert abs(status.pop("started_at") - time.time()) < 120
    assert abs(status["config"].pop("last_reload_at") - time.time()) < 120
    assert status.pop("limits")["sessions_per_upstream"] == 20_000
    assert status.pop("python").startswith("3.")
    upstreams = status.pop("upstreams")
    proxy = local.proxy
    assert status == {
        "version": __version__,
        "pid": proxy.process.pid,
        "state": "ready",
        "reasons": [],
        "listen": f"http://127.0.0.1:{proxy.port}",
        "status": f"http://127.0.0.1:{proxy.status_port}",
        "admin": local.admin.place,
        "config": {"path": str(proxy.directory / "forkwatch.yaml"), "last_reload_ok": True, "errors": []},
        "ledger_bytes": status["ledger_bytes"],
        "log_messages_dropped": 0,
        "open_exchanges": 0,
    }
    assert [u["upstream"] for u in upstreams] == ["tools", "other"]
    assert upstreams[1] == {
        "upstream": "other",
        "url": f"http://127.0.0.1:{local.port}",
        "mode": "observe",
        "configured_mode": "observe",
        "until_at": None,
        "sessions": {"active": 0, "quarantined": 0},
        "requests_in_flight": 0,
        "streams_open": {"post": 0, "get": 0, "resume": 0},
        "resume_attempts": 0,
        "verdicts": dict.fromkeys((verdict.value for verdict in Verdict), 0),
        **dict.fromkeys(("would_cut", "cut", "events_lost", "events_duplicated"), 0),
        **dict.fromkeys(("requests_unanswered", "fail_open", "upstream_errors"), 0),
    }


async def test_config_with_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: Desk) -> None:
    """Every setting in force, and whether the file, a variable or nobody gave it."""
    monkeypatch.setitem(os.environ, "FORKWATCH__LOG__LEVEL", "warning")
    async with desk(tmp_path, lambda port: [entry("tools", port)]) as made:
        config = await made.admin.get("config")
    assert config["path"] == str(tmp_path / "forkwatch.yaml")
    rows = {row["key"]: (row["value"], row["source"]) for row in config["settings"]}
    assert len(rows) == len(config["settings"])
    assert rows["log.level"] == ("warning", "env")
    assert rows["log.format"] == ("json", "file")
    assert rows["upstreams[0].name"] == ("tools", "file")
    assert rows["upstreams[0].mode"] == ("observe", "default")
    assert rows["limits.ledger_bytes"] == ("256MiB", "default")


async def test_one_id_on_two_upstreams(local: Desk) -> None:
    """Both are listed; to ask for one alone, or to cut it, the upstream must be named."""
    session = "the-same-session-id"
    for path in ("/tools", "/other"):
        async with local.lab(path) as lab:
            await lab.initialize(session=session)
    hashed = hash_session(session)
    listed = (await local.admin.get("sessions"))["sessions"]
    assert {(s["session"], s["upstream"]) for s in listed} >= {(hashed, "tools"), (hashed, "other")}
    for name in (hashed, session):
        assert await problem(local.admin, f"GET /api/v1/sessions/{name}") == (409, "ambiguous-session")
        asked = f"POST /api/v1/sessions/{name}/quarantine"
        assert await problem(local.admin, asked, MUTATION) == (409, "ambiguous-session")
        found = await local.admin.get(f"sessions/{name}?upstream=other")
        assert (found["session"], found["upstream"], found["state"]) == (hashed, "other", "active")
    assert await local.admin.get("sessions?upstream=tools&state=quarantined") == {
        "sessions": [],
        "next": None,
    }


async def test_the_list_tells_states_and_verdicts(local: Desk) -> None:
    """An active, an ended and a cut session, and one of two verdicts, each found by its filter alone."""
    made: dict[str, str] = {}
    async with local.lab("/tools") as lab:
        for state in ("active", "ended", "quarantined", "resumed"):
            await lab.initialize()
            made[state] = hash_session(lab.session)
            if state == "ended":
                await (await lab.delete()).answer(204, [], None)
            elif state == "quarantined":
                await lab.relay(event(1), event(2), request=10)
                forked = await (await lab.get("2")).stream()
                await forked.offer(event(1, "e2-1"))
                await forked.until(lambda: forked.ended is not None, "the cut")  # noqa: B023
            elif state == "resumed":
                await lab.relay(event(1), event(2), event(3), request=10)
                await (await lab.resume("2", event(3), result(4, 10))).end()

        async def listed(query: str) -> set[str]:
            found = await local.admin.get(f"sessions?upstream=tools&limit=500&{query}")
            return {s["session"] for s in found["sessions"]} & set(made.values())

        assert await listed("state=active") == {made["active"], made["resumed"]}
        assert await listed("state=ended") == {made["ended"]}
        assert await listed("state=quarantined") == {made["quarantined"]}
        assert await listed("verdict=fork") == {made["quarantined"]}
        assert await listed("verdict=resumed") == {made["resumed"]}
        assert await listed("verdict=fork&state=active") == set()
        [summary] = (await local.admin.get("sessions?state=quarantined"))["sessions"]
        verdict = summary.pop("verdict")
        assert abs(summary.pop("opened_at") - time.time()) < 30
        assert abs(summary.pop("used_at") - time.time()) < 30
        assert abs(verdict.pop("at") - time.time()) < 30
        assert verdict == {
            "verdict": "fork",
            "reason": "log_restarted",
            "certainty": "proven",
            "action": "cut",
        }
        assert summary == {
            "session": made["quarantined"],
            "upstream": "tools",
            "state": "quarantined",
            "protocol": "2025-06-18",
            "dialect": "integer",
            "epoch": 2,
            "streams": summary["streams"],
            "events": 2,
            "in_flight": 0,
            "open": 0,
        }
