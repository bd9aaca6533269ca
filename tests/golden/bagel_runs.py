"""The runs of `bagel_tiny.py` through the bundled graph, with the values to compare."""

import importlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.golden import bagel_tiny as tiny
from tests.support.local import LocalDeployment
from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.states import States
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.placement.document import decode
from walkgraph.resources import bundled

PICTURES = tiny.pictures()


@cache
def graph_document(model: tiny.Model = tiny.TINY) -> dict[str, Any]:
    """The bundled graph on a tiny checkpoint, reading pictures at the sizes of the answers."""
    document = json.loads(bundled("graphs")["bagel"].read_text())
    document["weights"]["bagel"]["source"] = f"checkpoint:BAGEL-{model.name}"
    for node, (most, least, stride) in {"vae_picture": tiny.VAE_RULES, "vit_picture": tiny.VIT_RULES}.items():
        assert document["nodes"][node]["params"]["stride"] == stride
        document["nodes"][node]["params"] |= {"max_side": most, "min_side": least}
    return document


def deployed(
    root: Path, model: tiny.Model, device: str, placement: Mapping[str, Sequence[str]] | None = None
) -> LocalDeployment:
    """On one rank; with `placement` (rank -> nodes) what it names is on others."""
    apart = [{"nodes": list(nodes), "ranks": [int(rank)]} for rank, nodes in (placement or {}).items()]
    document = {
        "format": "walkgraph/placement@1",
        "name": "some",
        "groups": [{"nodes": ["*"], "ranks": [0]}, *apart],
        "ranks": [{"rank": rank, "device": device} for rank in range(len(apart) + 1)],
    }
    return LocalDeployment(codec.load(graph_document(model)), decode(document), threads=1, roots=[root])


@dataclass
class Seen:
    """The inputs of the last nodes before a client, by run: latents and tokens."""

    latents: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    tokens: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


@contextmanager
def watched() -> Iterator[Seen]:
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        for node, port in (("vae_decoder", "latents"), ("detokenizer", "token")):
            module, _, name = str(catalogue()[graph_document()["nodes"][node]["component"]].network).partition(":")
            operator = getattr(importlib.import_module(module), name)
            patch.setattr(operator, "forward", _spy(operator.forward, port, seen))
        yield seen


def _spy(forward: Any, port: str, seen: Seen) -> Any:
    def spying(self: Any, calls: list[Call], states: States) -> list[Outputs]:
        for one in calls:
            if port == "latents":
                seen.latents.setdefault(one.run, []).append(one.inputs[port].float().cpu())
            else:
                seen.tokens.setdefault(one.run, []).extend(one.inputs[port].tolist())
        return forward(self, calls, states)

    return spying


class Part:
    def __init__(self, modality: str, what: str) -> None:
        self.modality = modality
        self.value: Any = PICTURES[what] if modality == "image" else what


def serve(deployment: LocalDeployment, *names: str) -> None:
    """All at once, each under its name."""
    for name in names:
        asked = tiny.ASKED[name]
        params = {"context": 2048, **asked.params}
        deployment.submit(name, asked.task, params, parts=[Part(*part) for part in asked.parts])
    deployment.run()
    assert not deployment.failed


def used(name: str) -> list[str]:
    """The caches that a run of a drawing task fills. The published code fills all three, and reads what is guided."""
    asked = tiny.ASKED[name]
    if asked.params.get("cfg_text_scale", 4.0) <= 1:
        return ["main"]
    pictures = asked.params.get("cfg_img_scale", 2.0 if asked.task == "edit" else 1.0) > 1
    return ["main", "cfg_text", "cfg_img"] if pictures else ["main", "cfg_text"]


def kept(deployment: LocalDeployment, name: str, slot: str, model: tiny.Model = tiny.TINY) -> tuple[list[int], Tensor]:
    """Length and position of a cache, and the keys and values that there are answers for: float32
    `[2 layers, k and v, n, G, D]`; none of an empty cache."""
    [engine] = deployment.engines.values()
    state = engine.transfers.export(StateKey(name, slot))
    wanted = tiny.answers(model)
    length, _ = wanted[f"{name}/{slot}/counters"].tolist()
    if not length or not state:
        return [0, 0] if not state else state["counters"][0, :2].tolist(), torch.zeros(2, 2, 0)
    at = np.linspace(0, length - 1, wanted[f"{name}/{slot}/rows"].shape[2]).astype(int)
    rows = state["kv.0"][:, :, torch.from_numpy(at)][:, [0, -1]].movedim(0, 1)
    return state["counters"][0, :2].tolist(), rows.float().cpu()


def levels(deployment: LocalDeployment, name: str) -> np.ndarray:
    """int16: some pixels of the picture that a run sent."""
    [png] = deployment.outputs[name]["image"]
    return np.asarray(Image.open(io.BytesIO(png)), dtype=np.int16)[::5, ::5]
