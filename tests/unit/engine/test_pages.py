from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.engine.kv.allocator import PAGE, OutOfPages, PageAllocator, PageFault, pages_for


def test_tokens_round_up_to_pages() -> None:
    assert [pages_for(n) for n in (0, 1, PAGE, PAGE + 1)] == [0, 1, 1, 2]


def test_page_zero_is_never_handed_out() -> None:
    assert sorted(PageAllocator(5).take(5)) == [1, 2, 3, 4, 5]


def test_too_many_are_refused_and_none_taken() -> None:
    pages = PageAllocator(3)
    pages.take(2)
    with pytest.raises(OutOfPages, match=r"1 free pages and 2 are needed") as raised:
        pages.take(2)
    assert raised.value.info().code == "out_of_memory"
    assert pages.free == 1


def test_the_last_holder_frees() -> None:
    pages = PageAllocator(2)
    [page] = pages.take(1)
    pages.share([page])
    assert pages.shared(page)
    pages.release([page])
    assert (pages.shared(page), pages.free) == (False, 1)
    pages.release([page])
    assert pages.free == 2


@pytest.mark.parametrize("page", [0, 1, 3, -1])
def test_a_page_nobody_holds_is_a_fault(page: int) -> None:
    pages = PageAllocator(2)
    for verb in (pages.release, pages.share):
        with pytest.raises(PageFault):
            verb([page])
    with pytest.raises(PageFault):
        pages.shared(page)


def test_an_audit_finds_what_is_lost_and_what_is_held_twice() -> None:
    pages = PageAllocator(4)
    held = pages.take(2)
    pages.audit([held])
    for wrong in ([], [held[:1]], [held, held]):
        with pytest.raises(PageFault):
            pages.audit(wrong)
    with pytest.raises(PageFault):
        PageAllocator(0)


@given(st.lists(st.tuples(st.sampled_from(["take", "share", "drop", "keep"]), st.integers(0, 6)), max_size=60))
@settings(max_examples=60)
def test_every_page_is_free_or_held_whatever_happens(moves: list[tuple[str, int]]) -> None:
    pages, lists = PageAllocator(12), list[list[int]]()
    for move, n in moves:
        if move == "take":
            if n <= pages.free:
                lists.append(pages.take(n))
            else:
                with pytest.raises(OutOfPages):
                    pages.take(n)
        elif lists and move == "share":
            lists.append(list(lists[n % len(lists)]))
            pages.share(lists[-1])
        elif lists and move == "keep":
            for page in {*lists[n % len(lists)]} - pages.kept:
                pages.keep(page)
        elif lists:
            pages.release(lists.pop(n % len(lists)))
        pages.audit(lists)
        assert pages.free == 12 - len({page for held in lists for page in held})
