"""What values say together: contradictions that make a configuration unusable, and cautions that do not."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.config.document import Place, Source
from proxy.config.locations import is_loopback
from proxy.config.settings import Settings, TlsSettings, UpstreamSettings
from proxy.endpoint import Endpoint
from proxy.errors import Problem
from proxy.routing import shadowed_by


@dataclass(frozen=True, slots=True)
class Places:
    """Where each key was written, and which keys hold a rejected value (of which nothing is concluded)."""

    written: Mapping[str, Place]
    rejected: frozenset[str]

    def sound(self, *paths: str) -> bool:
        """Whether nothing at, above or below any of `paths` was rejected."""
        return not any(_within(bad, p) or _within(p, bad) for bad in self.rejected for p in paths)

    def problem(self, path: str, message: str, remedy: str = "") -> Problem:
        """A problem at `path`, at its nearest parent that was written."""
        at = path
        while at and at not in self.written:
            at = at.rpartition(".")[0]
        place = self.written.get(at, Place(Source.FILE))
        return place.problem(path, message, remedy)


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith((f"{parent}.", f"{parent}["))


def contradictions(settings: Settings, places: Places) -> Iterator[Problem]:
    """Every contradiction among the values that were accepted on their own."""
    yield from _listeners(settings, places)
    names: dict[str, int] = {}
    for i, upstream in enumerate(settings.upstreams):
        first = names.setdefault(upstream.name, i)
        at = f"upstreams[{i}]"
        if first != i and places.sound(f"{at}.name", f"upstreams[{first}].name"):
            message = f"{upstream.name!r} is the name of upstreams[{first}] already"
            yield places.problem(f"{at}.name", message, "give each upstream its own name")
        yield from _route(settings, i, places)
        yield from _upstream_tls(upstream, at, places)
    if settings.tls is not None and places.sound("tls"):
        yield from _key_pair(settings.tls, "tls", places)


_ACTIONABLE = ("fork", "gap", "crossed", "rewound")
"""The other verdicts say that nothing is wrong, or that nothing can be known: they always pass."""


def cautions(settings: Settings) -> Iterator[str]:
    """What works but may surprise, as one line each."""
    yield (
        "state: memory:// is lost at a restart: quarantines end, and a resume of a session from before it "
        "is unverifiable (no_baseline) or only suspected"
    )
    shutdown = settings.shutdown
    if shutdown.delay_s + shutdown.spread_s > shutdown.deadline_s:
        yield "shutdown: delay and spread together exceed deadline, which then ends the streams"
    for i, upstream in enumerate(settings.upstreams):
        if upstream.tls is not None and not upstream.tls.verify:
            yield f"upstreams[{i}].tls.verify: the certificate of {upstream.name!r} is not checked"
        for key in upstream.actions:
            if key.partition("/")[0] not in _ACTIONABLE:
                yield f"upstreams[{i}].actions.{key}: has no effect; only {', '.join(_ACTIONABLE)} can be acted on"


def _listeners(settings: Settings, places: Places) -> Iterator[Problem]:
    if settings.listen == settings.status and settings.listen.port and places.sound("listen", "status"):
        yield places.problem("status", "is the same address as listen", "choose another port")
    admin = settings.admin
    if admin is None or admin == "auto" or admin.startswith("unix:") or not places.sound("admin"):
        return
    endpoint = Endpoint.parse(admin)
    if (
        not is_loopback(endpoint.host)
        and settings.admin_token_file is None
        and places.sound("admin_token_file")
    ):
        message = "can be reached from other machines without a token"
        yield places.problem("admin", message, "set admin_token_file, or use a loopback address")
    if endpoint.port and endpoint in (settings.listen, settings.status):
        yield places.problem("admin", "is the address of another listener", "choose another port")


def _route(settings: Settings, index: int, places: Places) -> Iterator[Problem]:
    usable = [i for i in range(index + 1) if places.sound(f"upstreams[{i}].match")]
    if index not in usable:
        return
    earlier = shadowed_by([settings.upstreams[i] for i in usable], len(usable) - 1)
    if earlier is not None:
        first, this = usable[earlier], settings.upstreams[index]
        message = (
            f"can never match: upstreams[{first}] ({settings.upstreams[first].name!r}) stands before "
            f"upstreams[{index}] ({this.name!r}) and takes every such request"
        )
        yield places.problem(f"upstreams[{index}].match", message, "put the narrower match first")


def _upstream_tls(upstream: UpstreamSettings, at: str, places: Places) -> Iterator[Problem]:
    tls = upstream.tls
    if tls is None or not places.sound(f"{at}.tls", f"{at}.url"):
        return
    if not upstream.url.startswith("https:"):
        yield places.problem(f"{at}.tls", "is given, but url is not https", "remove one or change the other")
    if (tls.cert is None) != (tls.key is None):
        missing = "key" if tls.key is None else "cert"
        yield places.problem(f"{at}.tls", f"names no {missing}", "give both cert and key, or neither")
    elif tls.cert is not None and tls.key is not None:
        yield from _key_pair(TlsSettings(cert=tls.cert, key=tls.key), f"{at}.tls", places)
    if tls.ca is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=tls.ca)
        except (ssl.SSLError, OSError):
            yield places.problem(f"{at}.tls.ca", "holds no usable certificates", "use a PEM file")


def _key_pair(tls: TlsSettings, at: str, places: Places) -> Iterator[Problem]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The password is given, and empty, so that an encrypted key fails instead of asking at a terminal.
        context.load_cert_chain(tls.cert, tls.key, password="")
    except (ssl.SSLError, OSError, ValueError):
        message = "cert and key cannot be used together"
        yield places.problem(at, message, "use PEM files of one pair, the key without a passphrase")
