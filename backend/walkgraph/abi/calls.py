"""A call of an operator: its inputs, its outputs, its failures.

It imports no torch, so plans and call scheduling run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from torch import Tensor

Scalar = bool | int | float | str


class StateKey(NamedTuple):
    """Names one state of one run; `scope` holds the step and loop indices that a narrower scope starts anew with."""

    run: str
    state: str
    scope: tuple[int, ...] = ()


class ChunkInfo(Struct, frozen=True):
    """The place of a value within the stream it is read from."""

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
        """True if it marks the end of the stream and holds nothing new."""
        return self.last and self.valid == self.context


def _unknown(port: str) -> bytes | None:
    return None


class Timed(NamedTuple):
    """Says that values are played as they come: sound, frames of a video, a robot's actions."""

    seconds: float
    """Playback of the values of a call, or of one iteration of a loop."""
    plays: bool = True
    """They are played as they leave here; otherwise a later stage on this rank makes of them what is played."""
    chunk: float = 0.0
    """Playback of the values that a loop hands on together; 0 for a call."""
    before: float = 0.0
    """Playback of what the stage gave before a loop."""


class Link(NamedTuple):
    """One call of a chain, whose calls are made one after the other."""

    node: str
    use: int
    name: str
    """Name of the use in its Walk."""
    entering: Mapping[str, str]
    """Port -> the input of the chain that enters there."""
    passed: Mapping[str, str]
    """Port -> the output of the call before."""
    required: tuple[str, ...]
    """Ports that must have a value."""


class Given(NamedTuple):
    """The arguments of a call besides its inputs."""

    params: Mapping[str, Scalar]
    seed: int


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
    """Port -> Tensor, str, bytes, bool, int, float; absent ports are missing."""
    params: Mapping[str, Scalar]
    states: Mapping[str, StateKey]
    seed: int
    """63 bits from the run's seed and the node's weights-independent name. Views of one node that must agree share the
    run's seed, not this."""
    chunks: dict[str, ChunkInfo] = field(default_factory=dict[str, ChunkInfo])
    priority: int = 0
    ready_at: float = 0.0
    """Monotonic seconds, for queueing statistics."""
    name: str = ""
    """Name of the use in its Walk, for observers."""
    links: tuple[Link, ...] = ()
    """The calls of a chain, of which this is the last one; its inputs are those of the chain."""
    given: tuple[Given, ...] = ()
    """The arguments of each link."""
    host: dict[str, Tensor] = field(default_factory=dict[str, "Tensor"], init=False)
    """Inputs that came from host memory and are small, or integers `[n]`: kept there too. The engine fills this in when
    it copies them to the device."""

    answered: bool = True
    """False if nothing reads its outputs."""
    timed: Timed | None = None
    """The playback of its outputs; None if they are not played as they come."""
    read: frozenset[str] | None = None
    """The outputs that something reads; None if that isn't known, so it may be all of them."""
    unread: frozenset[str] = frozenset()
    """Outputs that the host reads of other calls of the node, and not of this one."""
    sent_as: Mapping[str, str] = field(default_factory=dict[str, str])
    """Output that only leaves for the client -> the dtype in which its floats do."""
    awaited: bool = True
    """False if its outputs go nowhere, or only into streams: its run goes on without them."""
    digest: Callable[[str], bytes | None] = field(default=_unknown, init=False)
    """Gives the digest of an input, if it is known without waiting for a device: equal digests, equal values."""
    content: bytes | None = field(default=None, init=False)
    """Digest of everything that its outputs follow from; the engine fills this in where they are to be kept."""
    copies: Outputs | None = field(default=None, init=False)
    """Its outputs in host memory, to be kept, where a device has them; complete when its batch is."""

    def numbers(self, port: str) -> list[int] | None:
        """The integers `[n]` of an input, if reading them doesn't wait for a device; None if it would."""
        value = self.near(port)
        if value is None or not hasattr(value, "is_floating_point"):
            return None  # not a tensor
        if value.device.type != "cpu" or value.is_floating_point() or value.dim() != 1:
            return None
        return value.tolist()

    def near(self, port: str) -> Any:
        """An input's value, from host memory if it is there; None for a port without one."""
        return self.host.get(port, self.inputs.get(port))

    def gives(self, ports: Collection[str]) -> bool:
        """True if something may read an output other than these."""
        return self.answered and (self.read is None or not self.read <= set(ports))

    def text(self, port: str) -> str:
        """The text that an input has, as characters that have bytes."""
        value = self.inputs[port]
        if not isinstance(value, str):
            raise CallFailed(f"`{self.node}` takes text", port, code="invalid_input")
        return plain_text(value)


def plain_text(text: str) -> str:
    """A lone surrogate, which is not a character and has no bytes, becomes `?`."""
    return text.encode(errors="replace").decode()


Outputs = dict[str, Any]
"""Port -> value; a missing optional output is absent."""


FINITE = "@finite"
"""Not a port: under this name a forward may return a bool tensor `[]`, false if the call's numbers are not all finite,
where its integer outputs can't show it. Such a call fails like one with NaN outputs."""


def lacks(node: str, port: str) -> str:
    """The message where a port that must have a value has none."""
    return f"input `{port}` of `{node}` holds no value here; connect it or make it optional"


class CallFailed(Exception):
    """Raised by an operator for one call of a batch that can't be served; the client sees the message."""

    def __init__(
        self, message: str, port: str | None = None, *, code: Literal["node_error", "invalid_input"] = "node_error"
    ) -> None:
        super().__init__(message)
        self.port = port
        self.code: Literal["node_error", "invalid_input"] = code
        """`invalid_input` if the client's own value is at fault, such as bytes that aren't a picture."""
