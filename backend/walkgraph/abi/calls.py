"""A call of an operator: what it is made with, what it gives, how it fails.

It imports no torch: what plans and schedules calls runs without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

Scalar = bool | int | float | str


class StateKey(NamedTuple):
    """Names one state of one run; `scope` holds the step and loop indices that a narrower scope starts anew with."""

    run: str
    state: str
    scope: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """Where a value read from a stream stands in it."""

    index: int
    first: bool
    last: bool
    valid: int
    """Items in it, context included; 0 for an absent chunk, and for a closing one without context."""
    context: int = 0
    """Leading items that an earlier chunk held too."""
    start: int = 0
    """Items of the stream before it."""

    @property
    def closing(self) -> bool:
        """It tells the end of the stream, and holds nothing new."""
        return self.last and self.valid == self.context


@dataclass(slots=True)
class Call:
    """One use of a node at one iteration of one run. Tensors have no batch axis and live on the operator's device."""

    run: str
    node: str
    walk: str
    step: int
    use: int
    iteration: tuple[int, ...]
    inputs: dict[str, Any]
    """Port -> Tensor, str, bytes, bool, int, float; a port that is absent is not in it."""
    params: Mapping[str, Scalar]
    states: Mapping[str, StateKey]
    seed: int
    """63 bits, of the run's seed and the node's weights-independent name: views of one node that must agree share a run
    seed, not this."""
    chunks: dict[str, ChunkInfo] = field(default_factory=dict[str, ChunkInfo])
    priority: int = 0
    ready_at: float = 0.0
    """Monotonic seconds; for the queueing figure."""
    name: str = ""
    """Of the use in its Walk, for who watches."""
    host: dict[str, Tensor] = field(default_factory=dict[str, "Tensor"], init=False)
    """Inputs of whole numbers `[n]` that came from the host's memory, as they are there; filled by the engine when it
    brings them to the device."""

    def numbers(self, port: str) -> list[int] | None:
        """The whole numbers `[n]` of an input, if reading them doesn't wait for a device; None if it would."""
        value = self.host.get(port, self.inputs.get(port))
        if value is None or not hasattr(value, "is_floating_point"):
            return None  # no tensor
        if value.device.type != "cpu" or value.is_floating_point() or value.dim() != 1:
            return None
        return value.tolist()


Outputs = dict[str, Any]
"""Port -> value; a missing optional output is absent."""


FINITE = "@finite"
"""No port: under this name a forward may tell by a bool tensor `[]` whether its call's numbers are all finite, where
its outputs, whole numbers, can't show it. A call of which it is false fails as one that gave NaN."""


class CallFailed(Exception):
    """Raised by an operator for one call of a batch that can't be served; the message is the client's."""

    def __init__(
        self, message: str, port: str | None = None, *, code: Literal["node_error", "invalid_input"] = "node_error"
    ) -> None:
        super().__init__(message)
        self.port = port
        self.code: Literal["node_error", "invalid_input"] = code
        """`invalid_input` where the client's own value is at fault (a picture that is none)."""
