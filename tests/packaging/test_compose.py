"""The compose file against its published schema, and the places that the image's user writes to.

Ports, mounts and rights of the services are held by tests/dashboards/test_provisioning.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.tools import COMPOSE, documents, program, ran

CHECK = ("--builtin-schema", "vendor.compose-spec")


@pytest.mark.ops
def test_compose_knows_every_key() -> None:
    """Each is in the published schema."""
    checked = ran(program("check-jsonschema", "make ops"), *CHECK, COMPOSE)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.ops
def test_compose_would_miss_a_key(tmp_path: Path) -> None:
    """The test before this one can fail."""
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("stop_grace_period:", "stop_grace_periode:"))
    checked = ran(program("check-jsonschema", "make ops"), *CHECK, wrong)
    assert checked.returncode == 1
    assert "stop_grace_periode" in checked.stdout


def test_all_of_it_is_there() -> None:
    """The proxy, a server behind it, and what watches it."""
    (compose,) = documents(COMPOSE)
    assert {*compose["services"]} == {"proxy", "server", "prometheus", "alertmanager", "grafana"}


def test_the_admin_socket_has_a_place_on_a_read_only_root() -> None:
    """In memory, for the image's user alone."""
    (compose,) = documents(COMPOSE)
    assert compose["services"]["proxy"]["tmpfs"] == ["/run/forkwatch:uid=10001,gid=10001,mode=0700"]
    assert "FORKWATCH__ADMIN" not in compose["services"]["proxy"]["environment"]
