"""Which upstream URLs are understood, and what is said of the others."""

from __future__ import annotations

import pytest

from proxy.upstream.address import Address


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path", "authority"),
    [
        ("http://127.0.0.1:9000", "http", "127.0.0.1", 9000, "", b"127.0.0.1:9000"),
        ("http://127.0.0.1:9000/", "http", "127.0.0.1", 9000, "", b"127.0.0.1:9000"),
        ("http://tools", "http", "tools", 80, "", b"tools"),
        ("HTTPS://Tools.Example:443", "https", "tools.example", 443, "", b"tools.example"),
        ("https://tools:80", "https", "tools", 80, "", b"tools:80"),
        ("http://[::1]:9000", "http", "::1", 9000, "", b"[::1]:9000"),
        ("http://[::1]", "http", "::1", 80, "", b"[::1]"),
        ("http://a.b.:1", "http", "a.b.", 1, "", b"a.b.:1"),
        ("http://my_tools-1:1", "http", "my_tools-1", 1, "", b"my_tools-1:1"),
        ("unix:/run/s.sock", "unix", "", 0, "/run/s.sock", b"localhost"),
        ("unix:///run/s.sock", "unix", "", 0, "/run/s.sock", b"localhost"),
        ("http+unix://%2Frun%2Fs.sock", "unix", "", 0, "/run/s.sock", b"localhost"),
    ],
)
def test_parse(url: str, scheme: str, host: str, port: int, path: str, authority: bytes) -> None:
    """An URL is taken apart, its default port filled in for connecting and left out of Host."""
    address = Address.parse(url)
    assert (scheme, host, port, path) == (address.scheme, address.host, address.port, address.path)
    assert authority == address.authority
    assert address == Address.parse(str(address))


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("127.0.0.1:9000", "starts with http://"),
        ("ftp://tools", "starts with http://"),
        ("", "starts with http://"),
        ("http://", "not a host name"),
        ("http://a b", "not a host name"),
        ("http://-a", "not a host name"),
        ("http://a..b", "not a host name"),
        ("http://" + "a" * 64, "not a host name"),
        ("http://" + "a." * 127 + "a", "not a host name"),
        ("http://bücher.example", "xn--"),
        ("http://[::g]", "IPv6|Invalid"),
        ("http://user:secret@tools", "no user name"),
        ("http://tools/mcp", "no path"),
        ("http://tools?x=1", "no path"),
        ("http://tools:0", "port"),
        ("http://tools:70000", "port"),
        ("http://tools:http", "port"),
        ("http://tools:", "port"),
        ("unix:run/s.sock", "whole path"),
        ("unix:", "whole path"),
        ("unix:/run/", "whole path"),
    ],
)
def test_parse_refuses(url: str, sentence: str) -> None:
    """What cannot be meant is refused with a sentence that says what is expected and holds no secret."""
    with pytest.raises(ValueError, match=sentence) as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)
