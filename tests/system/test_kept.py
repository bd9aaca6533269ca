"""Values kept for later steps, with real processes: a picture is drawn, described, and drawn again from the text."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.support.deployment import KV_BYTES, ROOT, Deployment, deployed
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROMPT = "a red circle left of a blue square"
READING = ("picture_in", "vit_encoder", "reader", "start", "detokenizer")


LOOK: dict[str, Any] = {
    "inputs": {"image": "image"},
    "body": [
        "picture_in",
        "vit_encoder",
        "reader",
        "start",
        {
            "loop": "tokens",
            "times": "max_tokens",
            "until": "speaker.stop",
            "drop_last": True,
            "body": [{"use": "reader", "as": "speaker"}, "detokenizer"],
        },
    ],
    "edges": [
        ["@in.image", "picture_in.image"],
        ["picture_in.pixels", "vit_encoder.pixels"],
        ["vit_encoder.embeddings", "reader.image"],
        ["start.token", "speaker.token"],
        ["speaker.token", "speaker.token"],
        ["speaker.token", "detokenizer.token"],
        {"from": "detokenizer.text", "to": "@out.text", "each": True},
        {"from": "detokenizer.text", "to": "@out.pieces", "collect": "list"},
        {"from": "speaker.token", "to": "@out.tokens", "collect": "join"},
    ],
    "results": {"text": {"from": "detokenizer.text", "collect": True}},
}
"""Describes a picture in a context of its own, and keeps the text."""


def drawn_again() -> dict[str, Any]:
    """The starter's graph with a task that draws a picture, describes it, and draws again from the description."""
    graph = json.loads((ROOT / "graphs" / "shapes.json").read_text())
    walks, draw = graph["walks"], graph["tasks"]["text_to_image"]
    graph["name"] = "draw_again"
    graph["states"]["reading"] = {"kind": "paged_kv", "scope": "walk", "capacity": "512"}
    graph["states"]["blank"] = {"kind": "paged_kv", "capacity": "16"}
    view = {"component": "bagel.backbone", "weights": "shapes"}
    graph["nodes"]["reader"] = {**view, "states": {"kv": "reading"}}
    graph["nodes"]["nobody"] = {**view, "states": {"kv": "blank"}}
    walks["image_gen_cfg"]["results"] = {"image": "picture_out.image"}
    walks["look"] = LOOK
    walks["forget"] = {"body": [{"fork": "blank", "into": "main"}, {"fork": "blank", "into": "cfg_img"}]}
    graph["tasks"]["draw_again"] = {
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": ["image", "text", "pieces", "tokens"],
        "params": {**draw["params"], **graph["tasks"]["image_to_text"]["params"]},
        "steps": [
            {"walk": "prefill_text", "with": {"text": "@task.prompt"}},
            {"walk": "image_gen_cfg"},
            {"walk": "look", "with": {"image": "image_gen_cfg.image"}},
            {"walk": "forget"},
            {"walk": "prefill_text", "as": "read_again", "with": {"text": "look.text"}},
            {"walk": "image_gen_cfg", "as": "again"},
        ],
    }
    return graph


def plan_of(ranks: int) -> tuple[Graph, Plan]:
    found = check(drawn_again(), catalogue())
    assert found.ok, found.errors
    graph = codec.load(drawn_again())
    groups = (Group(nodes=("*",), ranks=(0,)), *([Group(nodes=READING, ranks=(1,))] if ranks == 2 else []))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    plan = assemble(Assignment(graph, Placement(name="kept", groups=groups, ranks=devices)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=4 * KV_BYTES) for rank in plan.ranks)
    return graph, msgspec.structs.replace(plan, ranks=kept)


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_picture_is_drawn_again_from_its_description(ranks: int) -> None:
    async with deployed(*plan_of(ranks)) as deployment:
        outputs = await drawing(deployment, "draw_again", prompt=m.Small(value=PROMPT))
        said = "".join(outputs["text"])
        assert len(outputs["text"]) > 3, "the description is streamed as it is made"
        assert outputs["pieces"] == [outputs["text"]], "the list has what the client got"
        assert len(outputs["tokens"][0]) == len(outputs["text"]), "tokens are put end to end, without the last"
        first, second = outputs["image"]
        described = await drawing(deployment, "image_to_text", image=m.Blob(data=first))
        assert said == "".join(described["text"]), "it described the picture that the client got"
        from_said = await drawing(deployment, "text_to_image", prompt=m.Small(value=said))
        assert np.abs(pixels(second) - pixels(from_said["image"][0])).max() <= 4, "it read the same text"


async def drawing(deployment: Deployment, task: str, **inputs: m.Value) -> dict[str, list[Any]]:
    params = {} if task == "image_to_text" else {"steps": 12, "seed": 7}
    run = deployment.submit(task, params, inputs={name: [value] for name, value in inputs.items()})
    end = await deployment.end(run)
    assert end.error is None, end.error
    return deployment.outputs[run]


def pixels(png: bytes) -> Any:
    return np.asarray(Image.open(io.BytesIO(png)), dtype=np.int16)
