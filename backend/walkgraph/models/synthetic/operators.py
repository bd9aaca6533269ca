"""Small deterministic operators without weights: for learning, tests and measurements of the runtime.

A scalar is a Python number, or a tensor of one (a slice of a stacked value).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, Operator
from walkgraph.abi.states import CacheShape, Reused, Segment, States, reused, reused_block
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.on_device import OnDevice
from walkgraph.layers.sampling import draw

MODULUS = 997


class Constant(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": int(call.params["value"])} for call in calls]


class RandomInteger(Operator):
    """The state counts the draws; the call's seed and that count determine the number."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            drawn = states.tensor(call.states["rng"])
            drawn = torch.zeros(1, dtype=torch.int64) if drawn is None else drawn
            states.put(call.states["rng"], drawn + 1)
            bits = draw(torch.tensor([call.seed]), drawn, torch.zeros(1, dtype=torch.int64))
            outputs.append({"value": int(bits) % int(call.params["below"])})
        return outputs


class Range(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        starts = [_int(call, "start") for call in calls]
        return [{"values": torch.arange(a, a + int(c.params["n"]))} for a, c in zip(starts, calls, strict=True)]


class Tokens(OnDevice):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        firsts = [(_int(call, "first"), int(call.params["n"])) for call in calls]
        return [{"ids": torch.arange(first, first + n, device=self._device)} for first, n in firsts]


class Add(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"sum": _int(call, "a") + _int(call, "b")} for call in calls]


class Sum(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"sum": int(torch.as_tensor(call.inputs["values"]).sum())} for call in calls]


class Compare(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        values = [_int(call, "value") for call in calls]
        return [{"value": v, "reached": v >= int(c.params["at"])} for v, c in zip(values, calls, strict=True)]


class Counter(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            before = states.tensor(call.states["count"])
            count = torch.ones(1, dtype=torch.int64) if before is None else before + 1
            states.put(call.states["count"], count)
            token = torch.tensor([_int(call, "token") + 1])
            outputs.append({"token": token, "stop": int(count) >= int(call.params["stop_at"])})
        return outputs


class Attend(OnDevice):
    """The real paged attention with one number a token: equal scores make it a mean, and a mean times a count is a sum.

    The next token is (sum of the tokens that the last row attends + position of the next token) modulo 997.
    """

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)}

    def rows(self, call: Call) -> int:
        return _fed(call)[1].shape[0]

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        port, tokens = _fed(call)
        return [replace(call, inputs={port: part}) for part in tokens.split(rows)] if port == "ids" else (call,)

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"ids": torch.ones(2, dtype=torch.int64)}, params={"stop_token": -1}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        had = [_had(call, states) for call in calls]
        asked = [i for i, one in enumerate(had) if one.found < self.rows(calls[i])]
        found: list[Outputs] = [{} for _ in calls]
        for i, given in zip(
            asked, self._forward([calls[i] for i in asked], [had[i] for i in asked], states), strict=True
        ):
            found[i] = given
        return found

    def _forward(self, calls: Sequence[Call], had: Sequence[Reused], states: States) -> list[Outputs]:
        if not calls:
            return []
        fed = [_fed(call) for call in calls]
        there, names = zip(*had, strict=True)
        counts = [tokens.shape[0] - n for (_, tokens), n in zip(fed, there, strict=True)]
        rows = torch.arange(sum(counts), device=self._device).split(counts)
        segments = [
            Segment(
                state=call.states["kv"],
                rows=mine,
                mode="causal" if port in ("ids", "token") else "block",
                keep=port != "scratch",
                advance=1 if port == "block" else mine.shape[0],
                tokens=tokens,
            )
            for call, (port, _), mine, tokens in zip(calls, fed, rows, names, strict=True)
        ]
        attend = states.attend(segments)
        new = [tokens[n:] for (_, tokens), n in zip(fed, there, strict=True)]
        values = torch.cat(new).to(self._device).double()[:, None, None]
        blank = torch.zeros_like(values)
        means = attend(0, blank, blank, values)[:, 0, 0]
        seen = [states.length(s.state) + n for s, n in zip(segments, counts, strict=True)]
        states.commit(attend)
        outputs: list[Outputs] = []
        for call, mine, count in zip(calls, rows, seen, strict=True):
            total = round(float(means[mine[-1]]) * count)
            token = (total + states.position(call.states["kv"])) % MODULUS
            stop = token == int(call.params["stop_token"])
            outputs.append({"token": torch.tensor([token], device=self._device), "stop": stop})
        return outputs


