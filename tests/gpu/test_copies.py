"""Values that share a copy to or from a device, against a copy of each."""

import pytest
import torch

from walkgraph.engine.device.cuda_streams import HostCopies, SettledCopies, put_rows, sent, sent_together

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DTYPES = (torch.int64, torch.bool, torch.float32, torch.bfloat16)
SHAPES = ((), (1,), (3,), (2, 5), (0,), (700, 700))


def values(device: str) -> list[torch.Tensor]:
    dice = torch.Generator().manual_seed(0)
    return [torch.randint(0, 2, shape, generator=dice).to(device, dtype) for dtype in DTYPES for shape in SHAPES]


def test_values_are_sent_together() -> None:
    given = [*values("cpu"), torch.ones(3, device="cuda"), torch.arange(5).expand(2, 5)]
    for one, copy in zip(given, sent_together(given, torch.device("cuda")), strict=True):
        assert copy.is_cuda
        assert copy.dtype == one.dtype
        assert torch.equal(copy.cpu(), one.cpu())
        assert copy.data_ptr() % 16 == 0


def test_values_come_back_together() -> None:
    copies = HostCopies(torch.device("cuda", 0))
    given = [(one, "float16" if at % 2 else None) for at, one in enumerate(values("cuda"))]
    found = copies.all_to_host([*given, ("text", None), (torch.ones(2), None)])
    mark = copies.mark()
    assert mark is not None
    mark.wait()
    for (one, dtype), copy in zip(given, found, strict=False):
        wanted = one.half() if dtype and one.is_floating_point() else one
        assert copy.device.type == "cpu"
        assert (copy.dtype, copy.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(copy, wanted.cpu())
    assert found[-2] == "text"
    assert torch.equal(found[-1], torch.ones(2))


def test_pictures_come_in_the_order_of_their_axes_however_they_lie_on_the_host() -> None:
    cuda = torch.device("cuda")
    pictures = [torch.rand(5, 6, 3).movedim(-1, 0) for _ in range(2)]
    expanded = torch.rand(1, 4).expand(3, 4)
    for value in (*pictures, pictures[0].contiguous(), expanded, pictures[0][:, 1:3]):
        copy = sent(value, cuda)
        assert copy.is_contiguous()
        assert torch.equal(copy.cpu(), value)
    target = torch.zeros(3, 3, 5, 6, device=cuda)
    put_rows(target, pictures)
    assert torch.equal(target[:2].cpu(), torch.stack(pictures))


@pytest.mark.parametrize("count", [3, 1 << 20])
def test_what_is_settled_is_copied_before_what_is_queued(count: int) -> None:
    copies, later = SettledCopies(torch.device("cuda", 0)), torch.cuda.Event()
    given = torch.arange(count, device="cuda", dtype=torch.float32)
    # The first use of a kernel waits for the device, to load it.
    copies.to_host(given, "bfloat16")
    copies.mark()
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 31)
    later.record()
    copy = copies.to_host(given, "bfloat16")
    given.zero_()
    mark = copies.mark()
    assert (mark is None) == (count == 3), "few bytes are there at once"
    if mark is not None:
        mark.synchronize()
    assert not later.query(), "this is to last longer than the copy"
    assert torch.equal(copy, torch.arange(count, dtype=torch.float32).bfloat16())
    torch.cuda.synchronize()
    assert torch.equal(given, torch.zeros_like(given))
    assert copies.mark() is None
