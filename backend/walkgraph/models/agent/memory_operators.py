"""The conversations that a session remembers: its texts and calls, as JSON in a tensor of bytes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.graph.conversation import ToolCall, Turn
from walkgraph.models.agent.conversing import bounded, conversation, text_of, text_part


class Recall(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            new, kept = conversation(call), _read(states.tensor(call.states["memory"]))
            first = tuple(turn for turn in new.turns if turn.role == "system")
            rest = tuple(turn for turn in new.turns if turn.role != "system")
            turns = (*first, *_latest(kept, int(call.params["turns"])), *rest)
            outputs.append({"messages": bounded(call, replace(new, turns=turns))})
        return outputs


class Remember(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            turns = [turn for turn in bounded(call, conversation(call)).turns if turn.role != "system"]
            kept = _latest(turns, int(call.params["turns"]))
            states.put(call.states["memory"], _written(kept))
            outputs.append({"turns": len(kept)})
        return outputs


def _latest(turns: Sequence[Turn], most: int) -> Sequence[Turn]:
    """The last turns, from one of the user on: a tool's answer says nothing without the call before it."""
    kept = turns[max(len(turns) - most, 0) :]
    first = next((place for place, turn in enumerate(kept) if turn.role == "user"), len(kept))
    return kept[first:]


def _written(turns: Sequence[Turn]) -> Tensor:
    told = [
        {
            "role": turn.role,
            "text": text_of(turn),
            "calls": [[call.id, call.name, call.arguments] for call in turn.tool_calls],
            "answers": turn.tool_call_id,
        }
        for turn in turns
    ]
    data = json.dumps(told, ensure_ascii=False).encode(errors="replace")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _read(kept: Tensor | None) -> list[Turn]:
    if kept is None:
        return []
    told: list[dict[str, Any]] = json.loads(bytes(kept.cpu().numpy().tobytes()))
    return [
        Turn(one["role"], text_part(one["text"]), tuple(ToolCall(*call) for call in one["calls"]), one["answers"])
        for one in told
    ]
