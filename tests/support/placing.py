"""A small graph with something of everything that a plan knows, its catalogue, and hosts to place it on."""

from collections.abc import Sequence
from typing import Any

from walkgraph.graph import codec
from walkgraph.graph.catalogue import Append, Catalogue, Component, Param, StateUse, port
from walkgraph.graph.document import Graph, Weights
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.sizes import Sizes, WeightSizes

GIB = 2**30


def _component(name: str, **rest: Any) -> Component:
    return Component(name=f"t.{name}", description=name, network=f"operators_t:{name}", **rest)


CATALOGUE: Catalogue = {
    component.name: component
    for component in (
        _component("read", inputs=(port("text", "text"),), outputs=(port("ids", "tokens: int[n]"),), host=True),
        _component(
            "llm",
            inputs=(
                port("ids", "tokens: int[n]", optional=True),
                port("token", "tokens: int[1]", optional=True),
                port("latents", "latents", optional=True),
            ),
            outputs=(port("token", "tokens: int[1]"), port("stop", "flag"), port("velocity", "latents")),
            params={"time": Param(type="number", default=0.0), "heat": Param(type="number", default=1.0)},
            states=(
                StateUse(
                    slot="kv",
                    kind="paged_kv",
                    appends=(Append(port="ids"), Append(port="token"), Append(port="latents", scratch=True)),
                ),
            ),
            weights="t",
        ),
        _component("noise", outputs=(port("latents", "latents"),)),
        _component(
            "mix",
            inputs=(
                port("latents", "latents"),
                port("velocity", "latents"),
                port("other", "latents", optional=True),
            ),
            outputs=(port("latents", "latents"),),
        ),
        _component("paint", inputs=(port("latents", "latents"),), outputs=(port("image", "image"),), weights="t"),
        _component(
            "voice",
            inputs=(port("tokens", "tokens: int[n]"),),
            outputs=(port("audio", "audio"),),
            states=(StateUse(slot="cursor", kind="tensor"),),
        ),
        _component("say", inputs=(port("token", "tokens: int[1]"),), outputs=(port("text", "text"),), host=True),
    )
}

