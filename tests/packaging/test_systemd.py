"""The systemd unit: it is understood, gives the proxy few rights, and agrees with the configuration's defaults."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proxy.cli.healthcheck import DEADLINE_S
from proxy.config import load
from proxy.errors import ConfigError
from tests.packaging.tools import ROOT, UNIT, program, ran

SYSTEMD = "make ops, as root on Debian,"
INSTALLED = "/opt/forkwatch/bin/forkwatch"
MOST_EXPOSED = 20
"""In tenths; systemd's own verdict is OK up to 40, and a service without any restriction has 96."""

NEEDED = {
    "RootDirectory=/RootImage=": "Python and its packages are the host's",
    "RestrictAddressFamilies=~AF_UNIX": "the admin socket, upstreams on Unix sockets, the service manager",
    "RestrictAddressFamilies=~AF_(INET|INET6)": "it is a proxy",
    "PrivateNetwork=": "it is a proxy",
    "IPAddressDeny=": "which upstreams there are, the machine's owner knows",
    "DeviceAllow=": "reading the clock's device comes with ProtectClock",
}
"""What systemd finds unrestricted, with the reason why it stays so."""


def settings(section: str) -> dict[str, list[str]]:
    """The settings of a section of the unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif line and not line.startswith("#") and current == section:
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


SERVICE = settings("Service")


def seconds(name: str) -> float:
    """The value of a setting that is a number of seconds."""
    (value,) = SERVICE[name]
    return float(value)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it would be installed, with a program that exists on this machine."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(INSTALLED, sys.executable))
    return path


@pytest.mark.ops
def test_systemd_understands_every_line(unit: Path) -> None:
    """It says nothing about the unit; the status alone would be 0 for a wrong value as well."""
    verified = ran(program("systemd-analyze", SYSTEMD), "verify", "--man=no", unit)
    assert (verified.returncode, verified.stderr, verified.stdout) == (0, "", "")


@pytest.mark.ops
@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("WatchdogSec=30", "WatchdogSec=soon", "Failed to parse sec value, ignoring: soon"),
        ("DynamicUser=yes", "DynamicUsers=yes", "'DynamicUsers'"),
    ],
    ids=["a wrong value", "an unknown setting"],
)
def test_systemd_would_say_so(unit: Path, line: str, instead: str, said: str) -> None:
    """The test before this one can fail."""
    text = unit.read_text()
    assert f"\n{line}\n" in text
    unit.write_text(text.replace(line, instead))
    assert said in ran(program("systemd-analyze", SYSTEMD), "verify", "--man=no", unit).stderr


@pytest.mark.ops
def test_the_service_has_few_rights(unit: Path) -> None:
    """systemd grades it low, and finds open only what has a reason."""
    analyze = (program("systemd-analyze", SYSTEMD), "security", "--offline=yes", "--no-pager")
    graded = ran(*analyze, f"--threshold={MOST_EXPOSED}", unit)
    assert graded.returncode == 0, graded.stdout[-300:]
    found = json.loads(ran(*analyze, "--json=short", unit).stdout)
    assert {each["name"] for each in found if each["set"] is False} == {*NEEDED}


def test_it_starts_and_reloads_what_the_command_line_knows() -> None:
    """The configuration of /etc; a reload checks the file first, and then tells the process."""
    config = "--config /etc/forkwatch/forkwatch.yaml"
    assert SERVICE["Type"] == ["notify"]
    assert SERVICE["ExecStart"] == [f"{INSTALLED} run {config}"]
    assert SERVICE["ExecReload"] == [f"{INSTALLED} check {config}", "/bin/kill -HUP $MAINPID"]
    assert "ExecStartPre" not in SERVICE


def test_a_wrong_configuration_is_not_tried_again() -> None:
    """Its exit status is the one that is not restarted; every other failure is."""
    assert SERVICE["Restart"] == ["on-failure"]
    assert SERVICE["RestartPreventExitStatus"] == [str(ConfigError.exit_code)]


def test_its_limits_leave_room_for_the_defaults() -> None:
    """The drain ends before systemd's patience, and every exchange has its two descriptors."""
    defaults = load(ROOT / "config/forkwatch.yaml", flags={}, env={}).settings
    assert seconds("TimeoutStopSec") > defaults.shutdown.deadline_s
    assert seconds("LimitNOFILE") >= 2 * defaults.limits.max_connections + 256
    assert seconds("WatchdogSec") == 30 > DEADLINE_S
    assert defaults.admin == "auto"
    assert (SERVICE["RuntimeDirectory"], SERVICE["RuntimeDirectoryMode"]) == (["forkwatch"], ["0700"])
