"""A service on the first host of a Ray cluster: `python -m ... HOME HOSTS` deploys graphs with ranks on several hosts,
and then with all ranks on its own. It prints the answers of both."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from tests.support.deployment import graph_named
from tests.support.serving import Service, service
from walkgraph.client import Client
from walkgraph.client.values import Binary
from walkgraph.graph import codec

MEMORY = "768MiB"


class Case(NamedTuple):
    graph: str
    groups: Sequence[Sequence[str]]
    """Nodes of a group, on one host."""
    widths: Mapping[int, int]
    """Group -> the number of ranks that divide it, if that isn't 1."""
    task: str
    given: Mapping[str, Any]
    """Inputs and parameters."""
    weights: Mapping[str, str] = {}
    """Family -> its source, in place of the graph's."""


def picture() -> bytes:
    """A red square, as PNG."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "PNG")
    return file.getvalue()


ENCODERS = ["picture_in", "vit_encoder", "vae_encoder"]
SPEAKERS = ["projection", "request", "script", "talker", "code_predictor", "code2wav", "audio_out"]
CASES = {
    "a branch on each host": Case(
        "shapes",
        (["*"], ["llm_cfg_text"], ["llm_cfg_img"]),
        {},
        "text_to_image",
        {"prompt": "a red circle", "steps": 6, "cfg_img_scale": 2.0, "seed": 3},
    ),
    "encoders beside shards": Case(
        "shapes",
        (["*"], ENCODERS),
        {0: 2},
        "edit",
        {"image": picture(), "instruction": "make it blue", "steps": 4, "seed": 3},
    ),
    "speech": Case(
        "orpheus",
        (["*"], ["vocoder", "audio_out"]),
        {},
        "speak",
        {"text": "two boats", "max_tokens": 60, "temperature": 1.0, "seed": 3},
        {"orpheus": "random:orpheus-tiny:0", "snac": "random:snac-tiny:0"},
    ),
    "omni": Case(
        "qwen3_omni",
        (["*"], SPEAKERS),
        {},
        "chat",
        {"text": "two boats", "image": picture(), "max_tokens": 8, "max_frames": 12, "temperature": 1.0, "seed": 3},
        {"omni": "random:qwen3-omni-tiny:0"},
    ),
}


def placed(case: Case, hosts: Sequence[str]) -> dict[str, Any]:
    """Each group on ranks of its own. `hosts`: those of the groups; the first is the service's."""
    groups, ranks = list[dict[str, Any]](), 0
    for number, nodes in enumerate(case.groups):
        width = case.widths.get(number, 1)
        group = {"nodes": list(nodes), "ranks": list(range(ranks, ranks + width)), "tensor_parallel": width}
        groups.append({**group, "memory": MEMORY, **({"host": hosts[number]} if number and hosts else {})})
        ranks += width
    devices = [{"rank": rank, "device": "cpu"} for rank in range(ranks)]
    return {"format": "walkgraph/placement@1", "name": "case", "groups": groups, "ranks": devices}


def answer(found: Service, client: Client, case: Case, hosts: Sequence[str]) -> str:
    """A digest of what one run gives."""
    document = codec.dump(graph_named(case.graph))
    for family, source in case.weights.items():
        document["weights"][family]["source"] = source
    client.deploy(document, placed(case, hosts), "case")
    found.wait_ready("case")
    outputs = client.task("case", case.task)(**case.given).outputs
    client.undeploy("case")
    digest = hashlib.sha256()
    for name, values in outputs.items():
        assert values, name
        for value in values:
            digest.update(value.data if isinstance(value, Binary) else str(value).encode())
    return digest.hexdigest()


def main() -> None:
    home, *hosts = sys.argv[1:]
    with service(Path(home), studio="false") as found:
        found.up("--no-deploy")
        with found.client() as client:
            while not all(host["alive"] for host in client.hosts()):
                pass
            told = {name: [answer(found, client, case, where) for where in (hosts, ())] for name, case in CASES.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
