"""Shapes of values in a worker: stacking adds an axis, joining a chunk doesn't, whatever the lengths are."""

import torch

from walkgraph.worker.events import ABSENT
from walkgraph.worker.walk.shaping import gather, join, part, stack, together


def test_a_chunk_joins_its_items_along_the_first_axis() -> None:
    assert join([torch.tensor([1]), torch.tensor([2])]).tolist() == [1, 2]
    assert join([torch.zeros(5, 3)]).shape == (5, 3)
    assert join([torch.zeros(5, 3), torch.zeros(5, 3)]).shape == (10, 3)
    assert join([torch.zeros(5, 3), torch.zeros(2, 3)]).shape == (7, 3)


def test_a_chunk_of_single_numbers_gets_an_axis() -> None:
    assert join([1, 2, 3]).tolist() == [1, 2, 3]
    assert join([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]


def test_a_chunk_of_nothing_is_absent() -> None:
    assert join([]) is ABSENT
    assert join(["a", "", "b"]) == "ab"


def test_collecting_adds_an_axis_that_slicing_takes_away() -> None:
    values = [torch.tensor([1]), torch.tensor([2])]
    stacked = stack(values)
    assert stacked.shape == (2, 1)
    assert [part(stacked, i).tolist() for i in range(2)] == [[1], [2]]
    assert part(stacked, 2) is ABSENT


def test_each_way_to_gather() -> None:
    values = [torch.zeros(1, 2), torch.zeros(1, 2)]
    assert gather(values, "stack").shape == (2, 1, 2)
    assert gather(values, "join").shape == (2, 2)
    assert gather(values, "list") == values
    assert gather(["a", "b"], "stack") == gather(["a", "b"], "join") == "ab"
    assert gather(["a", "b"], "list") == ["a", "b"]
    assert gather([torch.zeros(1), torch.zeros(2, 2)], "list")[1].shape == (2, 2), "whatever their shapes"
    assert gather([b"png", b"jpeg"], "stack") == [b"png", b"jpeg"], "media are no tensors"


def test_items_of_a_message_are_one_tensor_or_a_list() -> None:
    frames = [torch.tensor([1, 2]), torch.tensor([3, 4])]
    assert torch.equal(together(frames), torch.tensor([[1, 2], [3, 4]]))
    assert together((1, "a")) == [1, "a"]


def test_a_chunk_of_one_item_is_that_item() -> None:
    assert join([torch.tensor([1, 2])]).tolist() == [1, 2]
    assert join([torch.tensor(3)]).tolist() == [3], "a number gets an axis"
