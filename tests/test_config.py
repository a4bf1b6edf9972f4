"""Loading the configuration: precedence, sources, every problem at once, nothing secret."""

from __future__ import annotations

import dataclasses
import ssl
import subprocess
from pathlib import Path

import pytest

from proxy import settings as s
from proxy.config import Loaded, load, rows
from proxy.document import Source, Table, read_file
from proxy.endpoint import Endpoint
from proxy.errors import ConfigError
from proxy.overrides import variable
from proxy.schema import ROOT, Choices, Section, Sections

EXAMPLE = Path(__file__).parent.parent / "config" / "forkwatch.yaml"
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


def test_example_file_holds_every_default() -> None:
    """The documented file says what the code does when nothing is said."""
    upstream = s.UpstreamSettings(url="http://127.0.0.1:9000")
    assert load(EXAMPLE, flags={}, env={}).settings == s.Settings(upstreams=(upstream,))


def test_example_file_holds_every_key() -> None:
    """The keys of the documented file and of the schema are the same set, and in the same order."""
    root, _ = read_file(EXAMPLE)
    assert _written(root) == _known(ROOT)


def _written(table: Table) -> list[str]:
    """Every key of a table, with those of the sections and first entries in it."""
    found = []
    for key, node in table.entries.items():
        found.append(key)
        below = node.items[0] if hasattr(node, "items") else node
        if isinstance(below, Table):
            found += [f"{key}.{inner}" for inner in _written(below)]
    return found


def _known(section: Section) -> list[str]:
    found = []
    for key, entry in section.keys.items():
        found.append(key)
        below = entry.item if isinstance(entry, Sections) else entry
        if isinstance(below, Section) and not below.nullable:
            found += [f"{key}.{inner}" for inner in _known(below)]
    return found


def test_schema_sets_every_attribute_of_the_settings() -> None:
    """No setting is without a key, and no key sets what is not there."""

    def check(section: Section) -> None:
        names = [field.name for field in dataclasses.fields(section.make)]  # type: ignore[arg-type]
        assert [entry.attribute for entry in section.keys.values()] == names
        for entry in section.keys.values():
            below = entry.item if isinstance(entry, Sections) else entry
            if isinstance(below, Section):
                check(below)

    check(ROOT)


def test_whole_file_becomes_settings(tmp_path: Path) -> None:
    """Every kind of value arrives in its unit, null as None."""
    text = """
listen: '[::1]:0'
admin: null
metrics: {exemplars: true}
upstreams:
  - name: tools
    url: HTTPS://Example.com:443/
    match: {path: /mcp/, host: MCP.example.com}
    host_header: rewrite
    replica_header: X-Pod
    mode: enforce
    ids: epoch:seq
    replay_deadline: 1m30s
    timeouts: {connect: null, headers: 300ms}
    enforce: {cut_on: suspected}
    actions: {rewound: cut, gap/forward_jump: pass}
    tls: {verify: false}
  - {name: rest, url: 'unix:/run/mcp.sock'}
limits: {ledger_bytes: 1GiB, session_idle: 1d}
log: {level: debug}
shutdown: {delay: 0s}
"""
    got = loaded(tmp_path, text).settings
    first = s.UpstreamSettings(
        name="tools",
        url="https://example.com",
        match=s.Match(path="/mcp", host="mcp.example.com"),
        host_header="rewrite",
        replica_header="X-Pod",
        mode="enforce",
        ids="epoch:seq",
        replay_deadline_s=90.0,
        timeouts=s.Timeouts(connect_s=None, headers_s=0.3),
        enforce=s.Enforce(cut_on="suspected"),
        actions={"rewound": "cut", "gap/forward_jump": "pass"},
        tls=s.UpstreamTls(verify=False),
    )
    assert got == s.Settings(
        listen=Endpoint("::1", 0),
        admin=None,
        metrics=s.MetricsSettings(exemplars=True),
        upstreams=(first, s.UpstreamSettings(name="rest", url="unix:/run/mcp.sock")),
        limits=s.Limits(ledger_bytes=2**30, session_idle_s=86_400.0),
        log=s.LogSettings(level="debug"),
        shutdown=s.Shutdown(delay_s=0.0),
    )


def test_json_is_yaml(tmp_path: Path) -> None:
    """A JSON file loads, tabs and escaped slashes included."""
    text = (
        '{\n\t"listen": "127.0.0.1:1",\n\t"upstreams": [{"url": "http:\\/\\/h:1", "strip_prefix": true}]\n}'
    )
    got = loaded(tmp_path, text).settings
    assert got.listen == Endpoint("127.0.0.1", 1)
    assert got.upstreams == (s.UpstreamSettings(url="http://h:1", strip_prefix=True),)


