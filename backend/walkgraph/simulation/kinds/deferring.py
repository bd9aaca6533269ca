"""Scenarios with deferred calls: reads of a state that nothing waits for, made together with the next call on it.

    listen0, listen1, ...: one use after the other reads tokens into `main` ──fork──> `copy`, which `side` reads
    answer: a loop goes on from what was read
    hear:   each chunk of what the reads have told

Other nodes may read the same state: `pal` by the same operator, `eye` by another one. Reads may fail.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from walkgraph.abi.calls import Call, Outputs
from walkgraph.architectures.language.joined import joined
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue, port
from walkgraph.graph.declaring import integer, kv_cache
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.simulation.rank.device import Serve
from walkgraph.simulation.rank.operators import SimulatedOperator
from walkgraph.simulation.rank.states import StateStore
from walkgraph.simulation.reference.naive_chunks import naive_chunks
from walkgraph.simulation.reference.random_walks import CATALOGUE, SeededDraw, mix, plain
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest, placed
from walkgraph.wire import messages as m
from walkgraph.worker.io import values

DEFERRING = 48
PAGES, PLENTY = 24, 200
"""Pages per rank: fewer than a few runs need together; enough for all runs, where sessions keep pages while their next
runs wait for more."""
READERS = ("reader", "pal", "eye")
"""Nodes that read `main`."""
BAD = 500
"""No token that is read is larger, but for one that fails its call."""


def _components() -> Catalogue:
    attend = catalogue()["synthetic.attend"]
    outputs = (port("token", "tokens: int[1]"), port("told", "scalar: int"))
    reader = replace(
        attend,
        name="test.reader",
        inputs=attend.inputs[:2],
        outputs=outputs,
        params={"bad": integer(default=-1)},
        states=(kv_cache("ids", "token", token_bytes=16),),
        resident=False,
    )
    return {
        **CATALOGUE,
        "synthetic.tokens": catalogue()["synthetic.tokens"],
        "test.reader": reader,
        "test.resident": replace(reader, name="test.resident", resident=True),
    }


class Reader(SimulatedOperator):
    """Appends tokens to a state. It defers calls with tokens, and takes several on one state in a batch."""

    deferring = True

    def __init__(self, states: StateStore) -> None:
        super().__init__(self._read)
        self._states = states

    def rows(self, call: Call) -> int:
        return len(_given(call))

    def defers(self, call: Call) -> bool:
        return "ids" in call.inputs and not call.gives(("told",))

    def forward(self, calls: Sequence[Call]) -> list[Outputs]:
        for call in calls:
            _check(call)
        if len(calls) == 1:
            return [self._read(calls[0])]
        outputs: list[Outputs] = [{"told": _told(_given(call))} for call in calls]
        groups = joined([_with_tensors(call) for call in calls], "kv", "ids")
        self._states.count("deferred calls joined", len(calls) - len(groups))
        for group in groups:
            last: dict[str, Any] = {}
            for one in group.calls:
                last = self._read(one)
            outputs[group.last]["token"] = last["token"]
        return outputs

    def _read(self, call: Call) -> dict[str, Any]:
        _check(call)
        key, new = call.states["kv"], _given(call)
        kept = self._states.read(key) or {"tokens": []}
        tokens = [*kept["tokens"], *new]
        self._states.write(key, {"tokens": tokens})
        return {"token": _next(tokens), "told": _told(new)}


def _given(call: Call) -> list[int]:
    (value,) = call.inputs.values()
    found = plain(value)
    return [found] if isinstance(found, int) else found


def _with_tensors(call: Call) -> Call:
    return replace(call, inputs={name: _tensor(_given(call)) for name in call.inputs})


def _tensor(tokens: Sequence[int]) -> Any:
    data = array("q", tokens).tobytes()
    return values.unpack(m.InlineTensor(dtype="int64", shape=(len(tokens),), data=data))


def _check(call: Call) -> None:
    if call.params["bad"] in _given(call):
        raise ValueError("told to fail")


def _next(tokens: Sequence[int]) -> int:
    """The answer, which depends on the order of the tokens."""
    found = 0
    for token in tokens:
        found = (31 * found + token + 1) % 397
    return found


def _told(new: Sequence[int]) -> int:
    return 7 * sum(new) + len(new)


@dataclass(frozen=True)
class _Read:
    """One read of `main`."""

    node: str
    tokens: int
    late: bool
    """A node makes its tokens, so that they come later."""
    told: bool
    """Its outputs leave, so that its run waits for it."""
    begins: bool
    """It is the first one of a Walk."""


@dataclass(frozen=True)
class _Listening:
    """The drawn properties of a scenario."""

    reads: Sequence[_Read]
    kind: str
    """The component of `reader` and `pal`."""
    forks: bool
    """`main` is forked behind the reads, and `side` reads the copy."""
    answers: bool
    """The last read is answered by a loop; otherwise nothing follows the reads."""
    tells: str | None
    """The value that the last read of each Walk gives to a stream: `told`, `token`, or nothing."""
    loops: bool
    """Its loop gives to the stream too."""
    size: int
    """Items of a chunk."""
    keeps: bool
    """`main` is a session's."""
    ranks: Mapping[str, int]


