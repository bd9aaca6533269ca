from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.compiling import Compiler
from walkgraph.layers.kernels.snake import place_noise, snake, snake_beta
from walkgraph.layers.sound import snake as twin

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.snake import snake_beta_kernel as kernel

for biased in True, False:
    constants = {"BIAS": biased, "ROWS": 32, "COLUMNS": 64}
    types = dict.fromkeys(("x", "alpha", "beta", "made"), "*bf16") | {"bias": "*fp32"}
    types |= dict.fromkeys(("x_row", "made_row", "places", "channels"), "i32")
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(biased)
"""


@pytest.mark.parametrize("places", [1, 57, 1100])
@pytest.mark.parametrize("given", [(), ("add",), ("add", "bias"), ("add", "scale"), ("add", "bias", "scale")])
def test_sums_and_their_snakes_of_cut_places(places: int, given: tuple[str, ...], device: str) -> None:
    generator = torch.Generator().manual_seed(places)
    x, add = (torch.randn(2, 3, places + 7, generator=generator)[..., 4:-3] for _ in range(2))
    alpha, bias = (torch.rand(3, generator=generator) + 0.5 for _ in range(2))
    every: dict[str, Tensor] = {"add": add, "bias": bias, "scale": torch.randn(2, places, generator=generator)}
    more = [every[name] if name in given else None for name in every]
    kept, made = snake(x.to(device), alpha.to(device), *(m if m is None else m.to(device) for m in more), keep=True)
    assert kept is not None
    wanted = (x, twin.snake(x, alpha)) if more[0] is None else twin.add_snake(x, alpha, more[0], more[1], more[2])
    torch.testing.assert_close(kept.cpu(), wanted[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(made.cpu(), wanted[1], rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("places", "channels"), [(1, 4), (70, 48), (33, 128)])
@pytest.mark.parametrize("biased", [False, True])
def test_snakes_with_a_height_of_their_own(
    places: int, channels: int, biased: bool, dtype: torch.dtype, device: str
) -> None:
    generator = torch.Generator().manual_seed(places)
    x = torch.randn(3, places + 2, channels, generator=generator).to(dtype)[:, 2:]
    alpha, beta, bias = torch.randn(3, channels, generator=generator).to(dtype)
    wanted = twin.snake_beta(x, alpha, beta, bias if biased else None)
    room = torch.zeros(3, places + 6, channels, dtype=dtype, device=device)
    given = [one.to(device) for one in (alpha, beta)]
    snake_beta(x.to(device), *given, bias.float().to(device) if biased else None, room[:, 6:])
    # The angle's own rounding, some 50 * 2^-24, times a height of up to 15.
    close = {"rtol": 1e-5, "atol": 5e-5} if dtype == torch.float32 else {"rtol": 2**-7, "atol": 1e-5}
    torch.testing.assert_close(room[:, 6:].cpu(), wanted, **close)
    assert not room[:, :6].any()


def test_noise_is_the_twins_to_the_bit(device: str) -> None:
    seed, first = torch.tensor([5, -(2**62) - 9, 1]), torch.tensor([0, 2**40, 77])
    for stage in range(4):
        made = place_noise(seed.to(device), stage, first.to(device), 1100)
        assert torch.equal(made.cpu(), twin.place_noise(seed, stage, first, 1100))


@pytest.mark.xdist_group("kernels/compiled")
def test_snakes_with_a_height_compile_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(COMPILES).split() == ["True", "False"]
