"""Planted secrets: after everything that can happen to a session, none of them is anywhere an operator looks."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proxy.cli import main
from proxy.engine.privacy import hash_session
from tests.admin.operator import MUTATION, Desk, Operator, desk, entry
from tests.forkwatch_process import ROOT, free_port
from tests.scenarios.exchange import Exchange
from tests.scenarios.frames import event, priming, result
from tests.scenarios.lab import Lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION = "5ess10n-id-4f9a-b2c8d7e6f5a4"
OTHER_SESSION = "0ther-id-77aa-c0ffee5ess10n"
BEARER = "b3arer-of-the-client"
COOKIE = "c00kie-of-the-client"
QUERY = "qu3ry-of-the-target"
ARGUMENT = "argum3nt-of-the-tool"
PAYLOAD = "payl0ad-of-the-answer"
PASSWORD = "passw0rd-in-a-variable"
BROKEN = "br0ken-file-secret"
TOKEN = "adm1n-token-of-the-interface"
WRONG = "wr0ng-token-of-a-guest"
PLAIN = (SESSION, OTHER_SESSION, BEARER, COOKIE, QUERY, ARGUMENT, PAYLOAD, BROKEN, TOKEN, WRONG)


def encoded(secret: str) -> Iterator[str]:
    """What of base64 tells a secret, wherever in a text it begins."""
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + secret.encode()).decode()
        yield text[4 * bool(shift) : -4]
        yield text[4 * bool(shift) : -4].replace("+", "-").replace("/", "_")


def found_in(text: str, *more: str) -> list[str]:
    """The secrets that stand in a text: plain, without regard to case, or in base64."""
    lower = text.lower()
    plain = [secret for secret in (*PLAIN, *more) if secret.lower() in lower]
    return plain + [
        form for secret in (SESSION, OTHER_SESSION, TOKEN) for form in encoded(secret) if form in text
    ]


def in_base64(session: str, number: int) -> str:
    """An event id that hides the session's own, as those of the C# SDK do."""
    return f"{base64.b64encode(session.encode()).decode()}:{base64.b64encode(b'stream').decode()}:{number}"


@pytest.fixture(scope="module")
def key_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A client certificate with its key in one file, and a line of the key."""
    file = tmp_path_factory.mktemp("key") / "client.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=forkwatch",
    ]
    try:
        command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate")
    lines = file.read_text().splitlines()
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file, lines[3]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["json", "console"])
async def here(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, key_pair: tuple[Path, str]
) -> AsyncIterator[Desk]:
    """A proxy that says all it can, with the session's whole story behind it."""
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "token").write_text(TOKEN)
    key = str(key_pair[0])
    tls = {"cert": key, "key": key, "ca": key}

    def entries(port: int) -> list[dict[str, Any]]:
        secure = entry("secure", port, tls=tls, timeouts={"connect": "200ms"})
        secure["url"] = f"https://127.0.0.1:{port}"  # which speaks no TLS
        gone = entry("gone", free_port())
        return [entry("soft", port, mode="annotate"), entry("hard", port, mode="enforce"), secure, gone]

    place = f"127.0.0.1:{free_port()}"
    top = {
        "admin": place,
        "admin_token_file": str(directory / "token"),
        "log": {"format": request.param, "level": "debug"},
        "metrics": {"exemplars": True},
    }
    async with desk(directory, entries, **top) as made:
        made.admin = Operator(place, (f"Authorization: Bearer {TOKEN}",))
        await live_through(made)
        yield made