def test_heading_without_keys_is_the_default(tmp_path: Path) -> None:
    """A section whose keys are all commented out says nothing."""
    text = "upstreams:\n  - url: http://h:1\n    match:\n    actions:\nlimits:\n  # session_idle: 1h\n"
    assert loaded(tmp_path, text).settings == s.Settings(upstreams=(s.UpstreamSettings(url="http://h:1"),))


def test_precedence_is_flag_environment_file_default(tmp_path: Path) -> None:
    """The later source wins, key by key, and each value says where it came from."""
    text = UPSTREAM + "listen: 127.0.0.1:1\nstatus: 127.0.0.1:2\nlog: {format: json, level: debug}\n"
    env = {"FORKWATCH__LISTEN": "127.0.0.1:3", "FORKWATCH__STATUS": "127.0.0.1:4"}
    env |= {"FORKWATCH__LIMITS__SESSION_IDLE": "1h"}
    got = loaded(tmp_path, text, env=env, listen="127.0.0.1:5", log_format="console", mode=None)
    assert got.settings.listen == Endpoint("127.0.0.1", 5)
    assert got.settings.status == Endpoint("127.0.0.1", 4)
    assert got.settings.log == s.LogSettings(format="console", level="debug")
    assert got.settings.limits.session_idle_s == 3600.0
    assert got.path == tmp_path / "f.yaml"
    said = {key: source for key, source in got.sources.items() if source is not Source.DEFAULT}
    assert said == {
        "listen": Source.FLAG,
        "status": Source.ENV,
        "upstreams[0].name": Source.FILE,
        "upstreams[0].url": Source.FILE,
        "limits.session_idle": Source.ENV,
        "log.format": Source.FLAG,
        "log.level": Source.FILE,
    }


def test_every_key_has_a_source_and_a_row(tmp_path: Path) -> None:
    """`rows` and `sources` name the same keys, and a row reads back as the value it shows."""
    first = load(EXAMPLE, flags={"mode": "enforce"}, env={})
    assert [key for key, _ in rows(first.settings)] == list(first.sources)
    env = {variable(k): v for k, v in rows(first.settings) if not k.endswith("actions")}
    assert load(None, flags={}, env=env).settings == first.settings
    assert ("upstreams[0].timeouts.client_keepalive", "75s") in rows(first.settings)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({"FORKWATCH__ADMIN": "null"}, {"admin": None}, id="null"),
        pytest.param({"FORKWATCH__ADMIN": "localhost:1"}, {"admin": "localhost:1"}, id="loopback-by-name"),
        pytest.param({"FORKWATCH__ADMIN": " "}, {"admin": None}, id="empty-is-null"),
        pytest.param(
            {"FORKWATCH_PORT": "tcp://10.0.0.1:80", "FORKWATCH_LISTEN": "x"}, {}, id="service-links"
        ),
        pytest.param(
            {"FORKWATCH__SHUTDOWN__DELAY": "0s\n"},
            {"shutdown": s.Shutdown(delay_s=0.0)},
            id="trailing-newline",
        ),
    ],
)
def test_environment(tmp_path: Path, env: dict[str, str], expected: dict[str, object]) -> None:
    """A variable is the text of a YAML scalar; one underscore after the name is somebody else's."""
    plain = loaded(tmp_path, UPSTREAM).settings
    assert loaded(tmp_path, UPSTREAM, env=env).settings == dataclasses.replace(plain, **expected)  # type: ignore[arg-type]


def test_environment_enters_lists_and_makes_upstreams() -> None:
    """The environment alone is enough to run, with upstreams by index and actions by verdict and reason."""
    env = {
        "FORKWATCH__UPSTREAMS__0__URL": "http://h:1",
        "FORKWATCH__UPSTREAMS__0__MATCH__PATH": "/a",
        "FORKWATCH__UPSTREAMS__0__ACTIONS__REWOUND": "cut",
        "FORKWATCH__UPSTREAMS__0__ACTIONS__GAP__FORWARD_JUMP": "pass",
        "FORKWATCH__UPSTREAMS__1__URL": "http://h:2",
        "FORKWATCH__UPSTREAMS__1__NAME": "42",
    }
    actions = {"rewound": "cut", "gap/forward_jump": "pass"}
    first = s.UpstreamSettings(url="http://h:1", match=s.Match(path="/a"), actions=actions)
    second = s.UpstreamSettings(name="42", url="http://h:2")
    assert load(None, flags={}, env=env).settings.upstreams == (first, second)


