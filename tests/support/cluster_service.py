"""A service on the first host of a Ray cluster: `python -m ... HOME GRAPH HOST TASKS` deploys a bundled graph of two
ranks, the second one on HOST. It prints the network namespaces of the ranks, the answers, those of the same graph on
one rank, the reason why a host that isn't there is not deployed to, and the hosts once their links are measured.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.deployment import ROOT, graph_named
from tests.support.serving import service
from walkgraph.client import Client, ClientError, shown
from walkgraph.graph import codec

PATIENCE = 120.0
"""Seconds that hosts have to measure their link."""


def placed(graph: str, host: str, memory: str | None = None) -> dict[str, Any]:
    """The graph's bundled placement of two ranks, with the second one on another host. `memory`: of each group."""
    document: dict[str, Any] = json.loads((ROOT / "placements" / f"{graph}_two_ranks.json").read_text())
    for group in document["groups"]:
        if 1 in group["ranks"]:
            group["host"] = host
        if memory is not None:
            group["memory"] = memory
    return document


def answers(client: Client, deployment: str, tasks: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [client.run(deployment, task, {"params": params})["outputs"] for task, params in tasks.items()]


def measured(client: Client) -> list[shown.Host]:
    """The hosts, once the link between the first two is measured."""
    end = time.monotonic() + PATIENCE
    while not (hosts := client.hosts())[0]["reaches"]:
        assert time.monotonic() < end, hosts
    return hosts


def main() -> None:
    home, graph, host, tasks = Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    document = codec.dump(graph_named(graph))
    with service(home, studio="false") as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy(document, placed(graph, host), "far")
            pids = [rank["pid"] for rank in found.wait_ready("far")["ranks"]]
            networks = [str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in pids]
            far = answers(client, "far", tasks)
            hosts = measured(client)
            client.undeploy("far")
            client.deploy(document, None, "near")
            found.wait_ready("near")
            near = answers(client, "near", tasks)
            try:
                client.deploy(document, placed(graph, "nowhere"), "nowhere")
                refused = None
            except ClientError as error:
                refused = str(error)
        found.down()
    print(json.dumps([networks, far, near, refused, hosts]))


if __name__ == "__main__":
    main()
