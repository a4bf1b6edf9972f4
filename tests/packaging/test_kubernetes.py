"""The manifests: valid for Kubernetes, restricted, and in agreement with the proxy's own times and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy import __version__
from proxy.config import Loaded, load
from tests.packaging.tools import KUBERNETES, ROOT, documents, program, ran

OLDEST, NEWEST = "1.30.0", "1.37.0"
"""Of Kubernetes: the first with all that the manifests use, and the newest whose schemas are at hand."""

SIDECAR, DEPLOYMENT = (documents(KUBERNETES / f"{name}.yaml") for name in ("sidecar", "deployment"))
RULES = ROOT / "dashboards/rules"
both = pytest.mark.parametrize("manifest", [SIDECAR, DEPLOYMENT], ids=["sidecar", "deployment"])


def of_kind(manifest: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one resource of a kind."""
    (found,) = [each for each in manifest if each["kind"] == kind]
    return found


def pod(manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod's specification."""
    found: dict[str, Any] = of_kind(manifest, "Deployment")["spec"]["template"]["spec"]
    return found


def proxy(manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """The container with the proxy, a sidecar or not."""
    spec = pod(manifest)
    (found,) = [
        each for each in spec.get("initContainers", []) + spec["containers"] if each["name"] == "forkwatch"
    ]
    return dict(found)


def loaded(manifest: list[dict[str, Any]], folder: Path) -> Loaded:
    """The configuration that the proxy of a manifest would run with, warnings and all."""
    env = {each["name"]: each["value"] for each in proxy(manifest)["env"]}
    image = {"FORKWATCH__LISTEN": "0.0.0.0:8080", "FORKWATCH__STATUS": "0.0.0.0:9464"}
    config = ROOT / "config/forkwatch.yaml"
    for each in manifest:
        if each["kind"] == "ConfigMap":
            config = folder / "forkwatch.yaml"
            config.write_text(each["data"]["forkwatch.yaml"])
    return load(config, flags={}, env={**image, **env})


@pytest.mark.ops
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(("name", "kinds"), [("sidecar", 2), ("deployment", 3)])
def test_kubernetes_knows_every_field(name: str, kinds: int, version: str) -> None:
    """Each resource is held against the strict schema of its kind."""
    command = (
        program("kubernetes-validate", "make ops"),
        "--strict",
        "-k",
        version,
        KUBERNETES / f"{name}.yaml",
    )
    checked = ran(*command)
    said = checked.stdout + checked.stderr
    assert (checked.returncode, said.count(" passed ")) == (0, kinds), said


@pytest.mark.ops
def test_kubernetes_would_miss_a_field(tmp_path: Path) -> None:
    """The test before this one can fail: a key with a letter too few is none."""
    text = (KUBERNETES / "sidecar.yaml").read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("readinessProbe:", "readinesProbe:"))
    checked = ran(program("kubernetes-validate", "make ops"), "--strict", "-k", NEWEST, wrong)
    assert checked.returncode != 0
    assert "readinesProbe" in checked.stdout + checked.stderr


@both
def test_the_proxy_has_no_rights(manifest: list[dict[str, Any]]) -> None:
    """Not root by number, nothing to write on but the admin socket's folder, no capability, no token."""
    spec, container = pod(manifest), proxy(manifest)
    context = {**spec["securityContext"], **container["securityContext"]}
    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert (spec["enableServiceLinks"], spec["automountServiceAccountToken"]) == (False, False)
    assert "USER 10001:10001\n" in (ROOT / "Dockerfile").read_text()


@both
def test_the_admin_socket_is_in_memory(manifest: list[dict[str, Any]]) -> None:
    """At the place that the proxy and its commands are told of."""
    container = proxy(manifest)
    assert {"name": "RUNTIME_DIRECTORY", "value": "/run/forkwatch"} in container["env"]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == "/run/forkwatch"]
    (volume,) = [each for each in pod(manifest)["volumes"] if each["name"] == mount["name"]]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


