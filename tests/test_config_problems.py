"""What is wrong with a configuration: every problem at once, at its place, and nothing secret."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config import Loaded, load
from proxy.config import settings as s
from proxy.errors import ConfigError

ROOT = Path(__file__).parent.parent
UPSTREAM = "upstreams: [{name: a, url: 'http://h:1'}]\n"


def loaded(tmp_path: Path, text: str, *, env: dict[str, str] | None = None, **flags: object) -> Loaded:
    """What `text` as a file loads to."""
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, flags=flags, env=env or {})


def problems(tmp_path: Path, text: str, *, env: dict[str, str] | None = None, **flags: object) -> list[str]:
    """The lines of the error that `text` as a file raises, without the directory."""
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text, env=env, **flags)
    return [line.replace(f"{tmp_path}/", "") for line in raised.value.lines()]


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    """One run says all there is to fix, in the order of the file, each with line, path and remedy."""
    text = """\
listen: 127.0.0.1
status: 127.0.0.1:70000
upstreams:
  - name: a
    url: http://h:1
    mode: enforced
    mtach: {path: /}
    timeouts: {connect: 5}
    mode: observe
  - name: a
    url: http://h:2
    match: /mcp
limits: {gate_bytes: 1MB}
log: null
"""
    assert problems(tmp_path, text, env={"FORKWATCH__LIMITS__SESSION_IDEL": "1h"}) == [
        "f.yaml:1: listen: is not an address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080",
        "f.yaml:2: status: is not an address; a port is at most 65535",
        "f.yaml:6: upstreams[0].mode: 'enforced' is not a mode; use observe, annotate or enforce",
        "f.yaml:7: upstreams[0].mtach: is not a known key; did you mean match?",
        "f.yaml:8: upstreams[0].timeouts.connect: '5' has no unit; write 5s",
        "f.yaml:9: upstreams[0].mode: is given a second time; the first is on line 6; keep one",
        "f.yaml:10: upstreams[1].name: 'a' is the name of upstreams[0] already; "
        "give each upstream its own name",
        "f.yaml:12: upstreams[1].match: is not a mapping; its keys are path, host",
        "f.yaml:13: limits.gate_bytes: 'MB' is not a unit of size; write 1MiB",
        "f.yaml:14: log: is not a mapping; its keys are format, level, session_ids, event_ids",
        "FORKWATCH__LIMITS__SESSION_IDEL: is not a known key; did you mean FORKWATCH__LIMITS__SESSION_IDLE?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("listen: 127.0.0.1:1", "f.yaml:1: upstreams: is required", id="no-upstreams"),
        pytest.param(
            "upstreams: []", "f.yaml:1: upstreams: is empty; name at least one upstream", id="empty"
        ),
        pytest.param("upstreams:", "f.yaml:1: upstreams: is empty; begin each entry with -", id="heading"),
        pytest.param(
            "upstreams: {a: 1}", "f.yaml:1: upstreams: is not a list; begin each entry with -", id="dict"
        ),
        pytest.param("upstreams:\n  - name: a", "f.yaml:2: upstreams[0].url: is required", id="no-url"),
        pytest.param(
            "upstreams: [x]",
            "f.yaml:1: upstreams[0]: is not a mapping; write at least url: http://HOST:PORT",
            id="item",
        ),
        pytest.param(
            UPSTREAM + "listen: [1]", "f.yaml:2: listen: is a list, not a single value", id="list-for-scalar"
        ),
        pytest.param(
            UPSTREAM + "listen:",
            "f.yaml:2: listen: must not be empty; remove the key to use its default",
            id="null-where-none-may-be",
        ),
        pytest.param(
            UPSTREAM + "tls: {cert: /nowhere}",
            "f.yaml:2: tls.key: is required",
            id="tls-key-missing",
        ),
        pytest.param(
            "upstreams: [{url: 'http://h:1', actions: {gap/forward_jmp: pass}}]",
            "upstreams[0].actions.gap/forward_jmp: is not a known key; did you mean gap/forward_jump?",
            id="unknown-reason",
        ),
        pytest.param(
            "upstreams: [{url: 'http://h:1', actions: {fork/inclusive: cut}}]",
            "upstreams[0].actions.fork/inclusive: is not a known key",
            id="reason-of-another-verdict",
        ),
        pytest.param(
            "upstreams: [{url: 'http://h:1', actions: {fork: would_cut}}]",
            "f.yaml:1: upstreams[0].actions.fork: 'would_cut' is not an action; use pass, annotate or cut",
            id="unknown-action",
        ),
        pytest.param(
            "upstreams: [{url: 'http://h:1', ids: foo}]", "'foo' is not a form of event ids", id="dialect"
        ),
        pytest.param(
            UPSTREAM + "state: sqlite:///x",
            "f.yaml:2: state: sqlite is not available in this version; only memory:// is available",
            id="state-of-another-version",
        ),
        pytest.param(
            UPSTREAM + "status: 127.0.0.1:8080",
            "f.yaml:2: status: is the same address as listen",
            id="one-port",
        ),
        pytest.param(
            UPSTREAM + "admin: 0.0.0.0:9",
            "f.yaml:2: admin: can be reached from other machines",
            id="open-admin",
        ),
        pytest.param(
            UPSTREAM + "admin: 127.0.0.1:8080",
            "f.yaml:2: admin: is the address of another listener",
            id="admin-port",
        ),
        pytest.param(UPSTREAM + "admin: a.example:9", "f.yaml:2: admin: can be reached", id="named-admin"),
        pytest.param(
            "upstreams: [{url: 'http://h:1', actions: cut}]",
            "f.yaml:1: upstreams[0].actions: is not a mapping; write verdict: VALUE",
            id="actions",
        ),
        pytest.param(
            "upstreams: [{url: 'http://h:1', tls: {}}]",
            "f.yaml:1: upstreams[0].tls: is given, but url is not https",
            id="tls-without-https",
        ),
    ],
)
def test_problem(tmp_path: Path, text: str, expected: str) -> None:
    """Each mistake is named at its place."""
    assert any(expected in line for line in problems(tmp_path, text))


@pytest.mark.parametrize(
    ("earlier", "later", "shadowed"),
    [
        ("{path: /}", "{path: /mcp}", True),
        ("{path: /mcp}", "{path: /mcp/}", True),
        ("{path: /mcp}", "{path: /mcps}", False),
        ("{path: /mcp/a}", "{path: /mcp}", False),
        ("{host: a.example}", "{path: /mcp}", False),
        ("{host: a.example}", "{host: A.EXAMPLE, path: /mcp}", True),
        ("{host: a.example}", "{host: 'a.example:81'}", True),
        ("{host: 'a.example:81'}", "{host: a.example}", False),
        ("{path: /mcp}", "{host: a.example, path: /mcp/x}", True),
    ],
)
def test_upstream_that_can_never_match(tmp_path: Path, earlier: str, later: str, shadowed: bool) -> None:
    """An entry of which nothing is left by an earlier one is an error that names both."""
    text = f"upstreams:\n- {{name: a, url: 'http://h:1', match: {earlier}}}\n"
    text += f"- {{name: b, url: 'http://h:2', match: {later}}}\n"
    if not shadowed:
        assert len(loaded(tmp_path, text).settings.upstreams) == 2
        return
    assert problems(tmp_path, text) == [
        "f.yaml:3: upstreams[1].match: can never match: upstreams[0] ('a') stands before upstreams[1] ('b') "
        "and takes every such request; put the narrower match first"
    ]


@pytest.mark.parametrize(
    ("variable_name", "expected"),
    [
        ("FORKWATCH__", "FORKWATCH__: is not a setting; write FORKWATCH__SECTION__KEY"),
        (
            "FORKWATCH__LOG____LEVEL",
            "FORKWATCH__LOG____LEVEL: is not a setting; write FORKWATCH__SECTION__KEY",
        ),
        ("FORKWATCH__NOPE__X", "FORKWATCH__NOPE__X: is not a known key; use listen, status, admin, "),
        (
            "FORKWATCH__UPSTREAMS__MODE",
            "FORKWATCH__UPSTREAMS__MODE: names a key of a list; put an index before MODE, such as 0__MODE",
        ),
        (
            "FORKWATCH__UPSTREAMS__2__MODE",
            "FORKWATCH__UPSTREAMS__2__MODE: names entry 2 of a list of 1; the next index is 1",
        ),
        ("FORKWATCH__LIMITS", "FORKWATCH__LIMITS: is not a mapping; its keys are "),
        ("FORKWATCH__TLS__CERT", "FORKWATCH__TLS__CERT: is not enough; set FORKWATCH__TLS__KEY too"),
        (
            "FORKWATCH__UPSTREAMS__0__ACTIONS__GAP__FORWARD",
            "did you mean FORKWATCH__UPSTREAMS__0__ACTIONS__GAP__FORWARD_JUMP?",
        ),
    ],
)
def test_variable_that_is_no_setting(tmp_path: Path, variable_name: str, expected: str) -> None:
    """A mistake in the environment is named by its variable, with the nearest one."""
    lines = problems(tmp_path, UPSTREAM, env={variable_name: "x"})
    assert any(expected in line and line.startswith(f"{variable_name}: ") for line in lines)


def test_text_of_the_file_where_the_environment_enters_a_section(tmp_path: Path) -> None:
    """The file's own mistake is reported when a variable goes below it."""
    lines = problems(tmp_path, UPSTREAM + "limits: 5\n", env={"FORKWATCH__LIMITS__SESSION_IDLE": "1h"})
    assert [line.partition(";")[0] for line in lines] == ["f.yaml:2: limits: is not a mapping"]


