"""Makes the calls of chains: one link after the other, each for all runs whose chains came together.

A link is a forward like any other, with batches by its operator's buckets, its failures and its times. A run that fails
at a link leaves the batch there.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.calls.inflight import Launched, Result
from walkgraph.engine.calls.runner import Runner, inferring
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.loops.body import Loaded
from walkgraph.errors import ErrorInfo


class LaunchedChain(Launched):
    """The calls of chains, which have been made."""

    def __init__(self, results: list[Result], forwarded: list[Forwarded]) -> None:
        super().__init__(None, lambda: results, ())
        self.forwarded = forwarded
        """The forwards of the links; empty unless they were timed."""


class _ChainProgress:
    """One chain under way."""

    def __init__(self, chain: Call) -> None:
        self.chain, self.ready_at = chain, chain.ready_at
        self.outputs: Outputs = {}
        """Those of the last call that was made."""
        self.error: ErrorInfo | None = None
        self.busy: list[float] = []
        self.batch = 1

    def call(self, index: int) -> Call:
        chain, link, given = self.chain, self.chain.links[index], self.chain.given[index]
        inputs: dict[str, Any] = {p: self.outputs[o] for p, o in link.passed.items() if o in self.outputs}
        inputs |= {p: chain.inputs[name] for p, name in link.entering.items() if name in chain.inputs}
        return Call(
            run=chain.run,
            node=link.node,
            walk=chain.walk,
            step=chain.step,
            use=link.use,
            iteration=chain.iteration,
            inputs=inputs,
            params=given.params,
            states={},
            seed=given.seed,
            priority=chain.priority,
            ready_at=self.ready_at,
            name=link.name,
        )

    def result(self) -> Result:
        outputs = None if self.error else self.outputs
        return Result(outputs, self.error, sum(self.busy), self.batch, links=tuple(self.busy))


class ChainRunner:
    def __init__(self, nodes: Mapping[str, Loaded], runner: Runner, clock: Callable[[], float]) -> None:
        self._nodes, self._runner, self._clock = nodes, runner, clock

    def run(self, chains: Sequence[Call], *, timed: bool) -> LaunchedChain:
        """Make the calls of chains of one kind. `timed`: report their forwards."""
        under_way = [_ChainProgress(chain) for chain in chains]
        forwarded: list[Forwarded] = []
        with inferring():
            for index, link in enumerate(chains[0].links):
                loaded = self._nodes[link.node]
                for batch in self._batches(loaded, link.required, under_way, index):
                    timing = self._forward(loaded, batch)
                    if timed:
                        forwarded.append(_told(batch, timing))
        return LaunchedChain([one.result() for one in under_way], forwarded)

    def _batches(
        self, loaded: Loaded, required: Sequence[str], under_way: Sequence[_ChainProgress], index: int
    ) -> list[list[tuple[_ChainProgress, Call]]]:
        """The calls of a link, by bucket. One that lacks an input or that its operator can't sort fails its chain."""
        batches: dict[Hashable, list[tuple[_ChainProgress, Call]]] = {}
        for one in under_way:
            if one.error is not None:
                continue
            call = one.call(index)
            lacking = next((port for port in required if port not in call.inputs), None)
            if lacking is not None:
                one.error = self._runner.failures.lacking(call, lacking)
                continue
            try:
                bucket = loaded.operator.bucket(call)
            except Exception as raised:  # noqa: BLE001 (inputs that an operator can't sort end only that run)
                one.error = self._runner.failures.of(call, raised)
                continue
            batches.setdefault(bucket, []).append((one, call))
        return list(batches.values())

    def _forward(self, loaded: Loaded, batch: Sequence[tuple[_ChainProgress, Call]]) -> Timing:
        began = self._clock()
        results = self._runner.made(loaded.operator, loaded.device, [call for _, call in batch])
        ended = self._clock()
        for (one, _), result in zip(batch, results, strict=True):
            one.outputs, one.error, one.ready_at, one.batch = result.outputs or {}, result.error, ended, result.batch
            one.busy.append(result.busy)
        return Timing(began, ended, began, ended)


def _told(batch: Sequence[tuple[_ChainProgress, Call]], timing: Timing) -> Forwarded:
    """The report of a forward that has just been made."""
    calls = [call for _, call in batch]
    failed = tuple([row for row, (one, _) in enumerate(batch) if one.error is not None])
    return Forwarded(calls, [call.ready_at for call in calls], failed, timing)
