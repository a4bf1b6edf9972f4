"""The exceptions of the shell: what a client is answered with, and what is counted."""

from __future__ import annotations

import re

import pytest

from proxy import errors
from proxy.errors import UPSTREAM_ERROR_REASONS, ConfigError, Problem, ProxyError

EXPECTED = {
    errors.UpstreamUnreachable: (502, "upstream-unreachable", "connect"),
    errors.UpstreamTimeout: (504, "upstream-timeout", "connect_timeout"),
    errors.UpstreamIdle: (504, "upstream-idle", "idle_timeout"),
    errors.UpstreamReset: (502, "upstream-reset", "reset"),
    errors.UpstreamTruncated: (502, "upstream-truncated", "truncated"),
    errors.UpstreamMalformed: (502, "upstream-malformed", "protocol"),
    errors.OverLimit: (503, "over-limit", "other"),
    errors.Draining: (503, "draining", "other"),
    errors.HeaderTooLarge: (431, "header-too-large", "other"),
    errors.BadRequest: (400, "bad-request", "other"),
    errors.NoUpstream: (404, "no-upstream", "other"),
}


def test_every_error_has_its_answer() -> None:
    """Status, problem type and metric label of each, and no error without a row here."""
    got = {kind: (kind.status, kind.type, kind("x").reason) for kind in ProxyError.__subclasses__()}
    assert got == EXPECTED
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.type) for kind in EXPECTED)


def test_reason_is_of_a_closed_set() -> None:
    """A reason refines one error without touching its class; another word is refused."""
    error = errors.UpstreamUnreachable("no such host", reason="dns")
    assert (error.reason, errors.UpstreamUnreachable("x").reason, str(error)) == (
        "dns",
        "connect",
        "no such host",
    )
    assert all(kind("x").reason in UPSTREAM_ERROR_REASONS for kind in EXPECTED)
    with pytest.raises(ValueError, match="'weather' is not one of"):
        errors.UpstreamReset("x", reason="weather")


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (Problem("a.b", 3, "is wrong", "do this"), "f:3: a.b: is wrong; do this"),
        (Problem("a.b", 3, "is wrong"), "f:3: a.b: is wrong"),
        (Problem("", 3, "is empty"), "f:3: is empty"),
        (Problem("--listen", None, "is wrong"), "--listen: is wrong"),
        (Problem("", None, "nothing given", "give --x"), "nothing given; give --x"),
    ],
)
def test_problem_is_one_line(problem: Problem, line: str) -> None:
    """Where, what and how to mend it, without the parts that are unknown."""
    error = ConfigError([problem], file="f")
    assert error.lines() == [line]
    assert str(error) == line
