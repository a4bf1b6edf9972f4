"""Which upstream takes a request."""

from __future__ import annotations

import pytest

from proxy.config.settings import Match, Settings, UpstreamSettings
from proxy.routing import find_upstream

SETTINGS = Settings(
    upstreams=tuple(
        UpstreamSettings(name=name, url="http://h:1", match=Match(path=path, host=host))
        for name, path, host in [
            ("deep", "/mcp/a", None),
            ("mcp", "/mcp", None),
            ("escaped", "/caf%C3%A9", None),
            ("port", "/", "a.example:81"),
            ("host", "/", "a.example"),
            ("v6", "/", "[::1]"),
            ("star", "/x", "b.example"),
        ]
    )
)


@pytest.mark.parametrize(
    ("host", "target", "name"),
    [
        (None, b"/mcp", "mcp"),
        (None, b"/mcp/", "mcp"),
        (None, b"/mcp?x=/mcp/a", "mcp"),
        (None, b"/mcp/b", "mcp"),
        (None, b"/mcp/a", "deep"),
        (None, b"/mcp/a/b?c", "deep"),
        (None, b"/mcp/ab", "mcp"),
        (None, b"/mcps", None),
        (None, b"/MCP", None),
        (None, b"//mcp", None),
        (None, b"/%6dcp", None),
        (None, b"/caf%C3%A9/x", "escaped"),
        (None, b"/caf\xc3\xa9", None),
        (None, b"http://other:80/mcp/a?b", "deep"),
        (None, b"http://other", None),
        ("a.example", b"/", "host"),
        ("A.Example:80", b"/", "host"),
        ("a.example.", b"/", "host"),
        ("a.example:81", b"/", "port"),
        ("a.example:81", b"/mcp", "mcp"),
        ("a.example", b"*", "host"),
        ("sub.a.example", b"/", None),
        ("[::1]", b"/", "v6"),
        ("[::1]:8080", b"/", "v6"),
        ("b.example", b"*", None),
        ("b.example", b"/x/y", "star"),
        ("", b"/", None),
        (":80", b"/", None),
        ("a.example:", b"/", None),
        (None, b"", None),
    ],
)
def test_first_match_takes_the_request(host: str | None, target: bytes, name: str | None) -> None:
    """Whole segments of the raw path, and the host without regard to case or an unasked port."""
    found = find_upstream(SETTINGS, host, target)
    assert (None if found is None else found.name) == name


def test_match_of_everything_takes_everything() -> None:
    """An upstream without a match takes every target, with or without a host."""
    only = Settings(upstreams=(UpstreamSettings(url="http://h:1"),))
    for host, target in [(None, b"/"), ("h", b"*"), (None, b""), (None, b"\xff"), ("h", b"http://h/x")]:
        assert find_upstream(only, host, target) is only.upstreams[0]
