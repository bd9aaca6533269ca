"""The kernel that appends keys and values, against an index copy."""

import torch

from walkgraph.layers.kernels.append import append

torch.set_num_threads(1)


def test_rows_go_to_their_slots_and_nothing_else_is_written(device: str) -> None:
    torch.manual_seed(0)
    # Views of one projection, as a fused one gives them: rows are not next to each other.
    projected = torch.randn(5, 8, 12, device=device)
    k, v = projected[:, 2:5], projected[:, 5:8]
    slot_k, slot_v = torch.randn(2, 20, 3, 12, device=device)
    rows, slots = torch.tensor([[3, 0, 4], [19, 2, 7]], device=device)
    wanted_k, wanted_v = slot_k.index_copy(0, slots, k[rows]), slot_v.index_copy(0, slots, v[rows])
    append(k, v, rows, slot_k, slot_v, slots)
    assert torch.equal(slot_k, wanted_k)
    assert torch.equal(slot_v, wanted_v)
