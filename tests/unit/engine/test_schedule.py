from __future__ import annotations

from tests.unit.engine.plans import call
from walkgraph.abi.calls import Call
from walkgraph.engine.calls.schedule import MIX, Cut, Mix, ReadyCall, Schedule


def names(calls: list[Call]) -> list[str]:
    return [c.run for c in calls]


def ready(run: str, at: float, *, priority: int = 0, state: str | None = None) -> Call:
    return call("n", run=run, ready_at=at, priority=priority, states={"kv": state} if state else {})


def drain(schedule: Schedule) -> list[tuple[object, list[str]]]:
    taken = []
    while (batch := schedule.next()) is not None:
        taken.append((batch.key, names(batch.calls)))
    return taken


def test_one_batch_takes_all_of_its_lane_in_the_order_of_readiness() -> None:
    schedule = Schedule()
    for run, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        schedule.add(ready(run, at), "lane", 1)
    assert len(schedule) == 3
    assert drain(schedule) == [("lane", ["a", "b", "c"])]
    assert schedule.next() is None


def test_the_lane_that_waited_longest_is_next() -> None:
    schedule = Schedule()
    for run, at, lane in (("a", 5.0, "x"), ("b", 4.0, "y"), ("c", 6.0, "y")):
        schedule.add(ready(run, at), lane, 1)
    assert drain(schedule) == [("y", ["b", "c"]), ("x", ["a"])]


def test_a_busy_lane_starves_no_other() -> None:
    schedule = Schedule(budget=1)
    schedule.add(ready("patient", 10.0), "slow", 1)
    served: list[str] = []
    for step in range(30):
        for n in range(2):
            schedule.add(ready(f"{step}.{n}", float(step)), "busy", 1)
        batch = schedule.next()
        assert batch is not None
        served += names(batch.calls)
    assert served.index("patient") == 20


def test_a_priority_is_a_lead_and_no_more() -> None:
    schedule = Schedule(budget=1, patience=2.0)
    schedule.add(ready("old", 0.0), "lane", 1)
    schedule.add(ready("urgent", 1.5, priority=1), "lane", 1)
    schedule.add(ready("late", 2.5, priority=1), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["urgent"], ["old"], ["late"]]


def test_the_budget_bounds_a_batch_and_small_calls_fill_it() -> None:
    schedule = Schedule(budget=10)
    for run, rows in (("a", 6), ("big", 7), ("b", 3), ("c", 1), ("huge", 99)):
        schedule.add(ready(run, 1.0), "lane", rows)
    assert [runs for _, runs in drain(schedule)] == [["a", "b", "c"], ["big"], ["huge"]]


def test_calls_on_one_state_stay_in_order_even_past_the_budget() -> None:
    schedule = Schedule(budget=10)
    schedule.add(ready("a", 1.0, state="s"), "lane", 5)
    schedule.add(ready("b", 2.0, state="s"), "lane", 9)
    schedule.add(ready("b", 3.0, state="s"), "lane", 1)
    schedule.add(ready("c", 4.0, state="s"), "lane", 1)
    assert [runs for _, runs in drain(schedule)] == [["a", "c"], ["b"], ["b"]]


def test_cancel_takes_out_one_run() -> None:
    schedule = Schedule()
    for run, lane in (("a", "x"), ("b", "x"), ("a", "y")):
        schedule.add(ready(run, 1.0), lane, 1)
    assert names(schedule.cancel("a")) == ["a", "a"]
    assert schedule.cancel("a") == []
    assert drain(schedule) == [("x", ["b"])]


# ── cut, mixed, held ──


def halves(most: int) -> Cut:
    """Cuts calls, told by their run's name and rows, into parts of `most` rows."""

    def cut(whole: Call, rows: int) -> list[ReadyCall]:
        sizes = [min(most, rows - at) for at in range(0, rows, most)]
        return [
            ReadyCall(ready(f"{whole.run}/{i}", whole.ready_at, state=whole.run), "lane", n)
            for i, n in enumerate(sizes)
        ]

    return cut


def test_a_call_is_cut_when_its_turn_comes_and_its_parts_keep_its_place() -> None:
    schedule = Schedule(budget=100)
    schedule.add(ready("long", 1.0, state="long"), "lane", 25)
    schedule.add(ready("short", 1.5), "lane", 4)
    cut = halves(10)
    served = [names(batch.calls) for _ in range(3) if (batch := schedule.next(12, cut)) is not None]
    assert served == [["long/0"], ["long/1"], ["long/2", "short"]]
    assert schedule.next() is None


def test_short_prompts_of_several_runs_share_a_batch_within_its_rows() -> None:
    schedule = Schedule(budget=4096)
    for number in range(6):
        schedule.add(ready(f"r{number}", float(number)), "lane", 100)
    running = schedule.next(MIX.rows(waiting={"r0", "r1"}, running={"other", "another"}))
    assert running is not None
    assert names(running.calls) == ["r0", "r1", "r2", "r3", "r4"]
    alone = schedule.next(MIX.rows())
    assert alone is not None
    assert names(alone.calls) == ["r5"]