def test_nothing_configured_says_which_flags_to_use() -> None:
    """Without file, flag or variable there is no upstream, and no guess."""
    with pytest.raises(ConfigError) as raised:
        load(None, flags={}, env={})
    assert raised.value.lines() == ["no upstream is configured; give --config FILE or --upstream URL"]
    assert raised.value.exit_code == 2


SECRET = "hunter2secret"


@pytest.mark.parametrize(
    "text",
    [
        f"upstreams: [{{url: 'http://user:{SECRET}@h:1'}}]",
        f"upstreams: [{{url: 'http://user:{SECRET}\u2100@h:1'}}]",
        f"upstreams: [{{url: 'http://h:1', mode: 'http://u:{SECRET}@h'}}]",
        UPSTREAM + f"state: redis://:{SECRET}@h/0",
        UPSTREAM + f"state: {SECRET}",
        UPSTREAM + f"listen: http://u:{SECRET}@h:1",
        UPSTREAM + f"admin: u:{SECRET}@h:1",
        UPSTREAM + f"admin_token_file: {SECRET}",
        UPSTREAM + f"admin_token: {SECRET}",
        UPSTREAM + f"tls: {{cert: /nowhere, key: '{SECRET}'}}",
        UPSTREAM + f"password: *{SECRET}",
        UPSTREAM + f"password: '{SECRET}",
        UPSTREAM + f"password: !{SECRET} x",
        UPSTREAM + f"password: !{SECRET}!x y",
        UPSTREAM + f"password: @{SECRET}",
    ],
)
def test_no_secret_in_an_error(tmp_path: Path, text: str) -> None:
    """What may be a credential is never repeated, whatever is wrong with it."""
    lines = problems(tmp_path, text)
    assert lines
    assert not any(SECRET in line for line in lines)


