"""What a walker asks of the run that it belongs to."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import EdgePlan, Scalar
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.walk_tables import UseTable

W_contra = TypeVar("W_contra", contravariant=True)
"""The walker."""


class Host(Protocol[W_contra]):
    """What a walker asks of the run it belongs to."""

    @property
    def params(self) -> Mapping[str, Scalar]: ...

    def call(
        self, walker: W_contra, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> None:
        """Everything is there: run it, and answer with `Walker.finish`."""
        ...

    def release(self, walker: W_contra, edge: EdgePlan, key: Vector, value: Any) -> None:
        """A value leaves this rank's walker: to a peer, the client, a result or a stream."""
        ...

    def passing(self, walker: W_contra, edge: EdgePlan, key: Vector, value: Any) -> None:
        """A value goes over an edge that is looked at."""
        ...

    def judged(self, walker: W_contra, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Tell the loop's other ranks."""
        ...

    def chunk(self, walker: W_contra, use: int, stream: int, key: Vector) -> tuple[Any, ChunkInfo] | None:
        """The stream's chunk for this place (the next one, the first time it is asked); None: not there yet."""
        ...

    def credit(self, edges: Sequence[EdgePlan]) -> bool:
        """Whether the streams that these edges feed may take another item."""
        ...

    def stack(self, values: Sequence[Any]) -> Any: ...

    def part(self, value: Any, index: int) -> Any:
        """Slice `index` of a sequence; ABSENT past its end."""
        ...

    def passed(self, walker: W_contra, state: str, key: Vector) -> None:
        """No use here needs this `iteration` state any more."""
        ...