_INTEGER = {"type": "integer", "default": 8, "min": 1, "max": 64}
DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "duet",
    "weights": {"w": {"family": "t", "source": "random:t:0"}},
    "states": {
        "main": {"kind": "paged_kv", "capacity": "room"},
        "guide": {"kind": "paged_kv", "capacity": "room"},
        "memory": {"kind": "paged_kv", "scope": "session", "capacity": "room"},
        "cursor": {"kind": "tensor", "scope": "walk"},
    },
    "nodes": {
        "read": {"component": "t.read"},
        "llm": {"component": "t.llm", "weights": "w", "states": {"kv": "main"}, "params": {"heat": "=heat"}},
        "guide": {"component": "t.llm", "weights": "w", "states": {"kv": "guide"}, "params": {"time": 0.5}},
        "noise": {"component": "t.noise"},
        "mix": {"component": "t.mix"},
        "paint": {"component": "t.paint", "weights": "w"},
        "voice": {"component": "t.voice", "states": {"cursor": "cursor"}},
        "say": {"component": "t.say"},
        "keep": {"component": "t.llm", "weights": "w", "states": {"kv": "memory"}},
    },
    "walks": {
        "prefill": {
            "inputs": {"text": "text"},
            "body": ["read", {"fork": "main", "into": "guide", "when": "scale > 1"}, "llm"],
            "edges": [["@in.text", "read.text"], ["read.ids", "llm.ids"]],
            "results": {"token": "llm.token"},
        },
        "decode": {
            "inputs": {"token": "tokens: int[1]"},
            "body": [
                {"loop": "tokens", "times": "times", "until": "llm.stop", "drop_last": True, "body": ["llm", "say"]}
            ],
            "edges": [
                ["@in.token", "llm.token"],
                ["llm.token", "llm.token"],
                ["llm.token", "say.token"],
                {"from": "say.text", "to": "@out.text", "each": True},
            ],
        },
        "draw": {
            "body": [
                "noise",
                {
                    "loop": "steps",
                    "times": "times",
                    "body": [{"parallel": ["llm", {"use": "guide", "when": "scale > 1 and @loop.index > 0"}]}, "mix"],
                },
                "paint",
            ],
            "edges": [
                *(["noise.latents", f"{use}.latents"] for use in ("llm", "guide", "mix")),
                *(["mix.latents", f"{use}.latents"] for use in ("llm", "guide", "mix")),
                ["llm.velocity", "mix.velocity"],
                ["guide.velocity", "mix.other"],
                ["mix.latents", "paint.latents"],
                ["paint.image", "@out.image"],
            ],
        },
        "speak": {
            "body": ["voice"],
            "edges": [["@stream.heard", "voice.tokens"], ["voice.audio", "@out.audio"]],
        },
        "remember": {
            "inputs": {"text": "text"},
            "body": ["read", "keep"],
            "edges": [["@in.text", "read.text"], ["read.ids", "keep.ids"]],
        },
        "recall": {
            "inputs": {"hint": "text"},
            "body": ["read", "keep", "say"],
            "edges": [
                ["@in.hint", "read.text"],
                ["read.ids", "keep.ids"],
                ["keep.token", "say.token"],
                ["say.text", "@out.text"],
            ],
        },
    },
    "streams": [
        {
            "name": "heard",
            "from": "llm.token",
            "walks": ["decode"],
            "chunks": {"policy": "fixed", "size": 4},
            "credits": 8,
        }
    ],
    "tasks": {
        "talk": {
            "inputs": {"prompt": {"modality": "text", "many": True}},
            "outputs": ["text", "audio"],
            "params": {
                "times": _INTEGER,
                "room": {"type": "integer", "default": 64, "min": 1, "max": 512},
                "heat": {"type": "number", "default": 1.0, "min": 0, "max": 2},
                "scale": {"type": "number", "default": 1.0, "min": 1, "max": 9},
            },
            "steps": {
                "writer": [
                    {"for": "parts", "text": [{"walk": "prefill", "with": {"text": "@part"}}]},
                    {"walk": "decode", "with": {"token": "prefill.token"}},
                ],
                "speaker": [{"walk": "speak", "per": "chunk"}],
            },
        },
        "draw": {
            "inputs": {"prompt": {"modality": "text"}, "hint": {"modality": "text", "optional": True}},
            "outputs": ["image", "text"],
            "params": {
                "times": _INTEGER,
                "room": {"type": "integer", "default": 64, "min": 1, "max": 512},
                "scale": {"type": "number", "default": 4.0, "min": 1, "max": 9},
                "style": {"type": "string", "default": "plain", "choices": ["plain", "rich"]},
                "describe": {"type": "boolean", "default": False},
            },
            "steps": [
                {"walk": "prefill", "as": "first", "with": {"text": "@task.prompt"}},
                {"first": [{"walk": "draw", "when": "times > 1"}, {"walk": "recall", "with": {"hint": "@task.hint"}}]},
                {"walk": "decode", "when": "describe", "with": {"token": "first.token"}},
            ],
        },
        "remember": {
            "inputs": {"fact": {"modality": "text"}},
            "outputs": ["text"],
            "params": {"room": {"type": "integer", "default": 64, "min": 1, "max": 512}},
            "steps": [
                {"walk": "remember", "with": {"text": "@task.fact"}},
                {"walk": "recall", "with": {"hint": "what?"}},
            ],
            "session": {},
        },
    },
}


def duet() -> Graph:
    return codec.load(DOCUMENT)


def hardware(*gpus: int, cpu: int = 32 * GIB) -> Hardware:
    """A host with that many free bytes on the CPU and on each GPU."""
    cuda = (Device(name=f"cuda:{i}", total=free, free=free) for i, free in enumerate(gpus))
    devices = (Device(name="cpu", total=cpu, free=cpu), *cuda)
    return Hardware(host="here", cores=8, shm=GIB, devices=devices)


def sizes(model: int = GIB, token: int = 1024) -> Sizes:
    """All weights have one part, `model`, of that many numbers; `token` numbers in a token's cache."""

    def known(weights: Weights) -> WeightSizes:
        return WeightSizes(
            numbers={"model": model, "paint": model // 8},
            exact=frozenset({"paint"}),
            components={"t.llm": ("model",), "t.paint": ("paint",)},
            caches={"t.llm": token},
            workspace={"t.llm": 64 * 2**20},
        )

    return known


def placement(*groups: dict[str, Any], devices: Sequence[str] = ("cpu", "cpu")) -> Placement:
    """Everything on rank 0, but for the given groups."""
    given = tuple(
        Group.model_validate({**group, "nodes": tuple(group["nodes"]), "ranks": tuple(group["ranks"])})
        for group in groups
    )
    ranks = tuple(RankDevice(rank=i, device=device) for i, device in enumerate(devices))
    return Placement(name="test", groups=(Group(nodes=("*",), ranks=(0,)), *given), ranks=ranks)


def at(rank: int, *nodes: str, **rest: Any) -> dict[str, Any]:
    return {"nodes": nodes, "ranks": (rank,), **rest}


def planned(
    *groups: dict[str, Any], devices: Sequence[str] = ("cpu", "cpu"), host: Hardware | None = None
) -> PlanResult:
    host = host or hardware(32 * GIB, 32 * GIB)
    return plan(duet(), placement(*groups, devices=devices), host, CATALOGUE, sizes())
