"""Feed-forward blocks."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.linear.int4 import Int4Weight
from walkgraph.layers.linear.packed import UNPACKED, Packable, Packed
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm

Gate = Literal["silu", "gelu_tanh"]


class GatedMLP(Packable):
    """down(opened(gate(x)) * up(x)), without biases."""

    def __init__(self, width: int, hidden: int, gate: Gate) -> None:
        super().__init__()
        self.gate: Gate = gate
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)
        self.gate_up: Packed | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x `[..., W]` -> `[..., W]`."""
        if self.gate_up is None:
            gate, up = self.gate_proj(x), self.up_proj(x)
        else:
            gate, up = F.linear(x, self.gate_up.weight).chunk(2, -1)
        return self.down_proj(_opened(gate, self.gate) * up)

    def pack(self) -> None:
        """Lay gate and up side by side, so that one product reads them; this freezes them."""
        self.gate_up = Packed.of(self.gate_proj, self.up_proj)

    @property
    def is_packed(self) -> bool:
        return self.gate_up is not None


class SwiGLU(GatedMLP):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden, "silu")

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        """Few rows x `[B, W]`, not yet normed -> `[B, W]`, with the residual added if given. Needs `pack`."""
        if self.gate_up is None:
            raise RuntimeError(UNPACKED)
        inner = linear(x, self.gate_up.weight, norm=norm.weight, eps=norm.eps, gated=True)
        return linear(inner, self.down_proj.weight, residual=residual)

    def opened(self, x: Tensor) -> Tensor:
        """Many rows x `[R, W]`, contiguous and normed, without a gradient -> the input of `down_proj`. Needs `pack`."""
        if self.gate_up is None:
            raise RuntimeError(UNPACKED)
        return gated_product(x, self.gate_up.weight)


class GeGLU(GatedMLP):
    """Uses the tanh form of gelu."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden, "gelu_tanh")


def gated(gate_up: Tensor, gate: Gate = "silu") -> Tensor:
    """Many rows `[R, 2F]`, contiguous, gate columns first, without a gradient -> silu(gate) * up `[R, F]`, or with the
    tanh form of gelu, rounded once."""
    if gate_up.is_cuda:
        from walkgraph.layers.kernels.gated import gated_rows

        return gated_rows(gate_up, gelu=gate == "gelu_tanh")
    gates, up = gate_up.float().chunk(2, -1)
    return (_opened(gates, gate) * up).to(gate_up.dtype)


def gated_product(x: Tensor, weight: Tensor, gate: Gate = "silu") -> Tensor:
    """Many rows x `[R, W]` contiguous, weight `[2F, W]`, gate rows first, which may be in four bits, without a gradient
    -> silu(x @ gate.T) * (x @ up.T) `[R, F]`, or with the tanh form of gelu."""
    if isinstance(weight, Int4Weight) and gate == "silu":
        return linear(x, weight, gated=True)
    if x.is_cuda and not isinstance(weight, Int4Weight):
        from walkgraph.layers.kernels.gate_up import gate_up, programs_of, unfit

        programs = programs_of(x.device)
        if programs and unfit(x, weight) is None:
            return gate_up(x, weight, programs, gelu=gate == "gelu_tanh")
    return gated(F.linear(x, weight), gate)


class GeluMLP(nn.Module):
    """fc2(gelu(fc1(x))) with the tanh approximation."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        """x `[..., width]` -> `[..., out]`."""
        fc1 = self.fc1
        if x.is_cuda and x.dim() == 2 and not torch.is_grad_enabled():
            # The library's product includes the activation, which would otherwise read and write the result again.
            return self.fc2(torch._addmm_activation(fc1.bias, x, fc1.weight.t(), use_gelu=True))
        return self.fc2(F.gelu(fc1(x), approximate="tanh"))


def _opened(gates: Tensor, gate: Gate) -> Tensor:
    return F.silu(gates) if gate == "silu" else F.gelu(gates, approximate="tanh")