@both
def test_probes_ask_where_the_proxy_answers(manifest: list[dict[str, Any]], tmp_path: Path) -> None:
    """The ports are those of the configuration; not being ready is seen within the delay of a drain."""
    container, settings = proxy(manifest), loaded(manifest, tmp_path).settings
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"mcp": settings.listen.port, "status": settings.status.port}
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"path": "/livez", "port": "status"},
        "livenessProbe": {"path": "/livez", "port": "status"},
        "readinessProbe": {"path": "/readyz", "port": "status"},
    }
    readiness = container["readinessProbe"]
    seen_after_s = readiness["periodSeconds"] * readiness["failureThreshold"] + readiness["timeoutSeconds"]
    assert seen_after_s < settings.shutdown.delay_s


@both
def test_the_service_leads_to_the_proxy(manifest: list[dict[str, Any]]) -> None:
    """Not past it: by the name of its port, on the pods of the Deployment."""
    service, deployment = of_kind(manifest, "Service")["spec"], of_kind(manifest, "Deployment")["spec"]
    assert [port["targetPort"] for port in service["ports"]] == ["mcp"]
    assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert service["selector"] == deployment["selector"]["matchLabels"]


@both
def test_the_image_is_of_this_version(manifest: list[dict[str, Any]]) -> None:
    """A manifest and the proxy it was tested with go together."""
    assert proxy(manifest)["image"] == f"forkwatch:{__version__}"


@both
def test_the_configuration_is_valid(manifest: list[dict[str, Any]], tmp_path: Path) -> None:
    """`check` would take it, and warn of nothing but what a proxy in memory always loses."""
    found = loaded(manifest, tmp_path)
    assert [(each.name, each.mode) for each in found.settings.upstreams] == [("tools", "observe")]
    assert (str(found.settings.listen), str(found.settings.status)) == ("0.0.0.0:8080", "0.0.0.0:9464")
    assert [each for each in found.warnings if not each.startswith("state: memory://")] == []


@both
def test_there_is_time_to_drain(manifest: list[dict[str, Any]], tmp_path: Path) -> None:
    """The grace period holds the hook before SIGTERM and the whole of what follows it."""
    shutdown = loaded(manifest, tmp_path).settings.shutdown
    hook = proxy(manifest).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0s"])
    assert (
        float(hook[-1].removesuffix("s")) + shutdown.deadline_s
        < pod(manifest)["terminationGracePeriodSeconds"]
    )


def test_the_sidecar_drains_while_the_server_still_runs() -> None:
    """A sidecar outlives the server, so that SIGTERM is too late for it: both wait for the drain first."""
    assert proxy(SIDECAR)["restartPolicy"] == "Always"
    assert proxy(SIDECAR)["lifecycle"]["preStop"]["exec"]["command"] == [
        "forkwatch",
        "drain",
        "--wait",
        "20s",
    ]
    (server,) = pod(SIDECAR)["containers"]
    assert server["lifecycle"]["preStop"] == {"sleep": {"seconds": 20}}


def test_one_process_sees_a_session() -> None:
    """Neither manifest starts a second proxy that the same clients could reach."""
    assert [of_kind(each, "Deployment")["spec"]["replicas"] for each in (SIDECAR, DEPLOYMENT)] == [1, 1]


def test_the_operator_scrapes_both() -> None:
    """By a label that both pods carry, at the interval that the dashboards expect, as a job that alerts look for."""
    (monitor,) = documents(KUBERNETES / "monitoring.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert "forkwatch" in monitor["metadata"]["name"]
    for manifest in (SIDECAR, DEPLOYMENT):
        labels = of_kind(manifest, "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (prometheus,) = documents(ROOT / "dashboards/prometheus.yml")
    interval = prometheus["global"]["scrape_interval"]
    assert monitor["spec"]["podMetricsEndpoints"] == [
        {"port": "status", "path": "/metrics", "interval": interval}
    ]


def test_the_operator_gets_the_rules_that_are_tested() -> None:
    """One resource for each file, with its groups and nothing else."""
    printed = ran(KUBERNETES / "prometheus-rules.sh")
    assert (printed.returncode, printed.stderr) == (0, "")
    made = {each["metadata"]["name"]: each for each in yaml.safe_load_all(printed.stdout)}
    assert {name: (each["apiVersion"], each["kind"], each["spec"]) for name, each in made.items()} == {
        f"forkwatch-{path.stem}": (
            "monitoring.coreos.com/v1",
            "PrometheusRule",
            yaml.safe_load(path.read_text()),
        )
        for path in RULES.glob("*.yml")
    }
