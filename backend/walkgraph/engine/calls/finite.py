"""Checks that the outputs of a batch are finite, without waiting for the device."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Outputs
from walkgraph.engine.device.cuda_streams import HostCopies


class FiniteCheck:
    """Finds NaN and infinity in outputs: one small reduction per tensor, one read per device."""

    def __init__(self, outputs: Sequence[Outputs], copies: HostCopies) -> None:
        self._bad: dict[int, str] = {}
        self._flags: list[tuple[list[tuple[int, str]], Tensor]] = []
        """(call, port) of each tensor checked, and a bool tensor with an entry for each: true if it is finite."""
        found: dict[torch.device, list[tuple[int, str, Tensor]]] = {}
        for index, ports in enumerate(outputs):
            for port, value in ports.items():
                if port == FINITE and isinstance(value, Tensor):
                    found.setdefault(value.device, []).append((index, min(ports.keys() - {FINITE}), value))
                elif isinstance(value, Tensor) and value.is_floating_point():
                    found.setdefault(value.device, []).append((index, port, _sound(value)))
                elif isinstance(value, float) and not math.isfinite(value):
                    self._bad.setdefault(index, port)
        for here in found.values():
            flags = copies.to_host(torch.stack([flag for _, _, flag in here]))
            self._flags.append(([(index, port) for index, port, _ in here], flags))

    def port(self, index: int) -> str | None:
        """The first port of a call with NaN or infinity, or None. Reads the flags that came back."""
        for places, flags in self._flags:
            for (call, port), sound in zip(places, flags.tolist(), strict=True):
                if not sound:
                    self._bad.setdefault(call, port)
        self._flags.clear()
        return self._bad.get(index)


def _sound(value: Tensor) -> Tensor:
    """True if all numbers are finite, as one bool on the device. A float64 sum shows any NaN or infinity, and narrower
    types can't overflow it."""
    return value.isfinite().all() if value.dtype == torch.float64 else value.sum(dtype=torch.float64).isfinite()


def sound_rows(ports: Iterable[Tensor]) -> Tensor | None:
    """bool `[B]`: true for each row in which all numbers of the float tensors `[B, ...]` are finite. None if no tensor
    is float."""
    found: Tensor | None = None
    for value in ports:
        if value.is_floating_point():
            # x - x is 0 only for finite x; a float64 sum shows the others, as above.
            shown = value - value if value.dtype == torch.float64 else value
            total = shown.flatten(1).sum(1, dtype=torch.float64) if value.dim() > 1 else shown
            sound = total - total == 0
            found = sound if found is None else found & sound
    return found
