"""Forwards of one operator over the states of any runs, without an engine; and captures that CPUs can replay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.transfer import StateTransfer


class Forwards:
    """The operator has one paged slot, `kv`."""

    def __init__(self, operator: Operator, pages: int = 120, state: str = "kv") -> None:
        """`state`: the name of the slot's state."""
        self.operator, self._state = operator, state
        pool = Pool(operator.caches()["kv"], pages, torch.device("cpu"))
        self.states = StateTable(KVPools({state: pool}, prefix_cache=True), AttentionBackends())

    def __call__(self, *calls: Call) -> list[Outputs]:
        transaction = self.states.transaction(self.operator)
        try:
            with torch.inference_mode():
                given = self.operator.forward(calls, transaction)
        except Exception:
            transaction.rollback()
            raise
        self.states.confirm(transaction.settle())
        self.states.audit()
        return given

    def kept(self, run: str) -> tuple[list[list[int]], Tensor]:
        """Counters, and the keys and values, of a run's sequences."""
        exported = StateTransfer(self.states).export(StateKey(run, self._state))
        return exported["counters"].tolist(), exported["kv.0"]


class Replays:
    """Captures that are run as a device does before they are replayed, and how many rows each replay had room for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, work: Callable[[], None], what: str) -> Callable[[], None]:
        size = int(what.split()[-2])
        work()

        def replay() -> None:
            self.sizes.append(size)
            work()

        return replay
