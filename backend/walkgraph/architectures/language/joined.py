"""Calls on one state that a forward makes together: texts that follow each other become one."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from walkgraph.abi.calls import Call


class Joined(NamedTuple):
    """Calls on one state, in order, as one sequence of rows."""

    calls: list[Call]
    last: int
    """Index in the batch of the call that gets the outputs of the last one."""


def joined(calls: Sequence[Call], slot: str, port: str) -> list[Joined]:
    """The calls of a batch by their state at `slot`. Those with a value at `port`, token ids `[n]`, that follow each
    other are one call, with the arguments of the last one."""
    found: dict[Hashable, list[list[int]]] = {}
    for index, call in enumerate(calls):
        parts = found.setdefault(call.states[slot], [])
        if parts and _has(calls[parts[-1][-1]], port) and _has(call, port):
            parts[-1].append(index)
        else:
            parts.append([index])
    return [
        Joined([_one([calls[index] for index in part], port) for part in parts], parts[-1][-1])
        for parts in found.values()
    ]


def _has(call: Call, port: str) -> bool:
    return call.inputs.get(port) is not None


def _one(calls: Sequence[Call], port: str) -> Call:
    if len(calls) == 1:
        return calls[0]
    made = replace(calls[-1], inputs={**calls[-1].inputs, port: torch.cat([call.inputs[port] for call in calls])})
    near = [call.near(port) for call in calls]
    if all(value.device.type == "cpu" for value in near):
        made.host[port] = torch.cat(near)
    return made
