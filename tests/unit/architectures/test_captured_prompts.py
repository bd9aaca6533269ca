"""Captured forwards of short prompts: a capture that runs the work again, and a form that shows what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from walkgraph.abi.states import CausalRows
from walkgraph.architectures.prompts.captured_prompts import (
    CapturedPrompts,
    Numbers,
    PromptAnswers,
    PromptForm,
    PromptInputs,
    padded,
)

SPARE = 99


class Sums(PromptForm):
    """Answers with the sum of each prompt's rows, and each row doubled; `numbers`: which prompt a row is of."""

    sizes, most, what = (4, 8), 3, "sums of {} rows"

    def fits(self, to: CausalRows) -> bool:
        return not any(to.before)

    def blank(self, size: int) -> Numbers:
        return np.full(size, self.most)

    def numbers(self, size: int, positions: Sequence[float], to: CausalRows) -> Numbers:
        return padded([index for index, count in enumerate(to.counts) for _ in range(count)], size, self.most)

    def read(self, inputs: PromptInputs, to: CausalRows) -> PromptAnswers:
        to.k[0][inputs.slots] = inputs.rows
        sums = torch.zeros(self.most + 1, *inputs.rows.shape[1:], dtype=inputs.rows.dtype)
        sums.index_add_(0, inputs.numbers, inputs.rows)
        return PromptAnswers([sums[: self.most]], [2 * inputs.rows])


class Recording:
    """A capture that runs the work once, and again at every replay, and tells which graphs were replayed."""

    def __init__(self) -> None:
        self.captured: list[str] = []
        self.replayed: list[str] = []

    def __call__(self, work: Callable[[], None], what: str) -> Callable[[], None]:
        self.captured.append(what)
        work()

        def replay() -> None:
            self.replayed.append(what)
            work()

        return replay


def rows_of(counts: Sequence[int]) -> CausalRows:
    slots = torch.arange(10, 10 + sum(counts))
    return CausalRows([torch.zeros(100)], [], slots, SPARE, counts, [0] * len(counts), [[]] * len(counts))


@pytest.fixture
def capture() -> Recording:
    return Recording()


@pytest.mark.parametrize(
    ("counts", "graph"), [([1], 4), ([2, 2], 4), ([4, 1], 8), ([3, 1, 4], 8)], ids=["one", "full", "next", "all"]
)
def test_prompts_are_read_by_the_smallest_graph_that_holds_them(
    capture: Recording, counts: list[int], graph: int
) -> None:
    prompts, to = CapturedPrompts(Sums(), capture), rows_of(counts)
    values = torch.arange(1.0, 1 + sum(counts))
    found = prompts.read(values, range(sum(counts)), to)
    assert found is not None
    assert found.prompts[0].tolist() == [float(mine.sum()) for mine in values.split(counts)]
    assert found.rows[0].tolist() == (2 * values).tolist()
    assert capture.replayed == [f"sums of {graph} rows"]
    assert to.k[0][to.slots].tolist() == values.tolist()


def test_all_graphs_are_captured_at_the_first_prompt_the_largest_first(capture: Recording) -> None:
    prompts = CapturedPrompts(Sums(), capture)
    for counts in ([1], [5], [2]):
        assert prompts.read(torch.ones(sum(counts)), range(sum(counts)), rows_of(counts)) is not None
    assert capture.captured == ["sums of 8 rows", "sums of 4 rows"]
    assert capture.replayed == ["sums of 4 rows", "sums of 8 rows", "sums of 4 rows"]


def test_padding_goes_to_the_spare_slot_and_counts_for_nobody(capture: Recording) -> None:
    prompts = CapturedPrompts(Sums(), capture)
    pool = rows_of([4]).k
    for counts in ([4], [1, 1]):
        to = rows_of(counts)._replace(k=pool)
        found = prompts.read(torch.full((sum(counts),), 7.0), range(sum(counts)), to)
        assert found is not None
        assert found.prompts[0].tolist() == [7.0 * count for count in counts]
    written = pool[0].nonzero().flatten().tolist()
    assert written == [10, 11, 12, 13, SPARE]


def test_what_a_replay_gives_is_not_written_over_by_the_next(capture: Recording) -> None:
    prompts = CapturedPrompts(Sums(), capture)
    first = prompts.read(torch.ones(2), range(2), rows_of([2]))
    prompts.read(torch.full((2,), 5.0), range(2), rows_of([2]))
    assert first is not None
    assert first.prompts[0].tolist() == [2.0]
    assert first.rows[0].tolist() == [2.0, 2.0]


def test_what_no_graph_holds_is_left_to_a_plain_forward(capture: Recording) -> None:
    prompts = CapturedPrompts(Sums(), capture)
    assert prompts.enabled
    assert prompts.read(torch.ones(1), [0], None) is None
    assert prompts.read(torch.ones(9), range(9), rows_of([9])) is None
    assert prompts.read(torch.ones(4), range(4), rows_of([1] * 4)) is None
    assert prompts.read(torch.ones(1), [3], rows_of([1])._replace(before=[3])) is None
    without = CapturedPrompts(Sums(), None)
    assert not without.enabled
    assert without.read(torch.ones(1), [0], rows_of([1])) is None
    assert capture.captured == []


def test_numbers_are_padded() -> None:
    assert padded([1, 2], 4).tolist() == [1, 2, 0, 0]
    assert padded([], 2, -1).tolist() == [-1, -1]
