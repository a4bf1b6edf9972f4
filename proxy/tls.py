"""TLS contexts from the configured files; nothing is weakened unless the configuration says so."""

from __future__ import annotations

import ssl

from proxy.config.settings import TlsSettings, UpstreamTls


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """What the listener shows to clients. Raises OSError or ssl.SSLError for unusable files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.cert, settings.key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context(settings: UpstreamTls | None) -> ssl.SSLContext:
    """How an https upstream is verified. Raises OSError or ssl.SSLError for unusable files."""
    context = ssl.create_default_context(cafile=None if settings is None else settings.ca)
    context.set_alpn_protocols(["http/1.1"])
    if settings is not None and settings.cert is not None:
        context.load_cert_chain(settings.cert, settings.key)
    if settings is not None and not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
