"""The chart for Kubernetes: what Helm makes of it names only settings, ports and paths that exist."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden import kubernetes
from walkgraph.service.access.access import OPEN_PATHS
from walkgraph.settings import Settings
from walkgraph.standby import KEEP_SECONDS
from walkgraph.store.ownership import SILENT_SECONDS

PORT = Settings.model_fields["port"].default
OF_RAY = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
KEYS = {"token", "auth_token", "database_url"}
"""Those of the secret."""
WRITABLE = {"/var/lib/walkgraph", "/tmp", "/dev/shm"}


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    return manifests(kubernetes.RENDERED.read_text())


def manifests(text: str) -> dict[str, dict[str, Any]]:
    """Kind and name -> manifest."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(text) if one}


@pytest.fixture(scope="module")
def pods(made: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name -> template of a pod: `service`, `head` and those of hosts."""
    return {"service": made["Deployment/walkgraph"]["spec"]["template"], **dict(_of_ray(made))}


def _of_ray(made: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    spec = made["RayCluster/walkgraph"]["spec"]
    yield "head", spec["headGroupSpec"]["template"]
    for group in spec["workerGroupSpecs"]:
        yield group["groupName"], group["template"]


def container(pod: dict[str, Any]) -> dict[str, Any]:
    [found] = pod["spec"]["containers"]
    return found


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    """Name -> value, or where it comes from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(pod)["env"]}


def test_the_rendered_text_is_that_of_the_chart() -> None:
    """`python -m tests.golden.kubernetes` writes it anew."""
    assert kubernetes.RENDERED.read_text().splitlines()[0] == f"# {kubernetes.digest()}"


@pytest.mark.skipif(shutil.which("helm") is None, reason="`helm` is not installed")
def test_helm_makes_it(made: dict[str, dict[str, Any]]) -> None:
    """Its versions differ in their order."""
    assert manifests(kubernetes.rendered()) == made


