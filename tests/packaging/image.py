"""The image, built by buildah from the Dockerfile on a small Debian, and ways to run commands in it.

No container engine is needed, only root. The base is build/image-base.tar, which `make image-test` makes; a
build inside it reaches a package index the way that this machine's own pip does.
"""

from __future__ import annotations

import ast
import configparser
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.tools import ROOT, program, ran

BASE = ROOT / "build/image-base.tar"
SETUP = "make image-test, as root on Debian,"
BUILD = ("--isolation", "chroot", "--network", "host", "--format", "docker", "--layers=false")
BUILD_TIMEOUT_S = 600
DEBIAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PIP_SETTINGS = {"index-url", "extra-index-url", "proxy", "trusted-host", "timeout"}
"""What of this machine's pip a build elsewhere needs as well: nothing that names a file."""

READ_ONLY = """
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o uid=10001,gid=10001,mode=0700 tmpfs "$root/run/forkwatch"
exec chroot "$root" setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs \
    --inh-caps=-all --bounding-set=-all "$@"
"""
"""What Kubernetes makes of readOnlyRootFilesystem, runAsUser, dropped capabilities and an emptyDir."""


@dataclass(frozen=True)
class Image:
    """A container of the image, and the settings that the image states."""

    buildah: tuple[str, ...]
    container: str
    root: Path
    config: dict[str, Any]

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command in the container, as the image's user and in its environment."""
        given = [f"--env={name}={value}" for name, value in env.items()]
        return ran(*self.buildah, "run", "--isolation", "chroot", *given, self.container, "--", *command)

    def read_only(self, *command: str, **env: str) -> list[str]:
        """How to start a command without rights, where it can write in /run/forkwatch alone."""
        given = [*self.config["Env"], *(f"{name}={value}" for name, value in env.items())]
        script = ["/bin/sh", "-ec", READ_ONLY, "sh", str(self.root)]
        return ["unshare", "--mount", "env", "-i", *given, *script, *command]

    def beside(self, pid: int, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command that joins a running one, as an orchestrator's hooks and probes do."""
        given = [*self.config["Env"], *(f"{name}={value}" for name, value in env.items())]
        joined = (
            "nsenter",
            "--target",
            str(pid),
            "--mount",
            "--root",
            "--setuid",
            "10001",
            "--setgid",
            "10001",
        )
        return ran(*joined, "env", "-i", *given, *command)


@contextmanager
def built(folder: Path) -> Iterator[Image]:
    """The image and a container of it, kept in `folder` and gone afterwards; skips without buildah or base."""
    command = (program("buildah", SETUP), "--root", str(folder / "storage"), "--runroot", str(folder / "run"),
               "--storage-driver", "vfs")  # fmt: skip
    if not BASE.exists():
        pytest.skip(f"there is no {BASE}: {SETUP} makes it")
    try:
        _make_base(command, folder)
        base = ("--build-arg", "PYTHON_IMAGE=localhost/base")
        _done(*command, "bud", *BUILD, *base, "--tag", "localhost/forkwatch", ROOT)
        container = _done(*command, "from", "localhost/forkwatch")
        root = Path(_done(*command, "mount", container))
        stated = json.loads(_done(*command, "inspect", "--type", "image", "localhost/forkwatch"))
        yield Image(command, container, root, stated["Docker"]["config"])
    finally:
        ran(*command, "unmount", "--all")
        ran(*command, "rm", "--all")
        shutil.rmtree(folder)


def _make_base(command: tuple[str, ...], folder: Path) -> None:
    container = _done(*command, "from", "scratch")
    pip = _pip_configuration()
    settings = configparser.ConfigParser(interpolation=None)
    settings["global"] = {name: value for name, value in pip.items() if name in PIP_SETTINGS}
    authorities = pip.get("cert") or ssl.get_default_verify_paths().cafile
    _done(*command, "add", container, BASE, "/")
    if authorities is not None:
        settings["global"]["cert"] = "/etc/ssl/certs/ca-certificates.crt"
        _done(*command, "copy", container, authorities, settings["global"]["cert"])
    with (folder / "pip.conf").open("w") as file:
        settings.write(file)
    _done(*command, "copy", container, folder / "pip.conf", "/etc/pip.conf")
    _done(*command, "config", "--env", f"PATH={DEBIAN_PATH}", container)
    _done(*command, "commit", "--rm", container, "localhost/base")


def _pip_configuration() -> dict[str, str]:
    """What this machine's pip is told by its files and, winning over them, its environment."""
    found: dict[str, str] = {}
    for line in _done("python3", "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    return found


def _done(*command: str | Path) -> str:
    """What a program wrote that had to succeed."""
    done = ran(*command, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()