def deferring(count: int = DEFERRING) -> list[Scenario]:
    return [deferring_scenario(seed) for seed in range(count)]


def deferring_scenario(seed: int) -> Scenario:
    listening = _drawn(seed)
    graph, ranks = codec.load(_document(listening)), 1 + seed % 3
    plan = assemble(Assignment(graph, placed(listening.ranks, ranks)), _components())
    pages = PLENTY if listening.keeps and listening.forks else PAGES
    requests = [_request(listening, *of) for of in ((1, 2, -1), (20, 1, -1), (1, 4, -1), (90, 3, 1), (40, 2, 0))]
    return Scenario(f"deferring {seed}/{ranks}", graph, plan, _functions, requests, pages=pages)


def _drawn(seed: int) -> _Listening:
    draw, ranks = SeededDraw(seed), 1 + seed % 3
    reads = [
        _Read(
            draw.one(("reader", "reader", *READERS)),
            draw.integer(1, 3),
            late=draw.flag(),
            told=draw.integer(0, 4) == 0,
            begins=draw.flag(),
        )
        for _ in range(draw.integer(1, 4))
    ]
    home = draw.integer(0, ranks - 1)
    others = {node: draw.integer(0, ranks - 1) for node in ("words", "side", "v")}
    return _Listening(
        reads=reads,
        kind=draw.one(("test.reader", "test.resident")),
        forks=draw.flag(),
        answers=draw.integer(0, 3) > 0,
        tells=draw.one((None, "told", "told", "token")),
        loops=draw.flag(),
        size=draw.one((1, 2, 3)),
        keeps=draw.flag(),
        ranks={**others, **dict.fromkeys(READERS, home)},
    )


def _functions(states: StateStore) -> Mapping[str, Serve]:
    one, other, side = Reader(states), Reader(states), Reader(states)

    def words(call: Call) -> dict[str, Any]:
        return {"ids": [call.inputs.get("first", 0) + i for i in range(int(call.params["n"]))]}

    voice = mix("v")
    return {
        "reader": one,
        "pal": one,
        "eye": other,
        "side": side,
        "words": words,
        "v": lambda call: dict(voice(call.inputs, call.iteration)),
    }


# ── graph ───────────────────────────────────────────────────────────────────────────────────────


def _document(listening: _Listening) -> dict[str, Any]:
    kind = {"reader": listening.kind, "pal": listening.kind, "eye": "test.reader", "side": "test.reader"}
    nodes: dict[str, Any] = {
        name: {"component": kind[name], "states": {"kv": "copy" if name == "side" else "main"}, "params": _BAD}
        for name in kind
    }
    nodes |= {"words": {"component": "synthetic.tokens", "params": {"n": 2}}, "v": {"component": "test.mix"}}
    walks = {f"listen{number}": _listen(listening, reads) for number, reads in enumerate(_walks(listening))}
    steps: list[Any] = [
        {"walk": name, "with": {port: f"@task.{port}" for port in walk["inputs"]}} for name, walk in walks.items()
    ]
    streams: list[Any] = []
    partitions = {"first": steps}
    feeding = [*walks]
    if listening.answers:
        walks["answer"] = _ANSWER
        steps.append({"walk": "answer", "with": {"token": f"{feeding[-1]}.token"}})
    if listening.tells is not None:
        walks["hear"] = {"body": ["v"], "edges": [["@stream.heard", "v.a"], ["v.out", "@out.sound"]]}
        feeding += ["answer"] if _loop_tells(listening) else []
        chunks = {"policy": "fixed", "size": listening.size}
        streams = [{"name": "heard", "from": f"it.{listening.tells}", "walks": feeding, "chunks": chunks}]
        partitions["second"] = [{"walk": "hear", "per": "chunk"}]
    session = {"scope": "session"} if listening.keeps else {}
    room = {"kind": "paged_kv", "capacity": "room"}
    given = [f"i{i}" for i, read in enumerate(_reads(listening)) if not read.late]
    inputs: dict[str, Any] = {"f": {"modality": "scalar"}, **{name: {"modality": "tokens"} for name in given}}
    return {
        "format": "walkgraph/graph@1",
        "name": "deferring",
        "states": {"main": {**room, **session}, "copy": room},
        "nodes": nodes,
        "walks": walks,
        "streams": streams,
        "tasks": {
            "t": {
                "inputs": inputs,
                "outputs": _outputs(listening),
                "params": {name: {"type": "integer", "default": 1} for name in ("room", "times", "bad")},
                "steps": partitions if streams else steps,
                **({"session": {}} if listening.keeps else {}),
            }
        },
    }


