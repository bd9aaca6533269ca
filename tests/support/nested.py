"""A loop with a loop inside it, over states that are wide, begin anew and grow: for plain Python, and for an engine.

propose ─ many ─┐ (a slice for each inner iteration)
                v
  inner:  read ──> keep ──> note     over `samples`, which begins every iteration as a copy of `context`
                    │ (stacked)
                    v
read ─ fold ──> keep ─ x ─> (next) ── read     over `main`, which grows
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import plan_of
from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import CacheShape, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.engine.loops.spec import Anew, LoopCall, LoopOutput
from walkgraph.placement.tables import Plan

M = 9973
F64 = torch.float64
State = tuple[list[list[float]], int]
"""Tokens of each sequence, and the position of all."""


class _Steps(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        raise AssertionError("a loop on the device steps")


class Propose(_Steps):
    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        n, w = int(params["n"]), int(params["w"])
        one = Row((1,), F64)
        return StepSpec(
            inputs={"x": one, "s": one},
            outputs={"many": Row((n, w), F64), "first": Row((w,), F64)},
            variant=(n, w),
            pure=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        n, w = batch.variant  # type: ignore[misc]
        x, s = (batch.inputs[port][:, :, None] for port in ("x", "s"))
        t, j = (torch.arange(k, device=x.device) for k in (n, w))
        many = (x * (t[:, None] + 2) + s * (j + 1)) % M
        return StepOutputs({"many": many, "first": (x[:, 0] + j) % M})


class Paged(_Steps):
    appends = True

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=F64)}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        x = inputs["x"]
        assert x.device.type == "meta" or x.dim() == 1
        row = Row(tuple(x.shape), F64)
        tokens = int(params["tokens"]) if self.appends else 0
        return StepSpec(
            inputs=dict.fromkeys(("x", "part", "more"), row),
            outputs={"y": row},
            appends={"kv": tokens},
            advances={"kv": int(params["advance"]) if self.appends else 0},
            variant=tokens,
            pure=not self.appends,
            together=not self.appends,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        x, tokens, slot = batch.inputs["x"], int(batch.variant), batch.paged["kv"]  # type: ignore[call-overload]
        for port in ("part", "more"):
            x = x + batch.inputs[port] if port in batch.inputs else x
        rows, flat, new = slot.rows, slot.k[0].view(-1), x.flatten()
        at = rows.rows.long()
        lengths, positions = rows.lengths[at], rows.positions[at]
        slots = (rows.pages[at].long()[:, :, None] * 16 + torch.arange(16, device=x.device)).flatten(1)
        for j in range(tokens):
            flat.index_copy_(0, slots.gather(1, (lengths + j).long()[:, None])[:, 0], new + j)
        there = torch.arange(slots.shape[1], device=x.device) < (lengths + tokens)[:, None]
        total = torch.where(there, flat[slots], 0).sum(1)
        index = batch.iteration.repeat_interleave(x.shape[1]) if self.appends else 0
        return StepOutputs({"y": ((total + 5 * positions + 13 * index + 3 * new) % M).view(x.shape)})


class Keep(Paged):
    pass


class Read(Paged):
    appends = False


class Fold(_Steps):
    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        row = Row(tuple(inputs["every"].shape), F64)
        return StepSpec(inputs={"every": row}, outputs={"one": Row((1,), F64)})

    def step(self, batch: StepBatch) -> StepOutputs:
        every = batch.inputs["every"]
        shares = torch.arange(1, every.shape[1] + 1, device=every.device)
        return StepOutputs({"one": ((every.sum(2) * shares).sum(1) % M)[:, None]})


OPERATORS: dict[str, type[Operator]] = {
    "NestedPropose": Propose,
    "NestedKeep": Keep,
    "NestedRead": Read,
    "NestedFold": Fold,
}


def plan(kv_bytes: int = 1 << 17, capacity: str | None = None) -> Plan:
    names: dict[str, tuple[str, dict[str, str]]] = {
        "propose": ("NestedPropose", {}),
        "keep": ("NestedKeep", {"kv": "main"}),
        "read": ("NestedRead", {"kv": "main"}),
        "inner": ("NestedKeep", {"kv": "samples"}),
        "look": ("NestedRead", {"kv": "context"}),
        "fold": ("NestedFold", {}),
    }
    nodes = {
        name: (f"walkgraph.models.synthetic.operators:{network}", states) for name, (network, states) in names.items()
    }
    return plan_of(nodes, kv_bytes=kv_bytes, capacity=capacity)


@dataclass(frozen=True, kw_only=True)
class Nested:
    """The parts of one run's loop."""

    times: int
    n: int
    w: int
    tokens: int
    advance: int
    x: float
    s: Sequence[float]
    context: Sequence[float]
    looks: Sequence[Sequence[bool]]
    """True where `read` is called, by outer and inner iteration."""
    notes: Sequence[Sequence[bool]]
    main: Sequence[float] = field(default=())


def drawn(seed: int, **fixed: Any) -> Nested:
    r = random.Random(seed)
    sizes = {"times": r.randint(1, 4), "n": r.randint(1, 3), "w": r.randint(1, 3)}
    sizes |= {"tokens": r.choice([1, 2, 7, 17]), "advance": r.choice([1, 3])}
    sizes |= {name: value for name, value in fixed.items() if name in sizes}
    masks = [[[r.random() < 0.6 for _ in range(sizes["n"])] for _ in range(sizes["times"])] for _ in range(2)]
    values: dict[str, Any] = {
        **sizes,
        "x": float(r.randrange(100)),
        "s": [float(r.randrange(100)) for _ in range(sizes["times"])],
        "context": [float(r.randrange(100)) for _ in range(r.choice([0, 1, 15, 16, 20, 33]))],
        "main": [float(r.randrange(100)) for _ in range(r.choice([0, 5, 16]))],
        "looks": masks[0],
        "notes": masks[1],
    }
    return Nested(**(values | fixed))


