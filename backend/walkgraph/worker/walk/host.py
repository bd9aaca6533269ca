"""The interface of a run, as its walkers use it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import ChoicePlan, EdgePlan, Gather, Scalar
from walkgraph.worker.tables.walk_tables import UseTable
from walkgraph.worker.walk.cursor import Vector

W_contra = TypeVar("W_contra", contravariant=True)
"""The walker."""


class Host(Protocol[W_contra]):
    """The run, as far as its walkers need it."""

    @property
    def params(self) -> Mapping[str, Scalar]: ...

    def call(
        self, walker: W_contra, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> None:
        """Make a call whose inputs are complete. `Walker.finish` takes its outputs."""
        ...

    def release(self, walker: W_contra, edge: EdgePlan, key: Vector, value: Any) -> None:
        """Take a value that leaves this walker: for a peer, the client, a result or a stream."""
        ...

    def passing(self, walker: W_contra, edge: EdgePlan, key: Vector, value: Any) -> None:
        """Take note of a value on an edge that is probed."""
        ...

    def judged(self, walker: W_contra, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Send a verdict to the other ranks of the loop."""
        ...

    def chosen(self, walker: W_contra, choice: ChoicePlan, key: Vector, branch: int) -> None:
        """Send the verdict of a choice to the other ranks with uses in its branches."""
        ...

    def count(self, walker: W_contra, head: UseTable, at: Vector, value: Any) -> int | None:
        """The number of a map's items; None, and the run fails, if there are more than its bound."""
        ...

    def counted(self, walker: W_contra, loop: int, key: Vector, items: int) -> None:
        """Send the number of a map's items to the other ranks with uses in it."""
        ...

    def item_done(self, walker: W_contra, loop: int, key: Vector) -> None:
        """Tell the other ranks of a map that an item is done here."""
        ...

    def text(self, value: Any) -> str | None:
        """A flag, a number or a text as a case names it; None for any other value."""
        ...

    def chunk(self, walker: W_contra, use: int, stream: int, key: Vector) -> tuple[Any, ChunkInfo] | None:
        """The stream's chunk for this place; the first request for a place takes the next chunk. None: not there
        yet."""
        ...

    def credit(self, edges: Sequence[EdgePlan]) -> bool:
        """True if the streams that these edges feed may take another item."""
        ...

    def gather(self, values: Sequence[Any], how: Gather) -> Any:
        """Make one value of those that a loop collected."""
        ...

    def part(self, value: Any, index: int) -> Any:
        """Slice `index` of a sequence; ABSENT past its end."""
        ...

    def passed(self, walker: W_contra, state: str, key: Vector) -> None:
        """Note that no use here needs this `iteration` state any more."""
        ...
