"""Short texts through the captured form, against the plain forward of the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support.forwards import Forwards, Replays
from tests.unit.engine.plans import call
from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.abi.operator import Capture
from walkgraph.abi.states import CausalRows, Segment
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.prompts.captured_prompts import CapturedPrompts, PromptAnswers
from walkgraph.architectures.prompts.paged_prompts import PAGES, PagedPrompts
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import TEXT_SIZES, TEXTS, Backbone
from walkgraph.models.bagel.presets import BAGEL

CONFIG = BAGEL["bagel-tiny"]
CPU = torch.device("cpu")


class Here(Forwards):
    """The backbone, and the states of any runs."""

    def __init__(self, model: Bagel, capture: Capture | None) -> None:
        super().__init__(Backbone(model, CPU, torch.float32, capture))

    def fed(self, values: Mapping[str, Tensor], port: str = "ids") -> list[int]:
        """One forward over a value for each run; its tokens, for text."""
        calls = [
            call("llm", {port: value}, run=run, states={"kv": "kv"}, temperature=0.0, top_k=0, top_p=1.0)
            for run, value in values.items()
        ]
        return [int(one["token"]) for one in self(*calls) if "token" in one]

    def fork(self, source: str, target: str) -> None:
        self.states.fork(StateKey(source, "kv"), StateKey(target, "kv"))


class Both:
    """Every call by a plain forward, and by one that is captured; what they answer and keep must agree."""

    def __init__(self) -> None:
        model = drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).pack()
        self.replays = Replays()
        self.plain, self.fast = Here(model, None), Here(model, self.replays)

    def fed(self, values: Mapping[str, Tensor], port: str = "ids") -> None:
        assert self.fast.fed(values, port) == self.plain.fed(values, port)
        for run in values:
            self.agree(run)

    def agree(self, run: str) -> None:
        (counters, found), (wanted_counters, wanted) = self.fast.kept(run), self.plain.kept(run)
        assert counters == wanted_counters
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    def fork(self, source: str, target: str) -> None:
        self.plain.fork(source, target)
        self.fast.fork(source, target)


@pytest.fixture
def both() -> Both:
    return Both()


@pytest.fixture(autouse=True)
def _inference() -> object:
    with torch.inference_mode():
        yield


def text(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 250, (count,), generator=torch.Generator().manual_seed(100 * count + seed))


def picture(count: int) -> Tensor:
    return torch.randn(count, CONFIG.llm.width, generator=torch.Generator().manual_seed(count))


def test_texts_behind_any_contexts_are_read_together(both: Both) -> None:
    both.fed({"a": text(1), "b": text(18), "c": text(3)})
    # Behind nothing, text, and a picture, of which all tokens have one position.
    both.fed({"a": picture(37), "c": picture(9)}, "image")
    both.fed({"a": text(24), "new": text(5), "b": text(16), "c": text(1)})
    both.fed({"a": text(1, 1), "b": text(2, 1)})
    both.fed({"c": text(90)})
    assert both.replays.sizes == [32, 64, 16, 128]


def test_rows_that_pad_are_nobody_s(both: Both) -> None:
    """A replay of many tokens, then ones of fewer, which leave what that wrote as it is."""
    both.fed({"a": text(15), "b": text(16, 1)})
    for count in (17, 1, 18):
        both.fed({"c": text(count, 2)})
        both.agree("a")
        both.agree("b")
    assert both.replays.sizes == [32, 32, 16, 32]


def test_views_of_one_text_write_pages_of_their_own(both: Both) -> None:
    """A page that is full to its middle is shared until both go on."""
    both.fed({"main": text(PAGE + 5)})
    both.fork("main", "view")
    both.fork("main", "kept")
    both.fed({"main": text(20), "view": text(20)})
    both.fed({"view": text(4, 7)})
    for run in ("main", "view", "kept"):
        both.agree(run)
    assert both.fast.kept("kept")[0] == [[PAGE + 5, PAGE + 5]]


def test_what_others_have_read_is_not_read_again(both: Both) -> None:
    long = text(3 * PAGE + 4)
    both.fed({"a": long})
    both.fed({"b": torch.cat([long[: 3 * PAGE], text(9, 1)]), "c": long})
    both.agree("a")
    assert both.replays.sizes == [64, 16]


def test_a_token_outside_the_vocabulary_leaves_no_trace(both: Both) -> None:
    both.fed({"a": text(7)})
    before = both.fast.kept("a")[1]
    for wrong in (-1, CONFIG.llm.vocab):
        with pytest.raises(CallFailed, match="outside its vocabulary"):
            both.fast.fed({"a": torch.tensor([3, wrong]), "b": text(4)})
        assert torch.equal(both.fast.kept("a")[1], before)
    assert len(both.replays.sizes) == 1
    both.fed({"a": text(5, 1), "b": text(4)})


def test_what_is_long_or_many_is_left_to_a_plain_forward(both: Both) -> None:
    both.fed({"a": text(TEXT_SIZES[-1] + 1)})
    both.fed({str(i): text(2, i) for i in range(TEXTS + 1)})
    assert both.replays.sizes == []
    one = torch.zeros(1, dtype=torch.int64)
    to = CausalRows([], [], one, 0, [1], [PAGES * PAGE], [range(PAGES + 1)])
    read = CapturedPrompts(PagedPrompts(lambda *given: PromptAnswers(), group=1), both.replays)
    assert read.read(one, [0], None) is None
    assert read.read(one, [0], to) is None
    fitting = to._replace(pages=[range(PAGES)])
    assert read.read(one, [0], fitting) is not None
    behind = fitting._replace(slots=one.expand(2048), counts=[2048], before=[8000])
    assert read.read(behind.slots, range(2048), behind) is not None
    many = fitting._replace(slots=one.expand(2400), counts=[1200] * 2, before=[0] * 2, pages=[range(75)] * 2)
    assert read.read(many.slots, range(2400), many) is not None
    assert read.read(many.slots, range(2400), many._replace(counts=[2400], before=[0], pages=[range(150)])) is None


def test_where_causal_rows_go_and_what_they_see(both: Both) -> None:
    here = both.plain
    here.fed({"a": text(PAGE + 3)})
    new = Segment(StateKey("a", "kv"), torch.arange(20), "causal")
    block = Segment(StateKey("b", "kv"), torch.arange(20, 24), "block")
    transaction = here.states.transaction()
    to = transaction.attend([new]).causal()
    assert to is not None
    [pages] = to.pages
    assert len(pages) == 3
    assert (to.counts, to.before, to.spare) == ([20], [PAGE + 3], here.states.pools.by_state["kv"].spare * PAGE)
    at = torch.arange(PAGE + 3, PAGE + 23)
    assert torch.equal(to.slots, torch.tensor(pages)[at // PAGE] * PAGE + at % PAGE)
    transaction.rollback()
    for others in ([block], [new, block], [replace(new, keep=False)]):
        transaction = here.states.transaction()
        assert transaction.attend(others).causal() is None
        transaction.rollback()