def test_what_is_made(made: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> None:
    assert sorted(made) == [
        "Deployment/walkgraph",
        "NetworkPolicy/walkgraph-clients",
        "NetworkPolicy/walkgraph-inside",
        "PodDisruptionBudget/walkgraph",
        "RayCluster/walkgraph",
        "Service/walkgraph",
    ]
    assert list(pods) == ["service", "head", "gpu-0", "gpu-1", "cpu-0"]


def test_every_variable_is_a_setting(pods: dict[str, dict[str, Any]]) -> None:
    known = {f"WALKGRAPH_{name.upper()}" for name in Settings.model_fields}
    for name, pod in pods.items():
        names = environment(pod)
        assert set(names) - known - OF_RAY <= {"POD_IP", *kubernetes.VALUES["env"]}, name
        assert len(names) == len(container(pod)["env"]), f"{name} has a variable twice"
        # Kubernetes would add variables of this form for every service of the namespace.
        assert pod["spec"]["enableServiceLinks"] is False
        home = Path(names["WALKGRAPH_HOME"])
        mounts = {mount["mountPath"] for mount in container(pod)["volumeMounts"]}
        assert str(home.parent) in mounts, "the service makes its home in a volume that isn't its own"


def test_the_variables_make_settings(pods: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"token": "s" * 20, "database_url": "postgresql://user:password@database/walkgraph"}
    for name, value in environment(pods["service"]).items():
        if isinstance(value, dict):
            value = secrets.get(value.get("secretKeyRef", {}).get("key"), "")
        monkeypatch.setenv(name, value.replace("$(POD_IP)", "127.0.0.1"))
    monkeypatch.setenv("WALKGRAPH_HOST", "0.0.0.0")
    found = Settings()
    assert found.peer_url == f"http://127.0.0.1:{PORT}"
    assert (found.backend, found.ray_address) == ("ray", "walkgraph-head-svc:6379")
    assert found.allowed_hosts[0] == "walkgraph"
    assert found.allowed_hosts[-2:] == ("walkgraph.models.svc.cluster.local", "studio.example")
    assert found.trusted_proxies == ("10.0.0.0/8",)
    assert [str(root) for root in found.checkpoint_roots] == ["/checkpoints"]
    assert pods["service"]["spec"]["terminationGracePeriodSeconds"] > found.drain_timeout


def test_secrets_are_named_alone(pods: dict[str, dict[str, Any]]) -> None:
    asked: set[str] = set()
    for pod in pods.values():
        for name, value in environment(pod).items():
            if re.search("TOKEN|DATABASE", name):
                assert value["secretKeyRef"]["name"] == "walkgraph"
                asked.add(value["secretKeyRef"]["key"])
    assert asked == KEYS
    # A host of workers has no business with the services' own.
    assert set(environment(pods["gpu-0"])) & {"WALKGRAPH_TOKEN", "WALKGRAPH_DATABASE_URL"} == set()


def test_pods_have_no_rights(pods: dict[str, dict[str, Any]], repository: Path) -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (repository / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    for pod in pods.values():
        spec, one = pod["spec"], container(pod)
        assert spec["automountServiceAccountToken"] is False
        rights = spec["securityContext"]
        assert (rights["runAsNonRoot"], rights["runAsUser"], rights["runAsGroup"]) == (True, int(user[1]), int(user[2]))
        assert rights["fsGroup"] == int(user[2])
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounts = {mount["mountPath"]: mount for mount in one["volumeMounts"]}
        assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == WRITABLE
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert set(volumes) == {mount["name"] for mount in mounts.values()}
        assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"]["medium"] == "Memory"


def test_hosts_have_their_gpus(pods: dict[str, dict[str, Any]]) -> None:
    gpus = {name: container(pod)["resources"]["limits"].get("nvidia.com/gpu") for name, pod in pods.items()}
    assert gpus == {"service": None, "head": None, "gpu-0": 4, "gpu-1": 4, "cpu-0": None}
    assert all("memory" in container(pod)["resources"]["limits"] for pod in pods.values())
    assert pods["gpu-0"]["spec"]["nodeSelector"] == {"accelerator": "h200"}


def test_nodes_keep_their_names(made: dict[str, dict[str, Any]]) -> None:
    spec = made["RayCluster/walkgraph"]["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["node-name"] == "head"
    for group in spec["workerGroupSpecs"]:
        assert group["rayStartParams"]["node-name"] == group["groupName"]
        assert {group[key] for key in ("replicas", "minReplicas", "maxReplicas")} == {1}


def test_ray_wants_the_token_and_has_the_version_of_the_image(
    made: dict[str, dict[str, Any]], repository: Path
) -> None:
    spec = made["RayCluster/walkgraph"]["spec"]
    assert spec["authOptions"] == {"mode": "token", "secretName": "walkgraph"}
    pinned = re.search(r'"ray==([0-9.]+)"', (repository / "docker" / "Dockerfile").read_text())
    assert pinned is not None
    assert spec["rayVersion"] == pinned[1]


def test_ports_are_those_that_are_listened_on(made: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> None:
    ports = {
        name: {port["name"]: port["containerPort"] for port in container(pod)["ports"]} for name, pod in pods.items()
    }
    spec = made["RayCluster/walkgraph"]["spec"]
    head = spec["headGroupSpec"]["rayStartParams"]
    assert ports["head"] == {"gcs-server": int(head["port"])}
    assert environment(pods["service"])["WALKGRAPH_RAY_ADDRESS"] == f"walkgraph-head-svc:{head['port']}"
    for group in spec["workerGroupSpecs"]:
        assert ports[group["groupName"]] == {"node-manager": int(group["rayStartParams"]["node-manager-port"])}
    assert ports["service"] == {"http": PORT}
    [port] = made["Service/walkgraph"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (PORT, "http")


def test_probes_ask_what_is_there(pods: dict[str, dict[str, Any]]) -> None:
    for name, pod in pods.items():
        one = container(pod)
        named = {port["name"] for port in one["ports"]}
        probes = {key: probe for key, probe in one.items() if key.endswith("Probe")}
        assert {"livenessProbe", "readinessProbe"} <= set(probes), "KubeRay would add its own"
        for probe in probes.values():
            asked = probe["httpGet"] if name == "service" else probe["tcpSocket"]
            assert asked["port"] in named
    for key in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container(pods["service"])[key]["httpGet"]
        assert probe["path"] in OPEN_PATHS
        assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    # A service that stands by isn't ended while it waits for the database of one that is cut off.
    live = container(pods["service"])["livenessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] > 2 * (SILENT_SECONDS + KEEP_SECONDS)


def test_only_the_port_of_services_is_reached_from_elsewhere(made: dict[str, dict[str, Any]]) -> None:
    ours = {"app.kubernetes.io/name": "walkgraph", "app.kubernetes.io/instance": "walkgraph"}
    inside, clients = (made[f"NetworkPolicy/walkgraph-{name}"]["spec"] for name in ("inside", "clients"))
    assert inside["podSelector"]["matchLabels"] == ours
    assert inside["ingress"] == [{"from": [{"podSelector": {"matchLabels": ours}}]}]
    assert clients["podSelector"]["matchLabels"] == {**ours, "app.kubernetes.io/component": "service"}
    assert clients["ingress"] == [{"ports": [{"port": "http"}], "from": kubernetes.VALUES["networkPolicy"]["clients"]}]


def test_selectors_find_their_pods(made: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> None:
    labels = {name: set(pod["metadata"]["labels"].items()) for name, pod in pods.items()}
    selectors = {
        "Deployment": made["Deployment/walkgraph"]["spec"]["selector"]["matchLabels"],
        "PodDisruptionBudget": made["PodDisruptionBudget/walkgraph"]["spec"]["selector"]["matchLabels"],
        "Service": made["Service/walkgraph"]["spec"]["selector"],
        "clients": made["NetworkPolicy/walkgraph-clients"]["spec"]["podSelector"]["matchLabels"],
    }
    for kind, wanted in selectors.items():
        assert [name for name, has in labels.items() if set(wanted.items()) <= has] == ["service"], kind
    inside = set(made["NetworkPolicy/walkgraph-inside"]["spec"]["podSelector"]["matchLabels"].items())
    assert all(inside <= has for has in labels.values())


def test_values_have_a_schema_that_refuses_others() -> None:
    values = yaml.safe_load((kubernetes.CHART / "values.yaml").read_text())
    schema = json.loads((kubernetes.CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name in ("image", "services", "head", "networkPolicy"):
        assert set(values[name]) == set(schema["properties"][name]["properties"])
        assert schema["properties"][name]["additionalProperties"] is False
    assert set(values["hosts"][0]) == set(schema["properties"]["hosts"]["items"]["properties"])
