"""Who may use the admin interface: the guard as a table over the heads of requests."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from proxy.admin.guard import HEADER, READS, Guard

TOKEN = "a-token-of-enough-chars"
LOCAL = {"Host": "localhost"}
ORDER = {"Host": "localhost", HEADER: "1"}
BEARER = {"Host": "proxy.example", "Authorization": f"Bearer {TOKEN}"}


def refused(guard: Guard, method: str, headers: dict[str, str], public: bool) -> tuple[int, str] | None:
    """The status and type of the refusal, None if the request may pass; names of headers know no case."""
    found = guard.refuses(method, CIMultiDict(headers), public=public)
    assert found is None or found.detail
    return None if found is None else (found.status, found.type)


FOREIGN_HOST = (403, "foreign-host")
FOREIGN_ORIGIN = (403, "foreign-origin")
UNAUTHORIZED = (401, "unauthorized")
HEADER_MISSING = (403, "header-missing")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", None),
        ("LocalHost", None),
        ("localhost:9465", None),
        ("127.0.0.1", None),
        ("127.0.0.1:1", None),
        ("[::1]", None),
        ("[::1]:9465", None),
        ("", FOREIGN_HOST),
        ("evil.example", FOREIGN_HOST),
        ("evil.example:9465", FOREIGN_HOST),
        ("localhost.evil.example", FOREIGN_HOST),
        ("127.0.0.1.evil.example", FOREIGN_HOST),
        ("localhost:evil", FOREIGN_HOST),
        ("localhost:", FOREIGN_HOST),
        ("evil.example:localhost", FOREIGN_HOST),
        ("::1", FOREIGN_HOST),
        ("0.0.0.0", FOREIGN_HOST),
        ("10.0.0.7:80", FOREIGN_HOST),
    ],
)
@pytest.mark.parametrize("public", [False, True])
def test_hosts(host: str, expected: tuple[int, str] | None, public: bool) -> None:
    """Without a token only names of this machine are served, the page as well."""
    assert refused(Guard(None), "GET", {"Host": host}, public) == expected


def test_no_host_at_all() -> None:
    """HTTP/1.0 may leave it out; that names no machine."""
    assert refused(Guard(None), "GET", {}, False) == FOREIGN_HOST


@pytest.mark.parametrize("host", ["127.0.0.7", "127.0.0.7:9465", "localhost"])
def test_its_own_address_is_a_name(host: str) -> None:
    """The address it listens on is local as well, and no other one."""
    guard = Guard(None).at("127.0.0.7")
    assert refused(guard, "GET", {"Host": host}, False) is None
    assert refused(guard, "GET", {"Host": "127.0.0.8"}, False) == FOREIGN_HOST


@pytest.mark.parametrize(
    ("headers", "public", "expected"),
    [
        ({"Origin": "https://evil.example"}, False, FOREIGN_ORIGIN),
        ({"Origin": "null"}, False, FOREIGN_ORIGIN),
        ({"Origin": ""}, False, FOREIGN_ORIGIN),
        ({"Origin": "http://localhost"}, False, FOREIGN_ORIGIN),
        ({"Origin": "null"}, True, FOREIGN_ORIGIN),
        ({"Sec-Fetch-Site": "cross-site"}, False, FOREIGN_ORIGIN),
        ({"Sec-Fetch-Site": "same-site"}, False, FOREIGN_ORIGIN),
        ({"Sec-Fetch-Site": "something-new"}, False, FOREIGN_ORIGIN),
        ({"Sec-Fetch-Site": "cross-site"}, True, None),
        ({"Sec-Fetch-Site": "same-origin"}, False, None),
        ({"Sec-Fetch-Site": "none"}, False, None),
        ({}, False, None),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_requests_of_web_pages(
    method: str, headers: dict[str, str], public: bool, expected: tuple[int, str] | None
) -> None:
    """No page may ask, not even one that names its origin `null`; a link may lead to the page itself."""
    assert refused(Guard(None), method, {**ORDER, **headers}, public) == expected


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH", "OPTIONS", "X"])
@pytest.mark.parametrize("headers", [{}, {HEADER: ""}])
def test_orders_without_the_header(method: str, headers: dict[str, str]) -> None:
    """Whatever is no read needs a header that no form can send; an empty one is none."""
    assert method not in READS
    assert refused(Guard(None), method, {**LOCAL, **headers}, False) == HEADER_MISSING
    assert refused(Guard(None), method, ORDER, False) is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reads_need_no_header(method: str) -> None:
    """A browser may look."""
    assert refused(Guard(None), method, LOCAL, False) is None


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {TOKEN}", None),
        (f"bearer {TOKEN}", None),
        (f"Bearer  {TOKEN} ", None),
        (f"Bearer {TOKEN}x", UNAUTHORIZED),
        (f"Bearer {TOKEN[:-1]}", UNAUTHORIZED),
        (f"Bearer {TOKEN.upper()}", UNAUTHORIZED),
        (f"Basic {TOKEN}", UNAUTHORIZED),
        (TOKEN, UNAUTHORIZED),
        ("Bearer", UNAUTHORIZED),
        ("Bearer ", UNAUTHORIZED),
        ("Bearer \udcff\u00e9", UNAUTHORIZED),
        ("", UNAUTHORIZED),
    ],
)
def test_tokens(authorization: str, expected: tuple[int, str] | None) -> None:
    """Exactly the token, as a bearer; whatever a header can hold is compared without an error."""
    headers = {"Host": "proxy.example", "Authorization": authorization}
    assert refused(Guard(TOKEN), "GET", headers, False) == expected


def test_no_authorization_with_a_token() -> None:
    """Absent is as good as wrong, for reads and orders; the page holds no data and is served."""
    guard = Guard(TOKEN)
    assert refused(guard, "GET", LOCAL, False) == UNAUTHORIZED
    assert refused(guard, "POST", ORDER, False) == UNAUTHORIZED
    assert refused(guard, "GET", LOCAL, True) is None


def test_a_token_is_no_leave_for_web_pages() -> None:
    """With the right token any Host will do, but an Origin or a missing header will not."""
    guard = Guard(TOKEN)
    assert refused(guard, "GET", BEARER, False) is None
    assert refused(guard, "GET", {**BEARER, "Origin": "null"}, False) == FOREIGN_ORIGIN
    assert refused(guard, "POST", BEARER, False) == HEADER_MISSING
    assert refused(guard, "POST", {**BEARER, HEADER: "1"}, False) is None
