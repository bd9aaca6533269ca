"""The end of a flow step in one launch, against its plain form."""

import pytest
import torch

from walkgraph.layers.flow.flow_end import end
from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead


@pytest.mark.parametrize(
    ("blocks", "tokens", "width", "numbers", "dtype"),
    [(2, 3, 1024, 32, torch.bfloat16), (1, 5, 24, 7, torch.float32), (3, 1, 300, 1, torch.float16)],
)
def test_a_step_ends_as_plainly(
    blocks: int, tokens: int, width: int, numbers: int, dtype: torch.dtype, device: str
) -> None:
    from walkgraph.layers.kernels.flow_end import launch

    dice = torch.Generator().manual_seed(width)
    x = (3 * torch.randn(blocks * tokens, width, generator=dice)).to(dtype)
    # Parts of a table: their rows are apart.
    table = torch.randn(blocks, 3 * width, generator=dice)
    weight, bias = torch.randn(numbers, width, generator=dice) / width**0.5, torch.randn(numbers, generator=dice)
    last = VelocityHead(table[:, width : 2 * width], table[:, 2 * width :], 1e-3, weight, bias)
    actions = torch.randn(blocks, tokens, numbers, generator=dice)
    # Columns of one table, as numbers that differ by iteration are given.
    way = FlowInterval(*torch.rand(blocks, 3, generator=dice).to(device)[:, 1:].unbind(1))
    wanted = end(x.float(), last, actions, FlowInterval(*(part.cpu() for part in way)))
    there = VelocityHead(*(part.to(device) if isinstance(part, torch.Tensor) else part for part in last))
    found = launch(x.to(device), there, actions.to(device), way).cpu()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (found - actions).abs().min() > 0
    with pytest.raises(ValueError, match="float32"):
        launch(x.to(device), there._replace(weight=weight.half().to(device)), actions.to(device), way)