def test_running_loops_wait_for_one_small_batch_or_for_short_ones() -> None:
    mix = Mix(budget=4096, alone=2048, mixed=512)
    assert (mix.rows({"a"}, {"b"}), mix.part(True)) == (512, 512)
    assert (mix.rows(), mix.part(False)) == (4096, 2048)
    assert [mix.may(True, spent, 0.005) for spent in (0.0, 0.015, 0.016, 0.2)] == [True, True, False, False]
    assert mix.may(True, 0.0, 5.0)
    assert mix.may(False, 9.0, 5.0)
    assert Mix(budget=100, alone=50).rows({"a"}, {"b"}) == 100
    assert Mix(budget=100, alone=50).part(True) == 50


def test_a_batch_is_as_much_larger_as_more_runs_wait_for_it_than_are_delayed() -> None:
    mix, answers = Mix(budget=4096, alone=2048, mixed=512), [f"answer {n}" for n in range(16)]
    prompts = [f"prompt {n}" for n in range(16)]
    assert mix.rows(answers, prompts[:4]) == mix.rows(answers, prompts) == 512
    assert mix.rows(answers[:15], prompts) == mix.rows(answers[:8], prompts) == 1024
    assert mix.rows(answers[:3], prompts) == 6 * 512
    assert mix.rows(answers[:1], prompts) == 4096
    # A talker's prompt, whose own thinker goes on writing, delays nobody else.
    assert mix.rows(answers, answers) == 4096
    assert mix.rows([*answers, *prompts[:2]], answers) == 4096
    assert mix.rows([*answers, *prompts], answers) == 512


def test_the_calls_ahead_are_those_that_may_be_in_the_next_batch() -> None:
    schedule = Schedule()
    assert schedule.ahead(any_key) == []
    schedule.add(ready("b", 2.0), "other", 1)
    schedule.add(ready("a", 1.0), "lane", 1)
    schedule.add(ready("c", 3.0), "lane", 1)
    schedule.add(ready("c", 3.5), "lane", 1)
    schedule.add(ready("d", 0.5), "lane", 1, deferred=True)
    assert names(schedule.ahead(any_key)) == ["a", "c", "c"]
    assert names(schedule.ahead(lambda key, calls: key == "other")) == ["b"]
    schedule.hold("a")
    assert names(schedule.ahead(any_key)) == ["b"]


def any_key(key: object, calls: object) -> bool:
    return True


def test_held_calls_wait_and_get_their_places_back() -> None:
    schedule = Schedule()
    schedule.add(ready("a", 1.0), "lane", 1)
    schedule.add(ready("b", 2.0), "lane", 1)
    schedule.hold("a")
    schedule.add(ready("a", 3.0), "other", 1)
    assert len(schedule) == 1
    assert drain(schedule) == [("lane", ["b"])]
    schedule.add(ready("b", 2.0), "lane", 1)
    schedule.release("a")
    assert drain(schedule) == [("lane", ["a", "b"]), ("other", ["a"])]
    schedule.hold("a")
    schedule.add(ready("a", 4.0), "lane", 1)
    assert names(schedule.cancel("a")) == ["a"]
    schedule.add(ready("a", 5.0), "lane", 1)
    assert drain(schedule) == [("lane", ["a"])], "a run that was ended is held no longer"


def next_of(schedule: Schedule) -> list[Call]:
    batch = schedule.next()
    return [] if batch is None else batch.calls


def test_of_calls_that_are_alike_one_is_served_and_the_others_after_it_together() -> None:
    schedule = Schedule()
    for run, alike in (("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", "x")):
        schedule.add(ready(run, ord(run)), "lane", 1, alike)
    first = next_of(schedule)
    assert names(first) == ["a", "c", "d"]
    assert (len(schedule), next_of(schedule)) == (2, [])
    schedule.add(ready("f", 1.0), "lane", 1, "x")
    schedule.add(ready("g", 200.0), "lane", 1)
    assert names(next_of(schedule)) == ["g"], "others don't wait"
    schedule.settle(first[2], failed=False)
    assert next_of(schedule) == []
    schedule.settle(first[0], failed=False)
    assert names(next_of(schedule)) == ["f", "b", "e"]


def test_if_the_first_of_some_that_are_alike_fails_another_is_the_first() -> None:
    schedule = Schedule()
    for run in "abc":
        schedule.add(ready(run, ord(run)), "lane", 1, "x")
    for run in "abc":
        [only] = next_of(schedule)
        assert (only.run, next_of(schedule)) == (run, [])
        schedule.settle(only, failed=True)
    assert len(schedule) == 0


def test_a_call_that_waits_for_one_that_is_alike_blocks_its_states_and_can_be_cancelled() -> None:
    schedule = Schedule()
    schedule.add(ready("a", 1.0, state="1"), "lane", 1, "x")
    schedule.add(ready("b", 2.0, state="2"), "lane", 1, "x")
    schedule.add(ready("b", 3.0, state="2"), "lane", 1)
    schedule.add(ready("c", 4.0), "other", 1)
    first = next_of(schedule)
    assert names(first) == ["a"]
    assert names(next_of(schedule)) == ["c"], "its lane does not hold up another"
    assert next_of(schedule) == []
    assert names(schedule.cancel("b")) == ["b", "b"]
    schedule.settle(first[0], failed=False)
    assert next_of(schedule) == []
