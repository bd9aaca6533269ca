"""A service on the first host of a Ray cluster: `python -m ... FOLDER HOST` deploys `shapes`, with weights of a folder
that HOST lacks, over both. It prints its answer there, and that of one rank.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.support.deployment import ROOT, graph_named
from tests.support.serving import service
from walkgraph.client import Client
from walkgraph.graph import codec
from walkgraph.placement.sizes import weights_folder

ASKED = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 2, "seed": 7}, "outputs": ["image"]}
NAME = "mine"


def answer(client: Client, graph: dict[str, Any], placement: dict[str, Any] | None) -> object:
    client.deploy(graph, placement, "drawn")
    client.wait_ready("drawn")
    found = client.run("drawn", "text_to_image", ASKED)["outputs"]
    client.undeploy("drawn")
    return found


def main() -> None:
    folder, host = Path(sys.argv[1]), sys.argv[2]
    shutil.copytree(weights_folder("starter:shapes", ()), folder / "roots" / NAME)
    graph = codec.dump(graph_named("shapes"))
    graph["weights"]["shapes"]["source"] = f"checkpoint:{NAME}"
    placement = json.loads((ROOT / "placements" / "shapes_cfg3_cpu.json").read_text())
    placement["groups"][1]["host"] = placement["groups"][2]["host"] = host
    roots = json.dumps([str(folder / "roots")])
    with service(folder / "home", studio="false", checkpoint_roots=roots) as found:
        found.up("--no-deploy")
        with found.client() as client:
            answers = answer(client, graph, placement), answer(client, graph, None)
        found.down()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
