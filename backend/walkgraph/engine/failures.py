"""The error that a client gets for a failed call or loop: a sentence of our own, where it failed, and its inputs.

Inputs are described by kind and size, never by content, and only once something has failed.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, StateKey, lacks
from walkgraph.engine.kv.allocator import OutOfPages
from walkgraph.engine.kv.paged_state import CacheSummary
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.placement.capacity.budget import show_bytes
from walkgraph.placement.tables import RankPlan

_log = logging.getLogger(__name__)

MOST_GIVEN = 16
"""The most ports and slots that an error describes."""


class Failures:
    def __init__(self, states: StateTable, rank: int) -> None:
        self._states, self._rank = states, rank

    def of(self, call: Call | LoopCall, raised: Exception) -> ErrorInfo:
        """The error for an exception. The text of a foreign exception goes to the log alone."""
        node = _nodes(call)[0]
        if isinstance(raised, CallFailed):
            return self._error(call, raised.code, str(raised), raised.port)
        if isinstance(raised, OutOfPages):
            return self._error(call, "out_of_memory", str(raised))
        if is_memory(raised):
            advice = "ask for less, or try again when other runs have ended"
            return self._error(call, "out_of_memory", f"`{node}` needs more memory than its rank has; {advice}")
        _log.error("node `%s` failed in run %s at %s", node, call.run, call.iteration, exc_info=raised)
        where = f"see the log of rank {self._rank} under this run's id"
        return self._error(call, "node_error", f"`{node}` failed; {where}")

    def lacking(self, call: Call, port: str) -> ErrorInfo:
        """The error of a call in a chain whose port has no value, though it must."""
        return self._error(call, "node_error", lacks(call.node, port), port)

    def numeric(self, call: Call, port: str) -> ErrorInfo:
        """The error of a call whose output at this port has NaN or infinite numbers."""
        where = f" at iteration {list(call.iteration)}" if call.iteration else ""
        message = f"`{call.node}.{port}` gave NaN or infinite numbers{where}; check its inputs and parameters"
        return self._error(call, "numeric_error", message, port)

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo:
        """The error of a loop in which an iteration gave NaN or infinite numbers; which of its nodes did is not known.
        `spans`: the loop has parts on other ranks, and one of these may have failed."""
        names = " or ".join(f"`{node}`" for node in _nodes(call))
        what = f"{names} gave NaN or infinite numbers" + (", or another rank sent nothing," if spans else "")
        message = f"{what} at iteration {iteration}; check its inputs and parameters"
        return self._error(call, "numeric_error", message, at=(*call.iteration, iteration))

    def _error(
        self,
        call: Call | LoopCall,
        code: ErrorCode,
        message: str,
        port: str | None = None,
        at: tuple[int, ...] | None = None,
    ) -> ErrorInfo:
        return ErrorInfo(
            code=code,
            message=message,
            node=_nodes(call)[0],
            use=call.name if isinstance(call, Call) else call.spec.uses[0].name,
            port=port,
            walk=call.walk,
            iteration=call.iteration if at is None else at,
            rank=self._rank,
            retryable=code == "out_of_memory",
            given=dict(islice(self._given(call), MOST_GIVEN)),
        )

    def _given(self, call: Call | LoopCall) -> Iterator[tuple[str, str]]:
        """Yield each port and slot with a description of its content. For a loop, they are `use.port` and `use.slot`,
        of the inputs that enter from outside and the states."""
        if isinstance(call, Call):
            yield from ((port, described(value)) for port, value in call.inputs.items())
            yield from self._kept(call.states)
            return
        for use in call.spec.uses:
            entering = [(port, source) for port, source in use.sources.items() if source.enters]
            yield from ((f"{use.name}.{port}", described(source.given(call.values))) for port, source in entering)
            states = {slot: call.states[name] for slot, name in use.states.items()}
            yield from ((f"{use.name}.{slot}", kept) for slot, kept in self._kept(states))

    def _kept(self, states: Mapping[str, StateKey]) -> Iterable[tuple[str, str]]:
        return [(slot, described(self._states.glance(key))) for slot, key in states.items()]


def described(value: Any) -> str:
    """Kind and size of a value or a state: `float32 [1, 256]`."""
    match value:
        case None:
            return "nothing"
        case Tensor():
            return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        case CacheSummary():
            wide = f"{value.sequences} sequences of at most " if value.sequences != 1 else ""
            return f"{wide}{value.tokens} tokens on {value.pages} pages"
        case str():
            return f"text of {len(value)} characters"
        case bytes():
            return f"{len(value)} bytes"
        case list() | tuple():
            return f"list of {len(value)}"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return type(value).__name__


def _nodes(call: Call | LoopCall) -> list[str]:
    return [call.node] if isinstance(call, Call) else list(dict.fromkeys(use.node for use in call.spec.uses))


def is_memory(raised: Exception) -> bool:
    """True if memory ran out, on the host or on a device."""
    # Torch's CPU allocator raises a plain RuntimeError: only its name in the message distinguishes it.
    allocator = isinstance(raised, RuntimeError) and "DefaultCPUAllocator" in str(raised)
    return allocator or isinstance(raised, (MemoryError, torch.OutOfMemoryError))


def too_little(here: RankPlan, what: str) -> str:
    """Advice for a rank whose memory ran out while it loaded."""
    total = sum(size for _, size in here.budget)
    if 2 * here.kv_bytes <= total:
        return f"rank {here.rank} has too little memory {what}; place fewer on it"
    caches = show_bytes(here.kv_bytes)
    return (
        f"rank {here.rank} has too little memory {what} beside its caches, which take {caches} of its "
        f"{show_bytes(total)}; give its groups less `memory`, which leaves more beside them"
    )