def headers(session: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """What a client sends beside its request."""
    accept = ("Accept", "application/json, text/event-stream")
    credentials = [("Authorization", f"Bearer {BEARER}"), ("Cookie", f"id={COOKIE}")]
    return [accept, ("Mcp-Session-Id", session), *credentials, *more]


async def call(lab: Lab, request: object, *, reaches: bool = True) -> Exchange:
    """A tool call with everything in it that nobody else may see."""
    params = {"name": "t", "arguments": {"password": ARGUMENT}}
    body = json.dumps({"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params})
    target = f"{lab.path}?key={QUERY}"
    return await lab.request("POST", headers(lab.session), body.encode(), target=target, reaches=reaches)


async def resume(lab: Lab, cursor: str, *, reaches: bool = True) -> Exchange:
    """A resume."""
    target = f"{lab.path}?key={QUERY}"
    return await lab.request(
        "GET", headers(lab.session, ("Last-Event-ID", cursor)), target=target, reaches=reaches
    )


async def live_through(made: Desk) -> None:
    """Everything that can go wrong goes wrong."""
    async with made.lab("/soft") as lab:
        await lab.initialize(session=OTHER_SESSION)
        await embedded_ids(lab, lambda n: f"{OTHER_SESSION}_{n}")
        await lab.initialize(session=SESSION)
        await embedded_ids(lab, lambda n: in_base64(SESSION, n))
        await upstream_fails(lab)
    async with made.lab("/hard") as lab:
        await lab.initialize(session=SESSION)
        await cut(lab)
        await made.admin.order(f"DELETE sessions/{SESSION}/quarantine?upstream=hard")
        await made.admin.order(f"POST sessions/{SESSION}/quarantine?upstream=hard")
        refused = await call(lab, 13, reaches=False)
        await refused.until(lambda: refused.ended is not None, "the refusal")
        assert refused.status == 404
    for path in ("/secure", "/gone"):
        async with made.lab(path) as lab:
            lab.session = SESSION
            failed = await call(lab, 1, reaches=False)
            await failed.until(lambda: failed.ended is not None, "the failure")  # noqa: B023
            assert failed.status in (502, 504)
            made.upstream.waiting = type(made.upstream.waiting)()
    await broken_reloads(made)
    for fields in ((f"Authorization: Bearer {WRONG}",), (f"Authorization: Basic {WRONG}",)):
        guest = Operator(made.admin.place, fields)
        for line in ("GET /api/v1/status", f"POST /api/v1/sessions/{SESSION}/quarantine", f"GET /{SESSION}"):
            assert (await guest.ask(line, MUTATION)).status == 401


async def embedded_ids(lab: Lab, name: Any) -> None:
    """A stream whose ids hold the session's id is resumed: as it should be, past its end, and refused."""
    first = await (await call(lab, 10)).stream(
        priming(name(1)), event(name(2), PAYLOAD), event(name(3), PAYLOAD)
    )
    await first.abort()
    again = await (await resume(lab, name(2))).stream(event(name(3), PAYLOAD), result(name(4), 10, PAYLOAD))
    await again.end()
    await (await resume(lab, name(4))).answer(404, [("Content-Type", "application/json")], PAYLOAD.encode())
    crossed = await (await resume(lab, name(3))).stream(event(name(900), PAYLOAD))
    await crossed.offer(f"id: a\0{SESSION}\ndata: {PAYLOAD}\n\n".encode())
    await crossed.end()
    session_error = {"code": -32001, "message": f"Session not found {SESSION} {PAYLOAD}"}
    text = json.dumps({"jsonrpc": "2.0", "id": 11, "error": session_error})
    await (await (await call(lab, 11)).stream(f"data: {text}\n\n".encode())).end()


async def upstream_fails(lab: Lab) -> None:
    """The upstream breaks off in a frame, and answers with what is no HTTP."""
    torn = await (await call(lab, 20)).stream()
    await torn.offer(f"id: 1\ndata: {PAYLOAD}".encode())
    await torn.abort()
    broken = await call(lab, 21)
    broken.upstream.writer.write(f"HTTP/1.1 {PAYLOAD}\r\nSet-Cookie: {COOKIE}\r\n\r\n".encode())
    await broken.until(lambda: broken.ended is not None, "the failure")
    assert broken.status == 502


async def cut(lab: Lab) -> None:
    """A fork of a call is cut, and the session's next requests are refused."""
    first = await (await call(lab, 10)).stream(event(1, PAYLOAD), event(2, PAYLOAD), event(3, PAYLOAD))
    await first.abort()
    forked = await (await resume(lab, "3")).stream()
    await forked.offer(event(1, f"{PAYLOAD} of another"))
    await forked.until(lambda: forked.ended is not None, "the cut")
    for refused in (await call(lab, 12, reaches=False), await resume(lab, "3", reaches=False)):
        await refused.until(lambda: refused.ended is not None, "the refusal")  # noqa: B023
        assert refused.status == 404


BROKEN_FILES = (
    f"upstreams: [{{url: 'http://user:{BROKEN}@127.0.0.1:9'}}]",
    f"upstreams: [{{url: 'http://127.0.0.1:9/{BROKEN}'}}]",
    f"upstreams: [{{url: 'http://127.0.0.1:9'}}]\nadmin_token_file: {BROKEN}",
    f"upstreams: [{{url: 'http://127.0.0.1:9'}}]\nadmin_token: {BROKEN}",
    f"upstreams: [{{url: 'http://127.0.0.1:9'}}]\nadmin: http://{BROKEN}",
    f"upstreams: [{{url: 'http://127.0.0.1:9', headers: {{Authorization: {BROKEN}}}}}]",
    f"upstreams: [{{url: 'http://127.0.0.1:9', tls: {{key: {BROKEN}, cert: /dev/null}}}}]",
    f"state: redis://:{BROKEN}@127.0.0.1\nupstreams: [{{url: 'http://127.0.0.1:9'}}]",
    f"upstreams: [{{url: 'http://127.0.0.1:9'}}]\ntls: {{cert: /dev/null, key: {BROKEN}}}",
    f"password: '{BROKEN}\nupstreams: [",
    f"password: {BROKEN}: {BROKEN}",
    f"- {BROKEN}",
    f"{BROKEN}",
)


async def broken_reloads(made: Desk) -> None:
    """Files that hold a secret in the wrong place are rejected, by the interface and by a signal."""
    for text in BROKEN_FILES:
        (made.proxy.directory / "forkwatch.yaml").write_text(text)
        assert (await made.admin.tell("POST reload")).status == 422
        assert (await made.admin.tell("POST reload?dry_run=1")).status == 422


# Where they are looked for.


async def test_the_story_was_told(here: Desk) -> None:
    """Each line of the log that could hold a secret was written; else finding none would mean nothing."""
    said = here.proxy.log_file.read_text()
    for name in (
        "session.opened",
        "session.quarantined",
        "quarantine.rejected",
        "quarantine.ended",
        "stream.opened",
        "stream.closed",
        "resume.attempted",
        "resume.judged",
        "finding.raised",
        "policy.action",
        "upstream.error",
        "sse.malformed",
        "config.rejected",
        "admin.request",
    ):
        assert name in said, name
    assert hash_session(SESSION) in said


async def test_the_log(here: Desk, key_pair: tuple[Path, str]) -> None:
    """Not in what is written to stdout and stderr, in either format."""
    said = here.proxy.log_file.read_text() + here.proxy.errors.read_text()
    assert found_in(said, key_pair[1]) == []


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_the_status_listener(here: Desk, key_pair: tuple[Path, str], accept: str) -> None:
    """Not in the metrics, with exemplars either, nor in what the other paths say."""
    status = Operator(f"127.0.0.1:{here.proxy.status_port}")
    said = ""
    for path in ("/metrics", "/livez", "/readyz", f"/{SESSION}"):
        answer = await status.ask(f"GET {path}", f"Accept: {accept}")
        said += answer.body.decode() + repr(answer.head)
    assert ("# {session=" in said) is accept.startswith("application")
    assert found_in(said, key_pair[1]) == []


PATHS = (
    "/",
    "/api/v1/status",
    "/api/v1/config",
    "/api/v1/sessions",
    "/api/v1/sessions?state=quarantined",
    f"/api/v1/sessions/{hash_session(OTHER_SESSION)}",
    f"/api/v1/sessions/{OTHER_SESSION}",
    f"/api/v1/sessions/{hash_session(SESSION)}?upstream=soft",
    f"/api/v1/sessions/{SESSION}?upstream=soft",
    f"/api/v1/sessions/{SESSION}?upstream=hard",
    f"/api/v1/sessions/{SESSION}",
    f"/api/v1/sessions/{SESSION}?upstream=gone",
    f"/api/v1/sessions?after={BROKEN}",
    f"/api/v1/sessions?upstream={BROKEN}",
    f"/api/v1/sessions/{SESSION}/quarantine",
    f"/{SESSION}",
)


@pytest.mark.parametrize("path", PATHS)
async def test_the_admin_interface(here: Desk, key_pair: tuple[Path, str], path: str) -> None:
    """Not in any answer to GET, whatever was asked by which name."""
    answer = await here.admin.ask(f"GET {path}")
    assert answer.status in (200, 400, 404, 405, 409)
    assert answer.body
    assert found_in(answer.body.decode() + repr(answer.head), key_pair[1]) == []


async def test_sessions_have_their_ids_shown(here: Desk) -> None:
    """The ids that hold a session's id are shown, without it: what is not found above is not just left out."""
    found = await here.admin.get(f"sessions/{OTHER_SESSION}")
    shown = [c["judged"]["cursor"] for c in found["timeline"]["connections"] if c["judged"]]
    assert shown
    assert all(shown)
    assert [log["high"] for log in found["logs"] if log["high"]]


async def test_the_live_tail(here: Desk, key_pair: tuple[Path, str]) -> None:
    """Not in the verdicts that a reader gets first, asked for by a raw id or not."""
    verdicts = int(await here.gauge("resume_verdicts_total"))
    assert verdicts >= 7
    tail = await here.admin.tail()
    blocks = [await tail.block() for _ in range(verdicts + 1)]
    await here.admin.tail(f"?session={SESSION}")
    here.admin.leave()
    assert found_in(b"".join(blocks).decode(), key_pair[1]) == []


# The configuration at the start.

VARIABLES = {
    "FORKWATCH__UPSTREAMS__0__URL": f"http://user:{PASSWORD}@127.0.0.1:9",
    "FORKWATCH__STATE": f"redis://:{PASSWORD}@127.0.0.1",
    "FORKWATCH__ADMIN_TOKEN": PASSWORD,
    "FORKWATCH__ADMIN_TOKEN_FILE": PASSWORD,
    "FORKWATCH__TLS__KEY": PASSWORD,
    "FORKWATCH__UPSTREAMS__0__TLS__KEY": PASSWORD,
    "FORKWATCH__UPSTREAMS__0__HEADERS": PASSWORD,
    "FORKWATCH__PASSWORD": PASSWORD,
}


@pytest.mark.parametrize("name", VARIABLES)
async def test_a_variable(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A password in a variable, in the right place or a wrong one, is not repeated by what rejects it."""
    monkeypatch.setenv(name, VARIABLES[name])
    flags = [] if name.endswith("URL") else ["--upstream", "http://127.0.0.1:9"]
    assert main(["check", "--explain", *flags]) == 2
    printed = capsys.readouterr()
    assert name in printed.err
    assert PASSWORD not in printed.out + printed.err


async def test_a_variable_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by the process that does not start because of it."""
    monkeypatch.setenv("FORKWATCH__UPSTREAMS__0__URL", VARIABLES["FORKWATCH__UPSTREAMS__0__URL"])
    command = [sys.executable, "-m", "proxy", "run", "--log-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "FORKWATCH__UPSTREAMS__0__URL" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
