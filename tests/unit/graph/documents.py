"""A small catalogue, and a document that uses every word of the format, for the tests of this folder."""

import copy
from typing import Any

from walkgraph.graph.catalogue import Append, Component, Palette, Param, StateUse, port

COMPONENTS = (
    Component(
        name="toy.tokenizer",
        description="",
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        network="toy:Tokenizer",
        weights="any",
        reads="tokenizer",
        families=("lego", "toy"),
    ),
    Component(
        name="toy.eye",
        former=("toy.retina",),
        description="",
        inputs=(port("image", "image: bytes"),),
        outputs=(port("seen", "embeddings: float[n, 8]"),),
        network="toy:Eye",
    ),
    Component(
        name="toy.backbone",
        description="",
        inputs=(
            port("ids", "tokens: int[n]", optional=True),
            port("seen", "embeddings: float[n, 8]", optional=True),
            port("token", "tokens: int[1]", optional=True),
            port("latents", "latents: float[m, 4]", optional=True),
        ),
        outputs=(
            port("token", "tokens: int[1]"),
            port("stop", "flag: bool"),
            port("velocity", "latents: float[m, 4]"),
            port("hidden", "features: float[n, 8]"),
        ),
        params={
            "time": Param(type="number", default=0.0, min=0, max=1),
            "top_k": Param(type="integer", default=0, min=0, max=100),
        },
        states=(
            StateUse(
                slot="kv",
                kind="paged_kv",
                appends=(
                    Append(port="ids"),
                    Append(port="seen", positions="per_block"),
                    Append(port="token"),
                    Append(port="latents", scratch=True),
                ),
            ),
        ),
        network="toy:Backbone",
        weights="toy",
    ),
    Component(
        name="toy.noise",
        description="",
        outputs=(port("latents", "latents: float[m, 4]"),),
        params={"cells": Param(type="integer", min=1, max=64)},
        states=(StateUse(slot="rng", kind="rng", optional=True),),
        network="toy:Noise",
    ),
    Component(
        name="toy.euler",
        description="",
        inputs=(
            port("latents", "latents: float[m, 4]"),
            port("velocity", "latents: float[m, 4]"),
            port("guide", "latents: float[m, 4]", optional=True),
        ),
        outputs=(port("latents", "latents: float[m, 4]"),),
        params={
            "renorm": Param(type="string", default="global", choices=("global", "none")),
            "scale": Param(type="number", default=1.0, min=0, max=20),
        },
        network="toy:Euler",
    ),
    Component(
        name="toy.detokenizer",
        description="",
        inputs=(port("token", "tokens: int[n]"),),
        outputs=(port("text", "text: str"),),
        network="toy:Detokenizer",
        weights="any",
        reads="tokenizer",
        families=("lego", "toy"),
    ),
    Component(
        name="toy.painter",
        description="",
        inputs=(port("latents", "latents: float[m, 4]"), port("index", "scalar: int", optional=True)),
        outputs=(port("image", "image: bytes"),),
        network="toy:Painter",
    ),
    Component(
        name="toy.talker",
        description="",
        inputs=(port("prompt", "features: float[n, 8]"), port("hidden", "features: float[n, 8]", optional=True)),
        outputs=(port("code", "codes: int[1]"), port("stop", "flag: bool")),
        states=(StateUse(slot="kv", kind="paged_kv", appends=(Append(port="prompt"), Append(port="hidden"))),),
        network="toy:Talker",
    ),
    Component(
        name="toy.vocoder",
        description="",
        inputs=(port("codes", "codes: int[n]"),),
        outputs=(port("audio", "audio: bytes"),),
        network="toy:Vocoder",
    ),
    Component(
        name="toy.framed",
        description="",
        inputs=(port("codes", "codes: int[7]"),),
        outputs=(port("audio", "audio: bytes"),),
        network="toy:Framed",
    ),
    Component(
        name="toy.wide",
        description="",
        inputs=(port("latents", "latents: float[m, 5]"),),
        outputs=(port("latents", "latents: float[m, 5]"),),
    ),
)
CATALOGUE = Palette(COMPONENTS)


def document() -> dict[str, Any]:
    """A fresh copy of a document without a problem."""
    return copy.deepcopy(_DOCUMENT)


_DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "toy",
    "weights": {"toy": {"family": "toy", "source": "random:tiny:0"}},
    "states": {
        "main": {"kind": "paged_kv", "capacity": "context"},
        "guide": {"kind": "paged_kv", "capacity": "context"},
        "talk": {"kind": "paged_kv", "capacity": "context", "scope": "run"},
        "dice": {"kind": "rng"},
    },
    "nodes": {
        "tokenizer": {"component": "toy.tokenizer", "weights": "toy"},
        "eye": {"component": "toy.eye"},
        "llm": {
            "component": "toy.backbone",
            "weights": "toy",
            "states": {"kv": "main"},
            "params": {"time": "=flow_time(@loop.denoise, steps, 3.0)"},
        },
        "llm_guide": {"component": "toy.backbone", "weights": "toy", "states": {"kv": "guide"}},
        "noise": {"component": "toy.noise", "states": {"rng": "dice"}, "params": {"cells": 16}},
        "euler": {"component": "toy.euler", "params": {"renorm": "none", "scale": "=scale"}},
        "detokenizer": {"component": "toy.detokenizer", "weights": "toy"},
        "painter": {"component": "toy.painter"},
        "talker": {"component": "toy.talker", "states": {"kv": "talk"}},
        "vocoder": {"component": "toy.vocoder"},
    },
    "walks": {
        "read": {
            "inputs": {"text": "text"},
            "body": ["tokenizer", {"parallel": ["llm", "llm_guide"]}],
            "edges": [["@in.text", "tokenizer.text"], ["tokenizer.ids", "llm.ids"], ["tokenizer.ids", "llm_guide.ids"]],
            "results": {"token": "llm.token"},
        },
        "look": {
            "inputs": {"image": "image"},
            "body": [{"fork": "main", "into": "guide", "when": "scale > 1"}, "eye", "llm"],
            "edges": [["@in.image", "eye.image"], ["eye.seen", "llm.seen"]],
        },
        "write": {
            "inputs": {"token": "tokens: int[1]"},
            "body": [
                {
                    "loop": "words",
                    "times": "max_tokens",
                    "until": "llm.stop",
                    "drop_last": True,
                    "body": ["llm", "detokenizer"],
                }
            ],
            "edges": [
                ["@in.token", "llm.token"],
                ["llm.token", "llm.token"],
                ["llm.token", "detokenizer.token"],
                {"from": "detokenizer.text", "to": "@out.text", "each": True},
            ],
            "results": {"words": {"from": "llm.token", "collect": True}, "last": "llm.token"},
        },
        "draw": {
            "body": [
                "noise",
                {
                    "loop": "denoise",
                    "times": "steps - 1",
                    "body": [
                        {
                            "parallel": [
                                "llm",
                                {"use": "llm_guide", "when": "scale > 1 and flow_time(@loop.index, steps, 3.0) > 0.4"},
                            ]
                        },
                        "euler",
                        {
                            "sequence": [{"use": "painter", "as": "preview"}],
                            "when": "@loop.index % 10 == 9",
                        },
                    ],
                },
                "painter",
            ],
            "edges": [
                ["noise.latents", "llm.latents"],
                ["noise.latents", "llm_guide.latents"],
                ["noise.latents", "euler.latents"],
                ["euler.latents", "llm.latents"],
                ["euler.latents", "llm_guide.latents"],
                ["euler.latents", "euler.latents"],
                ["llm.velocity", "euler.velocity"],
                ["llm_guide.velocity", "euler.guide"],
                ["euler.latents", "preview.latents"],
                ["@loop.index", "preview.index"],
                {"from": "preview.image", "to": "@out.preview", "each": True},
                ["euler.latents", "painter.latents"],
                ["painter.image", "@out.image"],
            ],
        },
        "talk": {
            "body": [{"loop": "frames", "times": "max_tokens", "until": "talker.stop", "body": ["talker"]}],
            "edges": [
                ["@stream.prompt", "talker.prompt"],
                {"from": "@stream.hidden", "to": "talker.hidden", "each": True},
            ],
        },
        "sound": {
            "body": ["vocoder"],
            "edges": [["@stream.codes", "vocoder.codes"], ["vocoder.audio", "@out.audio"]],
        },
    },
    "streams": [
        {"name": "prompt", "from": "llm.hidden", "walks": ["read"], "chunks": {"policy": "whole"}},
        {
            "name": "hidden",
            "from": "llm.hidden",
            "walks": ["write"],
            "chunks": {"policy": "fixed", "size": 1, "continue_after_done": True},
        },
        {
            "name": "codes",
            "from": "talker.code",
            "walks": ["talk"],
            "chunks": {"policy": "left_context", "chunk": 25, "context": 5, "first": 5},
            "credits": 8,
        },
    ],
    "tasks": {
        "paint": {
            "label": "Paint",
            "inputs": {"prompt": {"modality": "text", "many": True}, "image": {"modality": "image", "many": True}},
            "outputs": ["image", "preview"],
            "params": {
                "steps": {"type": "integer", "default": 50, "min": 2, "max": 200},
                "scale": {"type": "number", "default": 4.0, "min": 1, "max": 20},
                "context": {"type": "integer", "default": 512, "min": 16, "max": 4096},
                "guided": {"type": "boolean", "default": True},
            },
            "steps": [
                {
                    "for": "parts",
                    "text": [{"walk": "read", "with": {"text": "@part"}}],
                    "image": [{"walk": "look", "with": {"image": "@part"}}],
                },
                {"first": [{"walk": "draw", "when": "guided"}, {"walk": "draw", "as": "plain"}]},
            ],
        },
        "speak": {
            "inputs": {"prompt": {"modality": "text"}},
            "outputs": ["text", "audio"],
            "params": {
                "max_tokens": {"type": "integer", "default": 100, "min": 1, "max": 1000},
                "context": {"type": "integer", "default": 512, "min": 16, "max": 4096},
            },
            "steps": {
                "thinker": [
                    {"walk": "read", "with": {"text": "@task.prompt"}},
                    {"walk": "write", "with": {"token": "read.token"}},
                ],
                "talker": [{"walk": "talk"}],
                "vocoder": [{"walk": "sound", "per": "chunk"}],
            },
            "session": {"queue": "latest"},
        },
    },
    "layout": {"llm": {"x": 10, "y": 20.5}, "notes": ["use", {"use": "llm"}]},
}