def test_environment_fills_an_empty_entry(tmp_path: Path) -> None:
    """An entry, or a section, that the file leaves empty is made by the variables that enter it."""
    env = {"FORKWATCH__UPSTREAMS__0__URL": "http://h:1", "FORKWATCH__LOG__LEVEL": "debug"}
    got = loaded(tmp_path, "upstreams: [null]\nlog:\n", env=env).settings
    assert got.upstreams == (s.UpstreamSettings(url="http://h:1"),)
    assert got.log.level == "debug"


def test_upstream_flag_replaces_the_list(tmp_path: Path) -> None:
    """`--upstream` is the one upstream; the environment may say what the flag does not, and no more."""
    text = "upstreams: [{name: a, url: 'http://h:1', mode: annotate}, {name: b, url: 'http://h:2'}]"
    env = {
        "FORKWATCH__UPSTREAMS__0__URL": "http://h:3",
        "FORKWATCH__UPSTREAMS__0__IDS": "integer",
        "FORKWATCH__UPSTREAMS__1__MODE": "enforce",
    }
    got = loaded(tmp_path, text, env=env, upstream="http://h:9")
    assert got.settings.upstreams == (s.UpstreamSettings(name="default", url="http://h:9", ids="integer"),)
    assert got.warnings[:2] == (
        "FORKWATCH__UPSTREAMS__0__URL: not used, because --upstream is given",
        "FORKWATCH__UPSTREAMS__1__MODE: not used, because --upstream is given",
    )


def test_mode_flag_is_for_every_upstream(tmp_path: Path) -> None:
    """`--mode` sets the mode of all upstreams, over what the file and environment say."""
    text = "upstreams: [{name: a, url: 'http://h:1', mode: annotate, match: {path: /a}}, {name: b, url: 'http://h:2'}]"
    got = loaded(tmp_path, text, env={"FORKWATCH__UPSTREAMS__0__MODE": "observe"}, mode="enforce")
    assert [u.mode for u in got.settings.upstreams] == ["enforce", "enforce"]


def test_unknown_flag_is_a_mistake_of_the_caller() -> None:
    """A flag that sets nothing is refused, not ignored."""
    with pytest.raises(ValueError, match="colour"):
        load(None, flags={"colour": "red"}, env={})


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


def test_warnings_say_what_may_surprise(tmp_path: Path) -> None:
    """Each caution is one line that begins with its key."""
    text = "upstreams: [{url: 'https://h', tls: {verify: false}}]\nadmin: 'unix:/run/a.sock'\n"
    got = loaded(tmp_path, text + "shutdown: {delay: 5s, spread: 5s, deadline: 9s}\n").warnings
    assert [line.partition(": ")[0] for line in got] == [
        "state",
        "admin",
        "shutdown",
        "upstreams[0].tls.verify",
    ]
    quiet = loaded(tmp_path, UPSTREAM).warnings
    assert len(quiet) == 1
    assert quiet[0].startswith("state: memory:// is lost at a restart")


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
    """A key with a passphrase is a problem, not a prompt."""
    cert, key, _ = pair
    locked = tmp_path / "locked.pem"
    make = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", str(key), "-out", str(locked)]
    subprocess.run(make, check=True, capture_output=True, timeout=30)
    lines = problems(tmp_path, UPSTREAM + f"tls: {{cert: {cert}, key: {locked}}}\n")
    assert [line.partition(";")[0] for line in lines] == [
        "f.yaml:2: tls: cert and key cannot be used together"
    ]


def test_settings_are_frozen(tmp_path: Path) -> None:
    """Nothing can be changed once loaded, not even inside a mapping."""
    got = loaded(tmp_path, "upstreams: [{url: 'http://h:1', actions: {fork: cut}}]").settings
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.state = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        got.upstreams[0].actions["fork"] = "pass"  # type: ignore[index]


def test_actions_cover_the_schema() -> None:
    """The one mapping with free keys is `actions`, closed over the verdicts and their reasons."""
    upstreams = ROOT.keys["upstreams"]
    assert isinstance(upstreams, Sections)
    actions = upstreams.item.keys["actions"]
    assert isinstance(actions, Choices)
    assert {"fork", "fork/log_restarted", "rewound", "gap/nothing_replayed"} <= actions.names
    assert "fork/inclusive" not in actions.names