_BAD = {"bad": "=bad"}
_ANSWER: dict[str, Any] = {
    "inputs": {"token": "tokens: int[1]"},
    "body": [{"loop": "tokens", "times": "times", "body": [{"use": "reader", "as": "it"}]}],
    "edges": [
        ["@in.token", "it.token"],
        ["it.token", "it.token"],
        {"from": "it.token", "to": "@out.token", "each": True},
    ],
}


def _loop_tells(listening: _Listening) -> bool:
    return listening.answers and listening.loops


def _walks(listening: _Listening) -> list[list[int]]:
    """The reads of each Walk. What the last one tells may be an item of the stream."""
    walks: list[list[int]] = [[]]
    for i, read in enumerate(_reads(listening)):
        if read.begins and walks[-1]:
            walks.append([])
        walks[-1].append(i)
    return walks


def _reads(listening: _Listening) -> list[_Read]:
    return [
        *listening.reads,
        *([_Read("reader", 2, late=True, told=False, begins=listening.loops)] if listening.answers else []),
    ]


def _outputs(listening: _Listening) -> list[str]:
    told = [f"told{i}" for i, read in enumerate(_reads(listening)) if read.told]
    others = {"token": listening.answers, "side": listening.forks, "sound": listening.tells is not None}
    return ["words", *told, *(name for name, there in others.items() if there)]


def _listen(listening: _Listening, walk: Sequence[int]) -> dict[str, Any]:
    body: list[Any] = []
    edges: list[Any] = []
    inputs: dict[str, str] = {"f": "scalar: int"}
    reads = _reads(listening)
    for i in walk:
        read, name = reads[i], "it" if i == walk[-1] else f"read{i}"
        if read.late:
            body.append({"use": "words", "as": f"words{i}"})
            edges += [["@in.f", f"words{i}.first"], [f"words{i}.ids", f"{name}.ids"]]
        else:
            inputs[f"i{i}"] = "tokens: int[n]"
            edges.append([f"@in.i{i}", f"{name}.ids"])
        body.append({"use": read.node, "as": name})
        if read.told:
            edges.append([f"{name}.told", f"@out.told{i}"])
        if listening.forks and i == len(listening.reads) - 1:
            body += [{"fork": "main", "into": "copy"}, {"use": "words", "as": "aside"}, "side"]
            edges += [["@in.f", "aside.first"], ["aside.ids", "side.ids"], ["side.token", "@out.side"]]
    if walk[-1] == len(reads) - 1:
        body.append({"use": "words", "as": "plain"})
        edges += [["@in.f", "plain.first"], ["plain.ids", "@out.words"]]
    made: dict[str, Any] = {"inputs": inputs, "body": body, "edges": edges}
    return {**made, "results": {"token": "it.token"}} if listening.answers and walk[-1] == len(reads) - 1 else made


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def _request(
    listening: _Listening, first: int, times: int, fails_at: int, kept: Sequence[int] = (), more: int = 1
) -> ScenarioRequest:
    """`fails_at`: the read that fails; none if there is no such one. `kept`: what its session has read before."""
    reads, tokens, heard = _reads(listening), [*kept], list[int]()
    telling = {walk[-1] for walk in _walks(listening)}
    inputs: dict[str, Any] = {"f": first}
    outputs: dict[str, list[Any]] = {"words": [[first, first + 1]]}
    bad = -1
    for i, read in enumerate(reads):
        new = [first, first + 1] if read.late else [first + 10 * (i + 1) + k for k in range(read.tokens)]
        if not read.late:
            if i == fails_at:
                new[-1] = bad = BAD
            inputs[f"i{i}"] = new
        tokens += new
        if i in telling:
            heard.append(_told(new) if listening.tells == "told" else _next(tokens))
        if read.told:
            outputs[f"told{i}"] = [_told(new)]
        if listening.forks and i == len(listening.reads) - 1:
            outputs["side"] = [_next([*tokens, first, first + 1])]
    answer = list[int]()
    for _ in range(times if listening.answers else 0):
        given = answer[-1] if answer else _next(tokens)
        tokens.append(given)
        answer.append(_next(tokens))
        if _loop_tells(listening):
            heard.append(_told([given]) if listening.tells == "told" else answer[-1])
    outputs["token"] = answer
    if listening.tells is not None:
        chunks = [list(chunk.values) for chunk in naive_chunks("fixed", {"size": listening.size}, heard)]
        outputs["sound"] = [mix("v")({"a": chunk} if chunk else {}, (k,))["out"] for k, chunk in enumerate(chunks)]
    # The same for all runs of a session, so that none waits for what others keep.
    room = 2 * (len(tokens) - len(kept)) + 2
    following = None
    if listening.keeps and bad < 0 and more:
        following = _request(listening, first + 1, times, -1, tokens, more - 1)
    return ScenarioRequest(
        "t",
        {"room": room, "times": times, "bad": bad},
        {name: found for name, found in outputs.items() if found},
        inputs,
        fails=bad >= 0,
        session=listening.keeps,
        following=following,
    )