# ── in plain Python ──


@dataclass
class Found:
    x: list[float] = field(default_factory=list[float])
    before: list[float] = field(default_factory=list[float])
    after: list[float] = field(default_factory=list[float])
    main: State = field(default_factory=lambda: ([[]], 0))
    samples: State = field(default_factory=lambda: ([[]], 0))


def naive(nested: Nested) -> Found:
    found = Found()
    x, main = nested.x, ([list(nested.main)], len(nested.main))
    for i in range(nested.times):
        many = [[(x * (t + 2) + nested.s[i] * (j + 1)) % M for j in range(nested.w)] for t in range(nested.n)]
        y = [(x + j) % M for j in range(nested.w)]
        samples: State = ([list(nested.context) for _ in range(nested.w)], len(nested.context))
        every: list[list[float]] = []
        for t in range(nested.n):
            look = kept(samples, y, 0, 0, 0)[0] if nested.looks[i][t] else [0.0] * nested.w
            shown = [a + b + c for a, b, c in zip(y, many[t], look, strict=True)]
            y, samples = kept(samples, shown, nested.tokens, nested.advance, t)
            if nested.notes[i][t]:
                _, samples = kept(samples, y, nested.tokens, nested.advance, t)
            every.append(y)
        found.before.append(kept(main, [x], 0, 0, 0)[0][0])
        one = sum((t + 1) * sum(values) for t, values in enumerate(every)) % M
        given = x
        (x,), main = kept(main, [one], nested.tokens, nested.advance, i)
        found.after.append(kept(main, [given], 0, 0, 0)[0][0])
        found.x.append(x)
        found.main, found.samples = main, samples
    return found


def kept(state: State, x: list[float], tokens: int, advance: int, index: int) -> tuple[list[float], State]:
    sequences, position = state
    longer = [[*had, *(value + j for j in range(tokens))] for had, value in zip(sequences, x, strict=True)]
    y = [(sum(had) + 5 * position + 13 * index + 3 * value) % M for had, value in zip(longer, x, strict=True)]
    return y, (longer, position + advance)


# ── unrolled ──


def unrolled(run: str, nested: Nested, **more: Any) -> LoopCall:
    """As the engine is handed it."""
    body: list[WrittenUse] = []
    numbers = {"tokens": nested.tokens, "advance": nested.advance}
    samples, main = StateKey(run, "samples"), StateKey(run, "main")

    def use(
        node: str,
        *ports: LoopInput,
        state: StateKey | None = None,
        mask: Sequence[bool] | None = None,
        t: int = -1,
        params: Mapping[str, int] | None = None,
    ) -> int:
        states = {"kv": state} if state else {}
        active, inner = None if mask is None or all(mask) else tuple(mask), (t,) if t >= 0 else ()
        body.append(WrittenUse(node, ports, params or {}, {}, states, 0, active, inner=inner))
        return len(body) - 1

    last = 4 + sum(3 for _ in range(nested.n))
    x = LoopInput("x", "value", tensor([nested.x]), carried=(last - 1, "y"))
    s = LoopInput("s", "each", torch.tensor(nested.s, dtype=F64)[:, None])
    propose = use("propose", x, s, params={"n": nested.n, "w": nested.w})
    y, every = (propose, "first"), []
    for t in range(nested.n):
        mask, noted = ([rows[t] for rows in masks] for masks in (nested.looks, nested.notes))
        look = use("look", feed("x", y), state=samples, mask=mask, t=t)
        part = LoopInput("part", "use", use=propose, output="many", part=t)
        keep = use("inner", feed("x", y), part, feed("more", (look, "y")), state=samples, t=t, params=numbers)
        use("inner", feed("x", (keep, "y")), state=samples, mask=noted, t=t, params=numbers)
        y = (keep, "y")
        every.append(y)
    before = use("read", x, state=main)
    fold = use("fold", LoopInput("every", "stack", stacked=tuple(every)))
    keep = use("keep", feed("x", (fold, "one")), state=main, params=numbers)
    assert keep == last - 1
    after = use("read", x, state=main)
    outputs = [LoopOutput(key, at, "y", "each") for key, at in (("x", keep), ("before", before), ("after", after))]
    outputs.append(LoopOutput("end", keep, "y", "last"))
    return written(
        run=run, walk="w", step=0, use=0, loop="outer", iteration=(), body=tuple(body), times=nested.times, until=None,
        outputs=tuple(outputs), anew={samples: Anew(StateKey(run, "context"), nested.w)}, **more,
    )  # fmt: skip


def feed(port: str, place: tuple[int, str]) -> LoopInput:
    return LoopInput(port, "use", use=place[0], output=place[1])


def tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=F64)


def filled(engine: Any, run: str, nested: Nested) -> None:
    """The states that the loop begins with."""
    for name, tokens in (("context", nested.context), ("main", nested.main)):
        if tokens:
            kv = tensor(tokens)[None, None, :, None, None].expand(2, -1, -1, -1, -1)
            counters = torch.tensor([[len(tokens)] * 2])
            engine.transfers.import_state(StateKey(run, name), {"counters": counters, "kv.0": kv})


def held(engine: Any, run: str, name: str) -> State:
    """As `naive` has it."""
    value = engine.transfers.export(StateKey(run, name))
    counters = value["counters"].tolist()
    assert len({position for _, position in counters}) == 1
    return [value[f"kv.{i}"][0, 0, :, 0, 0].tolist() for i in range(len(counters))], counters[0][1]
