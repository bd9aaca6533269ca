"""Contexts of ZeroMQ for tests: sockets live until their context is closed, whoever refers to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from walkgraph.wire import sockets
from walkgraph.wire.processes.host_network import Keys


class KeepingContext(sockets.DeploymentContext):
    kept: list[sockets.Socket]

    def socket(self, *given: Any, **how: Any) -> Any:
        made = super().socket(*given, **how)
        self.kept.append(made)
        return made


@contextmanager
def contexts(*keys: Keys | None) -> Iterator[list[sockets.Context]]:
    """One for each deployment's keys; None: it has none."""
    made: list[sockets.Context] = []
    try:
        for own in keys:
            context = KeepingContext()
            context.kept = []
            made.append(context)
            if own is not None:
                context.admit(own)
        yield made
    finally:
        for context in reversed(made):
            context.destroy(linger=0)
