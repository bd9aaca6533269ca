"""Kept outputs of a simulated process: the real memo, which outlives the plans that it serves."""

from collections.abc import Callable
from zlib import crc32

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.calls.memo import KeptCalls, Memo, Sharing
from walkgraph.engine.loops.body import Loaded
from walkgraph.placement.tables import Plan
from walkgraph.simulation.simulator import Simulator

LIMITS = (3_000, 30_000, 1 << 20)
"""Bytes that a process keeps: those of a few calls, so that others are evicted, or of all."""


class SimulatedMemo:
    """The outputs that a process keeps, and who made them."""

    def __init__(self, simulator: Simulator) -> None:
        self.memo = Memo(simulator.apart.choice(LIMITS))
        self.made_by: dict[bytes, str] = {}
        """Key -> owner of the run whose call was kept under it."""


class SimulatedKeptCalls:
    """The kept calls of one plan. Checks that none is given to another owner unless its node is shared."""

    def __init__(self, simulator: Simulator, kept: SimulatedMemo, plan: Plan, owner: Callable[[str], str]) -> None:
        self._simulator, self._kept, self._owner = simulator, kept, owner
        self._contents = {node.name: f"{node.component} {node.name}" for node in plan.nodes}
        self._sharing: dict[str, Sharing] = {
            node.name: "shared" if crc32(node.name.encode()) % 3 == 0 else "own" for node in plan.nodes
        }
        self._calls = KeptCalls(kept.memo, owner, self._sharing)

    def find(self, loaded: Loaded, call: Call) -> Outputs | None:
        # Simulated nodes read the indices of loops too.
        content = f"{self._contents[call.node]} {call.iteration}"
        found = self._calls.find(loaded._replace(content=content), call)
        if found is None or call.content is None:
            return None
        made_by, owner = self._kept.made_by[call.content], self._owner(call.run)
        self._simulator.counts["kept calls"] += 1
        if self._sharing[call.node] == "own" and made_by != owner:
            raise self._simulator.fail(f"`{call.node}` of `{owner}` gets what is kept for `{made_by}`", call.run)
        return found

    def note(self, call: Call, outputs: Outputs) -> None:
        if call.content is not None:
            new, before = call.content not in self._kept.made_by, len(self._kept.memo)
            self._kept.made_by.setdefault(call.content, self._owner(call.run))
            self._calls.note(call, outputs)
            self._simulator.counts["kept calls evicted"] += new and len(self._kept.memo) <= before
