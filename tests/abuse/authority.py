"""A certificate authority for one test run, made with the `openssl` command."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forkwatch_process import free_port

_CONFIG = """
[ca]
default_ca = own
[own]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
VALID = ("20200101000000Z", "20991231000000Z")
EXPIRED = ("20200101000000Z", "20200102000000Z")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, each in a file."""

    certificate: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        """What a server that shows it uses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority:
    """Signs what it is asked to. Its own certificate is in `file`."""

    def __init__(self, directory: Path) -> None:
        if (openssl := shutil.which("openssl")) is None:
            pytest.skip("openssl makes the certificates")
        self._openssl, self._directory = openssl, directory
        self.file = directory / "ca.pem"
        (directory / "ca.cnf").write_text(_CONFIG)
        (directory / "index.txt").touch()
        (directory / "serial").write_text("01\n")
        extension = "basicConstraints=critical,CA:TRUE"
        self._run("req", "-x509", *_KEY, "-days", "2", "-subj", "/CN=authority", "-addext", extension,
                  "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip

    def sign(self, name: str, subject: str, valid: tuple[str, str] = VALID) -> Pair:
        """A certificate in the file `name` for a `subject` such as `IP:127.0.0.1`, valid from and until then."""
        request, certificate = f"{name}.csr", f"{name}.pem"
        self._run("req", "-new", *_KEY, "-subj", f"/CN={name}", "-addext", f"subjectAltName={subject}",
                  "-keyout", f"{name}.key", "-out", request)  # fmt: skip
        self._run("ca", "-batch", "-config", "ca.cnf", "-notext", "-cert", "ca.pem", "-keyfile", "ca.key",
                  "-startdate", valid[0], "-enddate", valid[1], "-in", request, "-out", certificate)  # fmt: skip
        return Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")

    @contextlib.contextmanager
    def demanding(self, pair: Pair) -> Iterator[int]:
        """The port of a server of its own process that wants a certificate of its client, in TLS 1.3.

        Python's own servers do not say why they hang up.
        """
        port = free_port()
        files = ["-cert", str(pair.certificate), "-key", str(pair.key), "-CAfile", str(self.file)]
        command = [self._openssl, "s_server", "-accept", str(port), *files, "-www", "-tls1_3"]
        command += ["-Verify", "1", "-verify_return_error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            try:
                while line := server.stdout.readline():
                    if line.startswith(b"ACCEPT"):
                        break
                yield port
            finally:
                server.kill()

    def _run(self, *arguments: str) -> None:
        command = [self._openssl, *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=30, cwd=self._directory)
