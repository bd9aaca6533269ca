"""Scenarios in which one partition speaks what another one thinks, while it thinks.

    think: loop of `t` ──stream of single items──> speak: loop of `s` ──stream of chunks──> sound: `v`

The loop of `s` reads an item an iteration, on the device if it can, and may go on after the last one or end before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.simulation.reference.naive_chunks import naive_chunks
from walkgraph.simulation.reference.random_walks import CATALOGUE, RESIDENT, SeededDraw, mix
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest, fixed, placed

TALKERS = 24
_TALKER = replace(RESIDENT["test.mix"], name="test.talker", itemwise=("b",))
COMPONENTS: Catalogue = {
    **CATALOGUE,
    "test.resident": replace(RESIDENT["test.mix"], name="test.resident"),
    "test.talker": _TALKER,
    "test.slow": replace(_TALKER, name="test.slow", resident=False),
}
NODES = ("t", "s", "v")


@dataclass(frozen=True)
class Talker:
    """The drawn properties of a scenario."""

    thinker: str
    talker: str
    until: bool
    """The speech may end by itself."""
    drops: bool
    """Its last frame is dropped then."""
    stops: bool
    """The thinking may end by itself."""
    credits: int
    size: int
    """Items of a chunk of sound."""
    ranks: Mapping[str, int]
    told: bool
    """The client gets every frame, and not only the sound."""


def talkers(count: int = TALKERS) -> list[Scenario]:
    return [talker_scenario(seed) for seed in range(count)]


def drawn(seed: int) -> Talker:
    draw, ranks = SeededDraw(seed), 1 + seed % 3
    return Talker(
        thinker=draw.one(("test.mix", "test.resident")),
        talker=draw.one(("test.talker", "test.talker", "test.slow")),
        until=draw.flag(),
        drops=draw.flag(),
        stops=draw.flag(),
        credits=draw.one((1, 2, 4, 64)),
        size=draw.one((1, 2, 5)),
        ranks={node: draw.integer(0, ranks - 1) if ranks < 3 else number for number, node in enumerate(NODES)},
        told=draw.flag(),
    )


def talker_scenario(seed: int) -> Scenario:
    talker = drawn(seed)
    graph, ranks = codec.load(_document(talker)), 1 + seed % 3
    plan = assemble(Assignment(graph, placed(talker.ranks, ranks)), COMPONENTS)
    requests = [_request(talker, words, frames) for words, frames in ((1, 8), (2, 2), (3, 12), (6, 4), (5, 20))]
    return Scenario(f"talker {seed}/{ranks}", graph, plan, fixed({node: mix(node) for node in NODES}), requests)


def _document(talker: Talker) -> dict[str, Any]:
    thinking = {"loop": "words", "times": "words", "body": ["t"]} | ({"until": "t.stop"} if talker.stops else {})
    speaking = {"loop": "frames", "times": "frames", "body": ["s"]}
    if talker.until:
        speaking |= {"until": "s.stop", "drop_last": talker.drops}
    kinds = {"t": talker.thinker, "s": talker.talker, "v": "test.mix"}
    return {
        "format": "walkgraph/graph@1",
        "name": "talker",
        "nodes": {node: {"component": kind} for node, kind in kinds.items()},
        "walks": {
            "think": {"inputs": {"x": "scalar"}, "body": [thinking], "edges": [["@in.x", "t.a"], ["t.out", "t.a"]]},
            "speak": {
                "inputs": {"x": "scalar"},
                "body": [speaking],
                "edges": [
                    {"from": "@stream.said", "to": "s.b", "each": True},
                    ["@in.x", "s.a"],
                    ["s.out", "s.a"],
                    *([{"from": "s.out", "to": "@out.frames", "each": True}] if talker.told else []),
                ],
            },
            "sound": {"body": ["v"], "edges": [["@stream.spoken", "v.a"], ["v.out", "@out.sound"]]},
        },
        "streams": [
            {
                "name": "said",
                "from": "t.out",
                "walks": ["think"],
                "chunks": {"policy": "fixed", "size": 1, "continue_after_done": True},
                "credits": talker.credits,
            },
            {
                "name": "spoken",
                "from": "s.out",
                "walks": ["speak"],
                "chunks": {"policy": "fixed", "size": talker.size},
                "credits": talker.credits,
            },
        ],
        "tasks": {
            "t": {
                "inputs": {"x": {"modality": "scalar"}},
                "outputs": ["frames", "sound"] if talker.told else ["sound"],
                "params": {"words": {"type": "integer", "default": 2}, "frames": {"type": "integer", "default": 2}},
                "steps": {
                    "thinker": [{"walk": "think", "with": {"x": "@task.x"}}],
                    "talker": [{"walk": "speak", "with": {"x": "@task.x"}}],
                    "vocoder": [{"walk": "sound", "per": "chunk"}],
                },
            }
        },
    }


def _request(talker: Talker, words: int, frames: int) -> ScenarioRequest:
    x = 5 + words
    said: Sequence[int] = _thought(talker, x, words)
    given = _spoken(talker, x, said, frames)
    chunks = [list(chunk.values) for chunk in naive_chunks("fixed", {"size": talker.size}, given)]
    sound = [mix("v")({"a": chunk} if chunk else {}, (k,))["out"] for k, chunk in enumerate(chunks)]
    wanted = {"frames": given if talker.told else [], "sound": sound}
    params = {"words": words, "frames": frames}
    return ScenarioRequest("t", params, {name: found for name, found in wanted.items() if found}, {"x": x})


def _thought(talker: Talker, x: int, words: int) -> list[int]:
    said: list[int] = []
    for i in range(words):
        out = mix("t")({"a": x}, (i,))
        x = out["out"]
        said.append(x)
        if talker.stops and out["stop"]:
            break
    return said


def _spoken(talker: Talker, x: int, said: Sequence[int], frames: int) -> list[int]:
    """The frames that leave, each an item of the stream that is made sound."""
    given: list[int] = []
    for i in range(frames):
        out = mix("s")({"a": x} | ({"b": [said[i]]} if i < len(said) else {}), (i,))
        x, stop = out["out"], talker.until and out["stop"]
        if not (stop and talker.drops):
            given.append(x)
        if stop:
            break
    return given
