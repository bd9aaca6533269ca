"""Pods of the chart, as KubeRay and Kubernetes start them: they draw a picture over two hosts, and go on where the pod
that serves is lost."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden import kubernetes
from tests.support.containers import (
    Container,
    Containers,
    containers,
    far_shapes,
    until_serving,
    variables,
    without_tini,
)
from tests.support.databases import PostgreSQL
from tests.support.namespaces import Host, allowed, hosts
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
HEAD = "walkgraph-head-svc"
"""The name that KubeRay gives the head."""
OF_KUBERAY = ("--block", "--dashboard-agent-listen-port=52365", "--memory=4294967296", "--metrics-export-port=8080")
"""What KubeRay adds to each `ray start`."""


PROBE = """
import json, sys, urllib.request
url, fields = sys.argv[1:]
urllib.request.urlopen(urllib.request.Request(url, headers=json.loads(fields)), timeout=60)
"""


def container_of(host: Host, pod: Mapping[str, Any], secret: Mapping[str, str], words: tuple[str, ...]) -> Container:
    [one] = pod["spec"]["containers"]
    environment: dict[str, str] = {}
    for variable in one["env"]:
        match variable:
            case {"value": str(value)}:
                environment[variable["name"]] = value.replace("$(POD_IP)", host.address)
            case {"valueFrom": {"secretKeyRef": {"key": key}}}:
                environment[variable["name"]] = secret[key]
            case {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}:
                environment[variable["name"]] = host.address
    return Container(host, words or without_tini(one["command"]), environment)


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    """Kind -> the specification of what Helm makes; of several, the last one."""
    return {one["kind"]: one["spec"] for one in yaml.safe_load_all(kubernetes.RENDERED.read_text()) if one}


@pytest.fixture
def pods(made: dict[str, dict[str, Any]], tmp_path: Path, repository: Path) -> Iterator[Containers]:
    cluster, service = made["RayCluster"], made["Deployment"]["template"]
    with ExitStack() as stack:
        # Not in a folder that is each container's own.
        server = PostgreSQL(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg", dir="/var/tmp"))))
        server.start()
        # Its user's, as it is started by root: containers have no rights to others' folders.
        server.folder.chmod(0o711)
        stack.callback(server.kill)
        secret = {"token": secrets.token_hex(32), "auth_token": secrets.token_hex(32), "database_url": server.make()}
        made = stack.enter_context(hosts(4))
        group = cluster["workerGroupSpecs"][0]
        as_head = ("ray", "start", "--head", *params(cluster["headGroupSpec"]), "--dashboard-host=0.0.0.0")
        as_worker = ("ray", "start", f"--address={HEAD}:6379", *params(group))
        yield containers(
            {
                "head": container_of(made[0], cluster["headGroupSpec"]["template"], secret, as_head),
                "gpu-0": container_of(made[1], group["template"], secret, as_worker),
                "service-a": container_of(made[2], service, secret, ()),
                "service-b": container_of(made[3], service, secret, ()),
            },
            tmp_path,
            variables(
                repository, RAY_AUTH_TOKEN=secret["auth_token"], WALKGRAPH_TOKEN=secret["token"], UCX_NET_DEVICES="lo"
            ),
            **{HEAD: "head"},
        )


def params(group: Mapping[str, Any]) -> tuple[str, ...]:
    return (*(f"--{name}={value}" for name, value in group["rayStartParams"].items()), *OF_KUBERAY)


def answers_probes(pods: Containers, name: str, pod: Mapping[str, Any]) -> bool:
    [one] = pod["spec"]["containers"]
    host = pods.found[name].host
    for key in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = one[key]["httpGet"]
        fields = json.dumps({field["name"]: field["value"] for field in asked["httpHeaders"]})
        command = host.command(sys.executable, "-c", PROBE, f"http://{host.address}:8421{asked['path']}", fields)
        if subprocess.run(command, check=False).returncode != 0:
            return False
    return True


def test_pods_draw_a_picture_and_stand_by_for_one_another(
    pods: Containers, made: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    service = made["Deployment"]["template"]
    with ExitStack() as stack:
        for name in ("head", "gpu-0"):
            stack.enter_context(pods.up(name))
        with pods.up("service-a", "--no-deploy", "--json") as first:
            until_serving(first)
            second = stack.enter_context(pods.up("service-b", "--json"))
            until_serving(second)
            while len(pods.hosts("service-b")) < 4:
                assert (first.poll(), second.poll()) == (None, None)
            pods.walkgraph("service-b", "deploy", "shapes", far_shapes("gpu-0", tmp_path))
            expected = pods.picture("service-a", tmp_path)
            assert all(answers_probes(pods, name, service) for name in ("service-a", "service-b"))
        while not ready(pods.asked("service-b", "ls", "--json")):
            assert second.poll() is None
        assert pods.picture("service-b", tmp_path) == expected


def ready(answer: subprocess.CompletedProcess[str]) -> bool:
    return answer.returncode == 0 and [one["state"] for one in json.loads(answer.stdout)] == ["ready"]