class Delay(OnDevice):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            side = int(call.params["side"])
            a = torch.full((side, side), 1.0 / side, device=self._device)
            for _ in range(int(call.params["work"])):
                a = a @ a
        return [{"value": _int(call, "value")} for call in calls]


class Fail(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            if _int(call, "value") == int(call.params["at"]):
                raise CallFailed(f"`{call.node}` fails at the value {call.params['at']}, as its parameter `at` asks")
        return [{"value": _int(call, "value")} for call in calls]


class Nan(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        values = [(_int(call, "value"), int(call.params["at"])) for call in calls]
        return [{"items": torch.tensor([float("nan") if value == at else float(value)])} for value, at in values]


class Allocate(OnDevice):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            torch.empty(int(call.params["mebibytes"]) << 20, dtype=torch.uint8, device=self._device)
        return [{"value": _int(call, "value")} for call in calls]


class Tensor(OnDevice):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [
            {"items": torch.full((int(call.params["n"]),), float(_int(call, "value")), device=self._device)}
            for call in calls
        ]


class Noop(OnDevice):
    """`forward` and `step` give bitwise equal results."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        tokens = torch.stack([call.inputs["token"] for call in calls]) + 1
        ends = torch.tensor([int(call.params["stop_at"]) for call in calls]).to(self._device, non_blocking=True)
        stops = tokens[:, 0] >= ends
        return [{"token": tokens[i], "stop": stops[i]} for i in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        token = Row((1,), torch.int64)
        return StepSpec(
            inputs={"token": token},
            outputs={"token": token, "stop": Row((), torch.bool)},
            params={"stop_at": torch.int64},
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"token": torch.zeros(1, dtype=torch.int64)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        token = batch.inputs["token"] + 1
        return StepOutputs({"token": token, "stop": token[:, 0] >= batch.params["stop_at"]})


class Euler(OnDevice):
    """x + step * (time - x), in float32; `forward` and `step` give bitwise equal results."""

    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["items"].shape)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        x = torch.stack([call.inputs["items"] for call in calls])
        given = torch.tensor([[float(call.params[name]) for name in ("time", "step")] for call in calls])
        time, step = given.to(self._device, non_blocking=True).unbind(1)
        return [{"items": items} for items in _euler(x, time, step)]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        items = Row(tuple(inputs["items"].shape), torch.float32)
        return StepSpec(
            inputs={"items": items}, outputs={"items": items}, params={"time": torch.float32, "step": torch.float32}
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"items": torch.zeros(16)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        return StepOutputs({"items": _euler(batch.inputs["items"], batch.params["time"], batch.params["step"])})


class ChunkSum(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            items = call.inputs.get("items")
            chunk = call.chunks.get("items")
            if items is None:
                items = torch.zeros(0)
            elif chunk is not None:
                items = items[: chunk.valid]
            outputs.append({"sum": items.sum().view(1)})
        return outputs


def _euler(x: torch.Tensor, time: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """x `[B, n]`; time, step `[B]`."""
    return x + step[:, None] * (time[:, None] - x)


def _int(call: Call, port: str) -> int:
    value: Any = call.inputs.get(port)
    return 0 if value is None else int(value)


def _had(call: Call, states: States) -> Reused:
    """The tokens of a call that others have computed."""
    match _fed(call):
        case "ids", _:
            return reused(call, "ids", "kv", states)
        case "block", tokens:
            return reused_block(call, "block", "kv", tokens.shape[0], states)
        case "token", _:
            return Reused(0, call.numbers("token"))
        case _:
            return Reused(0, None)


def _fed(call: Call) -> tuple[str, torch.Tensor]:
    """The one append port that has a value. Raises CallFailed for several."""
    ports = [port for port in ("ids", "token", "block", "scratch") if call.inputs.get(port) is not None]
    if len(ports) != 1 or call.inputs[ports[0]].shape[0] == 0:
        raise CallFailed(f"`{call.node}` takes tokens at one of `ids`, `token`, `block` and `scratch` at a time")
    return ports[0], call.inputs[ports[0]]
