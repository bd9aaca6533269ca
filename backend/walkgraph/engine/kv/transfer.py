"""Copies states within a rank, to other ranks and from them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.paged_state import CONTENTS, PagedSequence, PagedState
from walkgraph.engine.kv.pool import slots_of
from walkgraph.engine.kv.states import StateTable


class StateTransfer:
    def __init__(self, states: StateTable, copied: Callable[[], object] = lambda: None) -> None:
        """`copied`: called after copies are launched. It marks their end, so that no compute is charged for their
        time."""
        self._states, self._copied = states, copied

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Replace `target` by a copy-on-write copy. `width`: sequences of the target, if it is wider than the
        source."""
        self._states.fork(source, target, width)
        self._copied()

    def export(self, key: StateKey) -> dict[str, Tensor]:
        """Copy a state for another rank's `import_state`; empty if the state holds nothing yet.

        A paged state gives `counters`, float64 `[width, 2]` (length, position), and per sequence `kv.<i>`
        `[2, N, length, G, D]` and, for each output that its cache shape names, `<output>.<i>` `[length, W]`; any other
        gives `tensor`.
        """
        self._states.before_use((key,))
        with torch.inference_mode():
            found = self._exported(key)
        self._copied()
        return found

    def import_state(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        """Replace `key` by what `export` gave. Raises `OutOfPages` (`out_of_memory`). If it raises, `key` is
        unchanged."""
        with torch.inference_mode():
            if "counters" in value:
                self._import_paged(key, value)
            else:
                self._states.drop((key,))
                if value:
                    self._states.set(key, value["tensor"])
        self._copied()

    def _exported(self, key: StateKey) -> dict[str, Tensor]:
        state = self._states.paged.get(key)
        if state is not None:
            counters = torch.tensor([[one.length, one.place] for one in state.sequences], dtype=torch.float64)
            kept = {f"kv.{i}": state.pool.read(one.pages, one.length) for i, one in enumerate(state.sequences)}
            for i, one in enumerate(state.sequences) if state.pool.outputs else ():
                slots = slots_of(one.pages, 0, one.length, state.pool.device)
                kept |= {f"{name}.{i}": rows[slots] for name, rows in state.pool.outputs.items()}
            return {"counters": counters, **kept}
        tensor = self._states.tensors.get(key)
        return {} if tensor is None else {"tensor": tensor}

    def _import_paged(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        pool = self._states.pools.of(key)
        counters = [(int(length), place) for length, place in value["counters"].tolist()]
        taken = pool.pages.take(sum(pages_for(length) for length, _ in counters))
        pages = iter(taken)
        sequences: list[PagedSequence] = []
        try:
            for index, (length, place) in enumerate(counters):
                mine = [next(pages) for _ in range(pages_for(length))]
                sequences.append(PagedSequence(mine, length, content=next(CONTENTS)))
                sequences[-1].move(place)
                pool.write(mine, value[f"kv.{index}"])
                slots = slots_of(mine, 0, length, pool.device)
                for name, rows in pool.outputs.items():
                    rows[slots] = value[f"{name}.{index}"].to(rows)
        except Exception:
            pool.pages.release(taken)
            raise
        self._states.drop((key,))
        self._states.adopt(key, PagedState(pool, sequences))
