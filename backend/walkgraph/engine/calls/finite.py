"""Checks that the outputs of a batch are finite, without waiting for the device."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Outputs
from walkgraph.engine.device.cuda_streams import HostCopies


class FiniteCheck:
    """Finds NaN and infinity in outputs: one reduction per tensor, one read per GPU."""

    def __init__(
        self, outputs: Sequence[Outputs], copies: HostCopies, on_host: Mapping[int, str] | None = None
    ) -> None:
        """`on_host`: `bad_on_host` of the outputs, if a thread has looked for it."""
        self._bad = dict(bad_on_host(outputs) if on_host is None else on_host)
        self._flags: list[tuple[list[tuple[int, str]], Tensor]] = []
        """(call, port) of each tensor checked, and a bool tensor with an entry for each: true if it is finite."""
        flags: dict[torch.device, list[_Found]] = {}
        totals: dict[torch.device, list[_Found]] = {}
        for index, ports in enumerate(outputs):
            for port, value in ports.items():
                if isinstance(value, Tensor):
                    if port == FINITE:
                        flags.setdefault(value.device, []).append((index, min(ports.keys() - {FINITE}), value))
                    elif value.is_floating_point() and value.device.type != "cpu":
                        totals.setdefault(value.device, []).append((index, port, _total(value)))
        for found in flags.values():
            # Stacked even if it is one: an operator may write to its own flag again.
            self._read(found, torch.stack([flag for _, _, flag in found]), copies)
        for found in totals.values():
            sums = [total for _, _, total in found]
            self._read(found, (torch.stack(sums) if len(sums) > 1 else sums[0].view(1)).isfinite(), copies)

    def _read(self, found: "list[_Found]", flags: Tensor, copies: HostCopies) -> None:
        self._flags.append(([(index, port) for index, port, _ in found], copies.to_host(flags)))

    def port(self, index: int) -> str | None:
        """The first port of a call with NaN or infinity, or None. Reads the flags that came back."""
        for places, flags in self._flags:
            for (call, port), sound in zip(places, flags.tolist(), strict=True):
                if not sound:
                    self._bad.setdefault(call, port)
        self._flags.clear()
        return self._bad.get(index)


def bad_on_host(outputs: Sequence[Outputs]) -> dict[int, str]:
    """The first port of each call with NaN or infinity in host memory."""
    found: dict[int, str] = {}
    for index, ports in enumerate(outputs):
        for port, value in ports.items():
            if isinstance(value, Tensor):
                sound = value.device.type != "cpu" or not value.is_floating_point() or _is_finite(value)
            else:
                sound = not isinstance(value, float) or math.isfinite(value)
            if not sound:
                found.setdefault(index, port)
    return found


_Found = tuple[int, str, Tensor]
"""(call, port, a scalar of the port's value)"""


def _total(value: Tensor) -> Tensor:
    """A float64 scalar that is finite if all numbers are: a sum shows any NaN or infinity, and types narrower than
    float64 can't overflow it. x - x is 0 only for finite x."""
    return (value - value if value.dtype == torch.float64 else value).sum(dtype=torch.float64)


def _is_finite(value: Tensor) -> bool:
    """True if all numbers of a tensor in host memory are finite. A sum of its own type is fastest, and shows any NaN
    or infinity; only where it overflows, float64 is needed."""
    return math.isfinite(value.sum()) or math.isfinite(_total(value))


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
