"""Loading the configuration: defaults, units, precedence, and where each value came from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from proxy.config import Loaded, load, rows
from proxy.config import settings as s
from proxy.config.document import Source, Table, read_file
from proxy.config.overrides import variable
from proxy.config.schema import ROOT, Choices, Section, Sections
from proxy.endpoint import Endpoint

EXAMPLE = Path(__file__).parent.parent / "config" / "forkwatch.yaml"
UPSTREAM = "upstreams: [{name: a, url: 'http://h:1'}]\n"


def loaded(tmp_path: Path, text: str, *, env: dict[str, str] | None = None, **flags: object) -> Loaded:
    """What `text` as a file loads to."""
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file, flags=flags, env=env or {})


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


def test_an_action_that_cannot_be_taken_is_said_to_have_no_effect(tmp_path: Path) -> None:
    """A refusal is good behaviour: nothing is done about it, whatever the file wishes."""
    text = "upstreams: [{url: 'http://h:1', actions: {refused: cut, rewound: cut}}]\n"
    got = loaded(tmp_path, text).warnings
    assert [line for line in got if "actions" in line] == [
        "upstreams[0].actions.refused: has no effect; only fork, gap, crossed, rewound can be acted on"
    ]


def test_warnings_say_what_may_surprise(tmp_path: Path) -> None:
    """Each caution is one line that begins with its key."""
    text = "upstreams: [{url: 'https://h', tls: {verify: false}}]\n"
    got = loaded(tmp_path, text + "shutdown: {delay: 5s, spread: 5s, deadline: 9s}\n").warnings
    assert [line.partition(": ")[0] for line in got] == [
        "state",
        "shutdown",
        "upstreams[0].tls.verify",
    ]
    quiet = loaded(tmp_path, UPSTREAM).warnings
    assert len(quiet) == 1
    assert quiet[0].startswith("state: memory:// is lost at a restart")


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
