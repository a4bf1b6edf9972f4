"""The files that put the rest in place: they agree with each other and with what is mounted where."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from proxy.config import load
from tests.dashboards.files import DASHBOARDS, RULES, document

COMPOSE: dict[str, Any] = document(DASHBOARDS / "compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
PROMETHEUS: dict[str, Any] = document(DASHBOARDS / "prometheus.yml")
ALERTMANAGER: dict[str, Any] = document(DASHBOARDS / "alertmanager.yml")
each_service = pytest.mark.parametrize("name", SERVICES)


def mounts(service: str) -> dict[str, str]:
    """The files and folders of this repository that a service sees: where to what."""
    pairs = [volume.split(":") for volume in SERVICES[service].get("volumes", [])]
    return {parts[1]: parts[0] for parts in pairs if parts[0].startswith("./")}


@each_service
def test_a_service_is_reached_from_this_machine_alone(name: str) -> None:
    """Ports are published on loopback: none of these pages asks for a password."""
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@each_service
def test_a_service_can_do_little(name: str) -> None:
    """No capability, no new privileges, no writable root, and an image of a fixed version."""
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"].partition(":")[2] not in ("", "latest")


@each_service
def test_what_a_service_mounts_exists_and_stays_as_it_is(name: str) -> None:
    """Each file is of this folder and mounted read-only."""
    for volume in SERVICES[name].get("volumes", []):
        source, _, options = volume.partition(":")
        if source.startswith("./"):
            assert (DASHBOARDS / source).exists()
            assert options.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_prometheus_loads_every_rule_file_and_serves_the_runbooks() -> None:
    """The rules are those of the folder, as mounted; runbooks open from the address in the alerts."""
    files = {RULES.parent / name for name in PROMETHEUS["rule_files"]}
    assert files == {*RULES.glob("*.yml")}
    assert mounts("prometheus")["/etc/prometheus/rules"] == "./rules"
    assert mounts("prometheus")["/etc/prometheus/runbooks"] == "./runbooks"
    assert "--web.user-assets=/etc/prometheus/runbooks" in SERVICES["prometheus"]["command"]


def test_prometheus_scrapes_the_proxy_and_knows_the_alertmanager() -> None:
    """Targets are services, under a job whose name the alerts look for."""
    (scrape,) = PROMETHEUS["scrape_configs"]
    assert "forkwatch" in scrape["job_name"]
    assert scrape["static_configs"] == [{"targets": ["proxy:9464"]}]
    (found,) = PROMETHEUS["alerting"]["alertmanagers"]
    assert found["static_configs"] == [{"targets": ["alertmanager:9093"]}]
    assert {"proxy", "alertmanager"} <= {*SERVICES}


def test_grafana_finds_its_data_source_and_the_dashboard() -> None:
    """The source is the compose file's Prometheus, with its interval; the provider reads what is mounted."""
    (source,) = document(DASHBOARDS / "provisioning/datasources/prometheus.yml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
    (provider,) = document(DASHBOARDS / "provisioning/dashboards/forkwatch.yml")["providers"]
    (place,) = [where for where, what in mounts("grafana").items() if what == "./forkwatch-incident.json"]
    assert str(PurePosixPath(place).parent) == provider["options"]["path"]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == place


def test_alertmanager_routes_each_severity_to_a_receiver() -> None:
    """critical and warning go out, everything else is only shown."""
    receivers = {receiver["name"]: receiver for receiver in ALERTMANAGER["receivers"]}
    routes = {tuple(route["matchers"]): route["receiver"] for route in ALERTMANAGER["route"]["routes"]}
    assert routes == {('severity="critical"',): "page", ('severity="warning"',): "ticket"}
    assert ALERTMANAGER["route"]["receiver"] == "shown"
    assert [len(receivers[name].get("webhook_configs", [])) for name in ("page", "ticket", "shown")] == [
        1,
        1,
        0,
    ]


def test_the_proxy_of_the_compose_file_would_start() -> None:
    """Its environment is valid on top of the configuration in the image."""
    config = DASHBOARDS.parent / "config/forkwatch.yaml"
    settings = load(config, flags={}, env=SERVICES["proxy"]["environment"]).settings
    assert [upstream.name for upstream in settings.upstreams] == ["bank"]
    assert settings.metrics.exemplars
    stop = settings.shutdown.delay_s + settings.shutdown.deadline_s
    assert stop < float(SERVICES["proxy"]["stop_grace_period"].removesuffix("s"))


def test_the_demo_server_is_where_the_proxy_looks() -> None:
    """It shares the proxy's loopback and listens on the port of the image's configuration."""
    server = SERVICES["server"]
    assert server["network_mode"] == "service:proxy"
    config = document(DASHBOARDS.parent / "config/forkwatch.yaml")
    port = config["upstreams"][0]["url"].rpartition(":")[2]
    assert f"python -m proxy.demo.server {port} " in server["command"][0]
    assert "ARG EXTRAS" in (DASHBOARDS.parent / "Dockerfile").read_text()
