"""Reads the figures that operators count on their devices. Nothing waits for a device: they come one reading later."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.device.cuda_streams import HostCopies
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.body import Loaded
from walkgraph.layers.tally import Tallied
from walkgraph.telemetry.events import NodeFigure


class CountedFigure(NamedTuple):
    nodes: tuple[str, ...]
    """Nodes that share the operator."""
    name: str
    tally: Tensor


class FigureReading(NamedTuple):
    """Tallies on their way to the host."""

    figures: Sequence[CountedFigure]
    counted: Tensor
    """int64 `[figures, 3]`"""
    mark: Mark | None


class FigureReader:
    """The figures of the operators on one rank."""

    def __init__(self, nodes: Mapping[str, Loaded], copies: Callable[[torch.device], HostCopies] = HostCopies) -> None:
        """`nodes`: filled when the rank has loaded. `copies`: makes the copies of a device."""
        self._nodes, self._copies = nodes, cache(copies)
        self._asked: dict[torch.device, FigureReading] = {}

    def read(self) -> tuple[NodeFigure, ...]:
        """Return the figures of the last reading that has come back, and ask for the next one."""
        found: list[NodeFigure] = []
        for device, figures in self._figures().items():
            asked = self._asked.get(device)
            if asked is not None and asked.mark is not None and not asked.mark.query():
                continue
            found += [] if asked is None else _figures(asked)
            reading = self._asked[device] = self._ask(device, figures)
            if reading.mark is None:
                # It is done already.
                found += _figures(self._asked.pop(device))
        return tuple(found)

    def clear(self) -> None:
        """Forget what was counted so far, by a warm-up or while nobody read it."""
        self._asked.clear()
        with torch.inference_mode():
            for figures in self._figures().values():
                for one in figures:
                    one.tally.zero_()

    def _ask(self, device: torch.device, figures: Sequence[CountedFigure]) -> FigureReading:
        copies = self._copies(device)
        with torch.inference_mode():
            counted = copies.to_host(torch.stack([one.tally for one in figures]))
            # Behind the copy above and before the next launch, so that nothing is counted twice or missed.
            for one in figures:
                one.tally.zero_()
        return FigureReading(figures, counted, copies.mark())

    def _figures(self) -> dict[torch.device, list[CountedFigure]]:
        """By device."""
        nodes: dict[int, list[str]] = {}
        for name, loaded in self._nodes.items():
            nodes.setdefault(loaded.index, []).append(name)
        found: dict[torch.device, list[CountedFigure]] = {}
        for names in nodes.values():
            loaded = self._nodes[names[0]]
            for name, tally in loaded.operator.figures().items():
                found.setdefault(loaded.device, []).append(CountedFigure(tuple(names), name, tally))
        return found


def _figures(reading: FigureReading) -> list[NodeFigure]:
    rows = [Tallied(*numbers) for numbers in reading.counted.tolist()]
    return [
        NodeFigure(nodes=one.nodes, name=one.name, **row._asdict())
        for one, row in zip(reading.figures, rows, strict=True)
        if row.count
    ]
