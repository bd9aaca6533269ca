"""A mixture of experts with one more MLP that computes every row, times a gate of its own.

Parameter names are the public checkpoint's: `shared_expert` is that MLP, `shared_expert_gate` its gate.

Shape letters: R rows, B rows of a step, W model width, F hidden width of the shared MLP.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.checkpoints.sharding.experts import HeldExperts
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.layers.norm.rms_norm import RMSNorm


class SharedExpertMLP(SparseMLP):
    def __init__(self, width: int, sizes: ExpertSizes, held: HeldExperts | None = None) -> None:
        super().__init__(width, sizes, held)
        self.shared_expert = SwiGLU(width, sizes.shared)
        self.shared_expert_gate = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Many rows x `[R, W]`, normed -> `[R, W]`."""
        return self.chosen(x) + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        """Few rows x `[B, W]`, not yet normed -> `[B, W]`, with the residual added if given. Needs `pack`."""
        shared = self.shared_expert
        if shared.gate_up is None:
            raise RuntimeError(UNPACKED)
        inner = linear(x, shared.gate_up.weight, norm=norm.weight, eps=norm.eps, gated=True)
        # The gate scales the narrower rows, and the experts' sum adds these rows as it adds any residual.
        inner = gated_rows(inner, x, self.shared_expert_gate.weight, norm.weight, norm.eps)
        return super().step(x, norm, linear(inner, shared.down_proj.weight, residual=residual))

    def pack(self) -> None:
        """Lay the experts' weights one after the other, and the shared MLP's side by side; this freezes them."""
        super().pack()
        self.shared_expert.pack()


def gated_rows(inner: Tensor, x: Tensor, gate: Tensor, norm: Tensor, eps: float) -> Tensor:
    """inner `[R, F]`, x `[R, W]`, not yet normed, gate `[1, W]`, norm `[W]` -> inner * sigmoid(norm(x) @ gate.T)."""
    if x.is_cuda:
        from walkgraph.layers.kernels import shared_gate as kernels

        return kernels.gated_rows(inner, x, gate, norm, eps)
    share = (F.rms_norm(x.float(), (x.shape[1],), norm.float(), eps) * gate.float()).sum(1, keepdim=True)
    return (inner.float() * share.sigmoid()).to(inner.dtype)
