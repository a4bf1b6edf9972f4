"""The kinds of values that say where something is: listeners, upstreams, routes, files, the state.

No message repeats a URL, a key file or a token file: what was put there by mistake may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from proxy.admin.token import read_token
from proxy.config.document import Scalar
from proxy.config.values import Kind, Rejected, plain, shown
from proxy.endpoint import Endpoint
from proxy.upstream.address import Address

_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9._-]{0,252}))(?::[0-9]{1,5})?")
_STATE_SCHEME = re.compile(r"([a-z][a-z0-9+]{0,15}):")
_URL_FORMS = "write http://HOST:PORT, https://HOST or unix:/PATH"
_MAX_SOCKET_PATH = 107


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_endpoint(scalar: Scalar) -> Endpoint:
    try:
        return Endpoint.parse(scalar.text)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        raise Rejected(f"is {message}", remedy) from error


def _read_url(scalar: Scalar) -> str:
    """The URL in its shortest form: lower case, no default port, no trailing slash."""
    text = plain(scalar)
    if "@" in text and not text.startswith("unix:"):
        raise Rejected("holds credentials, which would end up in logs", "remove everything up to the @")
    try:
        return str(Address.parse(text))
    except ValueError as error:
        raise Rejected(f"is not usable: {error}", _URL_FORMS) from error


def _socket_path(path: str) -> str:
    if not path.startswith("/") or path.startswith("//"):
        raise Rejected("has no absolute path of a Unix socket", "write unix:/PATH")
    if len(path.encode()) > _MAX_SOCKET_PATH or "\0" in path:
        raise Rejected(f"names a Unix socket by more than {_MAX_SOCKET_PATH} bytes")
    return path


def _read_match_path(scalar: Scalar) -> str:
    """The path without a trailing slash, since whole segments are compared."""
    text = plain(scalar)
    if not text.startswith("/"):
        raise Rejected(f"{shown(text)} is not a path", "begin it with /")
    if not _PATH.fullmatch(text) or _BAD_ESCAPE.search(text):
        raise Rejected("is not a path as requests carry it", "percent-encode it, without // or a query")
    return text.rstrip("/") or "/"


def _read_match_host(scalar: Scalar) -> str:
    """The host in lower case, without the dot of a fully qualified name."""
    text = plain(scalar).lower()
    if not _HOST.fullmatch(text):
        raise Rejected(f"{shown(text)} is not a host", "write HOST or HOST:PORT, as the Host header has it")
    return text.removesuffix(".")


def _read_admin(scalar: Scalar) -> str:
    text = plain(scalar)
    if text == "auto":
        return text
    if text.startswith("unix:"):
        return f"unix:{_socket_path(text.removeprefix('unix:'))}"
    try:
        return str(Endpoint.parse(text))
    except ValueError as error:
        raise Rejected("is not an admin address", "write auto, unix:/PATH, HOST:PORT or null") from error


def _read_state(scalar: Scalar) -> str:
    """Only what this version can do: the process's own memory."""
    text = plain(scalar)
    if text in ("memory://", "memory:"):
        return "memory://"
    scheme = _STATE_SCHEME.match(text)
    if scheme and scheme[1] in ("sqlite", "redis", "rediss"):
        remedy = "only memory:// is available"
        raise Rejected(f"{scheme[1]} is not available in this version", remedy)
    raise Rejected("is not a place to keep state", "only memory:// is available in this version")


def _existing_file(text: str, what: str) -> str:
    try:
        with Path(text).open("rb"):
            return text
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise Rejected(f"{what} cannot be read: {reason}") from error


def _read_certificate_file(scalar: Scalar) -> str:
    text = plain(scalar)
    return _existing_file(text, shown(text))


def _read_secret_file(scalar: Scalar) -> str:
    return _existing_file(plain(scalar), "the file")


def _read_token_file(scalar: Scalar) -> str:
    text = _read_secret_file(scalar)
    try:
        read_token(text)
    except ValueError as error:
        raise Rejected(str(error), "write a random one, such as `openssl rand -hex 32` makes") from error
    return text


ENDPOINT = Kind(_read_endpoint)
URL = Kind(_read_url)
MATCH_PATH = Kind(_read_match_path)
MATCH_HOST = Kind(_read_match_host)
ADMIN = Kind(_read_admin)
STATE = Kind(_read_state)
CERTIFICATE_FILE = Kind(_read_certificate_file)
SECRET_FILE = Kind(_read_secret_file)
TOKEN_FILE = Kind(_read_token_file)