def test_no_secret_in_a_chain_of_causes(tmp_path: Path) -> None:
    """An error that is printed with its causes gives nothing away either."""
    with pytest.raises(ConfigError) as raised:
        load(None, flags={"upstream": f"http://u:{SECRET}@h"}, env={})
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A self-signed certificate, its key, and another key."""
    folder = tmp_path_factory.mktemp("pair")
    cert, key, other = folder / "cert.pem", folder / "key.pem", folder / "other.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for file in (other, key):
        name = ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(file), "-out", str(cert)]
        subprocess.run([*make, *name], check=True, capture_output=True, timeout=30)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    return cert, key, other


def test_certificates_are_tried(tmp_path: Path, pair: tuple[Path, Path, Path]) -> None:
    """A pair that works is accepted; one that does not, is half, or is no certificate is named."""
    cert, key, other = pair
    good = f"tls: {{cert: {cert}, key: {key}}}\n"
    upstream = f"upstreams: [{{url: 'https://h', tls: {{ca: {cert}, cert: {cert}, key: {key}}}}}]\n"
    assert loaded(tmp_path, UPSTREAM + good).settings.tls == s.TlsSettings(cert=str(cert), key=str(key))
    assert loaded(tmp_path, upstream).settings.upstreams[0].tls == s.UpstreamTls(
        ca=str(cert), cert=str(cert), key=str(key)
    )
    wrong = problems(tmp_path, UPSTREAM + f"tls: {{cert: {cert}, key: {other}}}\n")
    assert wrong == [
        "f.yaml:2: tls: cert and key cannot be used together; "
        "use PEM files of one pair, the key without a passphrase"
    ]
    half = problems(tmp_path, f"upstreams: [{{url: 'https://h', tls: {{cert: {cert}}}}}]\n")
    assert half == ["f.yaml:1: upstreams[0].tls: names no key; give both cert and key, or neither"]
    no_ca = problems(tmp_path, f"upstreams: [{{url: 'https://h', tls: {{ca: {key}}}}}]\n")
    assert no_ca == ["f.yaml:1: upstreams[0].tls.ca: holds no usable certificates; use a PEM file"]


def test_encrypted_key_fails_without_asking(tmp_path: Path, pair: tuple[Path, Path, Path]) -> None:
    """A key with a passphrase is a problem, not a prompt, also where there is a terminal to ask at."""
    cert, key, _ = pair
    locked, file = tmp_path / "locked.pem", tmp_path / "f.yaml"
    make = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", str(key), "-out", str(locked)]
    subprocess.run(make, check=True, capture_output=True, timeout=30)
    file.write_text(UPSTREAM + f"tls: {{cert: {cert}, key: {locked}}}\n")
    # The first terminal that the leader of a new session opens is the one OpenSSL would ask at.
    code = "import os, sys; os.open(sys.argv[1], os.O_RDWR); from proxy.cli import main; "
    code += "sys.exit(main(['check', '--config', sys.argv[2]]))"
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", code, os.ttyname(theirs), str(file)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, start_new_session=True, check=False, cwd=ROOT
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert done.stderr.partition(";")[0] == f"{file}:2: tls: cert and key cannot be used together"
