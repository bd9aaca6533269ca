"""Convolutions with snakes behind them against their naive twins in float32.

The interpreter can't multiply matrices of bfloat16, so it multiplies float16.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.support.compiling import Compiler
from walkgraph.layers.kernels import snake_conv as kernels
from walkgraph.layers.sound import snake_conv as layers
from walkgraph.layers.sound.causal_conv import CausalConv, MonoConv, Tails, Upsample, packed
from walkgraph.layers.sound.snake_conv import Onward, Snake, enter, leave, unit, upsample

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels import snake_conv as kernels

FLOATS = "turns", "height", "shift"
SIZES = "length", "in_rows", "room_row", "tail_row", "size", "dilation"


def compiled(kernel, maps, shape, **constants):
    constants |= {"M": shape.rows, "DEPTH": shape.depth, "STAGES": shape.stages, "PDL": True}
    types = dict.fromkeys(SIZES, "i32") | dict.fromkeys(FLOATS, "*fp32")
    types |= {name: f"tensordesc<bf16{size}>" for name, size in maps.items()}
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": shape.warps, "num_stages": shape.stages, "launch_pdl": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "wgmma.mma_async" in made.asm["ptx"], "no tensor cores"
    assert "cp.async.bulk.tensor" in made.asm["ptx"], "no tensor maps"
    print(kernel.__name__)


shape = kernels.shape_of(999, 768, 384, 2, up=True)
assert shape.columns == 256
maps, flags = {"rows": [128, 64], "weights": [64, 256]}, {"UP": True, "RESIDUAL": False, "KEEP": True, "SNAKE": True}
compiled(kernels.conv_kernel, maps, shape, C=384, N=768, WIDTH=192, TAPS=2, COLUMNS=256, **flags)

kernel, types = kernels.mono_kernel, {"made": "*fp32", "length": "i32", "in_rows": "i32"}
constants = {"C": 96, "WIDTH": 128, "TAPS": 7, "M": 64, "MADE": 58, "PDL": True}
signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "launch_pdl": True})
print(kernel.__name__)
"""


class Stage(nn.Module):
    """The vocoder's stages: an entry, upsampling, units and an end."""

    def __init__(self, into: int, channels: int, rate: int, dilation: int) -> None:
        super().__init__()
        self.entry, self.rise = CausalConv(32, into, 3), Upsample(into, channels, rate, 2)
        self.snakes = nn.ModuleList([Snake(into), *(Snake(channels) for _ in range(4)), Snake(channels)])
        self.firsts = nn.ModuleList(CausalConv(channels, channels, 7, dilation=dilation) for _ in range(2))
        self.seconds = nn.ModuleList(CausalConv(channels, channels, 1) for _ in range(2))
        self.exit_ = MonoConv(channels, 7)

    def forward(self, x: Tensor, tails: Tails, *, first: bool) -> Tensor:
        begin, one, between_one, two, between_two, last = self.snakes
        room = enter(self.entry, tails.behind(x, self.entry.places), Onward(begin, self.entry.bias, self.rise, tails))
        shift = self.rise.bias
        x, room = upsample(self.rise, room[:, 1:] if first else room, Onward(one, shift, self.firsts[0], tails))
        shift = shift + self.seconds[0].bias
        onward = Onward(two, shift, self.firsts[1], tails)
        room = unit(self.firsts[0], between_one, self.seconds[0], room, x, onward, keep=True)
        onward = Onward(last, shift + self.seconds[1].bias, self.exit_, tails)
        return leave(self.exit_, unit(self.firsts[1], between_two, self.seconds[1], room, x, onward, keep=False))

    def tails(self) -> int:
        parts = (part for part in self.modules() if isinstance(part, CausalConv | MonoConv | Upsample))
        return sum(part.places * part.conv.in_channels for part in parts)


@pytest.fixture
def dtype(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float16


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The kernels serve halves on a CPU too; float32 stays with the twins."""

    def found(x: Tensor, columns: int = 32) -> object:
        return kernels if x.dtype == torch.float16 else None

    if device == "cpu":
        monkeypatch.setattr(layers, "_kernels", found)


def stage(into: int, channels: int, rate: int, dilation: int) -> Stage:
    torch.manual_seed(channels)
    made = Stage(into, channels, rate, dilation).requires_grad_(False)
    for module in made.modules():
        if isinstance(module, Snake):
            module.alpha.normal_(-0.5, 0.3)
            module.beta.normal_(0.0, 0.3)
    return made


def heard(model: Stage, x: Tensor, cuts: tuple[int, ...]) -> Tensor:
    """x `[B, T, 32]` in chunks."""
    rest, parts = x.new_zeros(len(x), model.tails()), list[Tensor]()
    with torch.inference_mode():
        for start, stop in pairwise((0, *cuts, x.shape[1])):
            tails = Tails(rest)
            parts.append(model(x[:, start:stop], tails, first=start == 0))
            rest = tails.after
    return torch.cat(parts, 1)


CASES = [(64, 96, 3, 9), (32, 192, 4, 1), (64, 64, 5, 3)]


@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize(("into", "channels", "rate", "dilation"), CASES)
def test_a_stage_in_halves_is_near_its_twin_in_float32_and_alike_in_any_cut(
    into: int, channels: int, rate: int, dilation: int, dtype: torch.dtype, device: str
) -> None:
    rounded = stage(into, channels, rate, dilation).to(dtype)
    exact = deepcopy(rounded).float()
    packed(exact)
    rounded.to(device)
    packed(rounded)
    x = torch.randn(2, 30, 32).to(dtype)
    wanted = heard(exact, x.float(), ())
    whole = heard(rounded, x.to(device), ()).cpu()
    assert whole.dtype == torch.float32
    off = float((whole - wanted).norm() / wanted.norm())
    assert off < (0.03 if dtype == torch.bfloat16 else 0.004), off
    # One chunk is shorter than the tails.
    for cut, among in (((4, 5, 20), slice(0, 2)), ((17,), slice(1, 2))):
        found, same = heard(rounded, x[among].to(device), cut).cpu(), whole[among]
        if device == "cpu":
            # Interpreted products are NumPy's, whose sums depend on a row's place on some processors.
            assert float((found - same).norm() / same.norm()) < (0.01 if dtype == torch.bfloat16 else 0.0015)
        else:
            assert torch.equal(found, same)


@pytest.mark.xdist_group("kernels/compiled")
def test_the_kernels_compile_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(COMPILES).split() == ["conv_kernel", "mono_kernel"]
