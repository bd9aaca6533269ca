"""Whatever happens, in whatever order: every answer is the naive twin's, and every page is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.engine.plans import call, engine_of, ids, plan_of
from walkgraph.abi.calls import StateKey
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.engine import Engine
from walkgraph.models.synthetic.operators import MODULUS

RUNS, STATES, PAGES = ("a", "b", "c"), ("main", "other"), 12
keys = st.sampled_from([StateKey(run, state) for run in RUNS for state in STATES])
PROMPTS = [[i * i % 97 for i in range(70)], [i * i % 97 if i < 40 else 7 for i in range(70)]]
alike = st.tuples(st.sampled_from(PROMPTS), st.integers(1, 70)).map(lambda one: one[0][: one[1]])
feeds = st.tuples(
    keys,
    st.sampled_from(["ids", "token", "block", "scratch"]),
    st.one_of(alike, st.lists(st.integers(0, 99), min_size=1, max_size=70)),
)


@dataclass(frozen=True)
class Kept:
    tokens: tuple[int, ...] = ()
    position: int = 0

    def feed(self, port: str, tokens: Sequence[int]) -> tuple[Kept, int]:
        after = self
        if port != "scratch":
            moved = 1 if port == "block" else len(tokens)
            after = replace(self, tokens=(*self.tokens, *tokens), position=self.position + moved)
        return after, (sum(self.tokens) + sum(tokens) + after.position) % MODULUS


class Machine(RuleBasedStateMachine):
    engine: Engine

    @initialize()
    def begin(self) -> None:
        nodes = {state: ("walkgraph.models.synthetic.operators:Attend", {"kv": state}) for state in STATES}
        plan = plan_of(nodes, kv_bytes=16 * 2 * 8 * (PAGES // 2 + 1) * 2)
        self.engine = engine_of(plan, mix=Mix(90, 50, 50))
        self.kept: dict[StateKey, Kept] = {}

    @rule(batch=st.lists(feeds, min_size=1, max_size=4, unique_by=lambda one: one[0]))
    def serve(self, batch: list[tuple[StateKey, str, list[int]]]) -> None:
        wanted: dict[int, tuple[StateKey, Kept, int]] = {}
        for key, port, tokens in batch:
            fed = tokens[:1] if port == "token" else tokens
            one = call(key.state, {port: ids(*fed)}, run=key.run, states={"kv": key.state}, stop_token=-1)
            wanted[id(one)] = (key, *self.kept.get(key, Kept()).feed(port, fed))
            self.engine.add(one)
        done = []
        while not self.engine.idle:
            done += self.engine.step()
        assert len(done) == len(batch)
        # A run that fails is dropped whole, with what its other calls have kept.
        for one in sorted(done, key=lambda one: one.error is not None):
            key, after, answer = wanted[id(one.call)]
            if one.error is None:
                assert one.outputs is not None
                assert int(one.outputs["token"]) == answer
                self.kept[key] = after
            else:
                assert one.error.code == "out_of_memory"
                self.drop(key.run)

    @rule(source=keys, into=keys)
    def fork(self, source: StateKey, into: StateKey) -> None:
        self.engine.transfers.fork(source, into)
        self.kept[into] = self.kept.get(source, Kept())

    @rule(source=keys, into=keys)
    def move(self, source: StateKey, into: StateKey) -> None:
        value = self.engine.transfers.export(source)
        free, _ = self.engine.pools.pages()
        if free > len(self.kept.get(source, Kept()).tokens) // 16:
            self.engine.transfers.import_state(into, value)
            self.kept[into] = self.kept.get(source, Kept())

    @rule(run=st.sampled_from(RUNS))
    def drop(self, run: str) -> None:
        self.engine.drop(run)
        self.kept = {key: kept for key, kept in self.kept.items() if key.run != run}

    @rule(key=keys)
    def forget(self, key: StateKey) -> None:
        self.engine.states.drop([key])
        self.kept.pop(key, None)

    @rule(feed=feeds)
    def cancel(self, feed: tuple[StateKey, str, list[int]]) -> None:
        key, port, tokens = feed
        one = call(key.state, {port: ids(*tokens[:1])}, run=key.run, states={"kv": key.state}, stop_token=-1)
        self.engine.add(one)
        assert self.engine.cancel(key.run) == [one]

    @invariant()
    def every_page_is_accounted_for(self) -> None:
        self.engine.states.audit()
        if not any(kept.tokens for kept in self.kept.values()):
            free, total = self.engine.pools.pages()
            assert free == total


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=25, stateful_step_count=20)
