"""Tasks as functions: called with inputs and parameters by name, they return Python values."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from walkgraph.client import results
from walkgraph.client.errors import ClientError
from walkgraph.client.events import Event
from walkgraph.client.giving import OPTIONS, PARTS, Packing, request_of
from walkgraph.client.resources.running import result_call, start_call
from walkgraph.client.results import Gathered, Output, Result
from walkgraph.client.shown import Run

if TYPE_CHECKING:
    from walkgraph.client.protocols import AsyncClientProtocol, ClientProtocol


class _Task(dict[str, Any]):
    """A mapping with the task's declaration: `name`, `inputs`, `outputs`, `params`, `session`, `schema`."""

    def _request(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], Packing]:
        packing = Packing(framing=True)
        return request_of(self, given, packing), packing

    @property
    def __signature__(self) -> inspect.Signature:
        """A signature for notebooks, which show it and complete its names."""
        keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
        defaults = {name: None if one["optional"] else empty for name, one in self["inputs"].items()}
        defaults |= {name: one["default"] for name, one in self["params"].items()}
        names = [name for name in (*defaults, "seed", PARTS, *OPTIONS) if name.isidentifier()]
        found = [inspect.Parameter(name, keyword, default=defaults.get(name)) for name in dict.fromkeys(names)]
        return inspect.Signature(found)

    def __repr__(self) -> str:
        names = ", ".join([*self["inputs"], *(f"{name}={p['default']!r}" for name, p in self["params"].items())])
        return f"<task {self['deployment']}/{self['name']}({names}) -> {', '.join(self['outputs'])}>"


class Task(_Task):
    """A task that `Client.task` returns.

    draw = client.task("shapes", "text_to_image")
    draw(prompt="a red circle", steps=12, seed=7).picture().save("circle.png")
    """

    def __init__(self, client: ClientProtocol, declared: Mapping[str, Any]) -> None:
        super().__init__(declared)
        self._client = client

    def __call__(self, /, **given: Any) -> Result:
        """Run the task with inputs, parameters, and `seed`, `parts`, `outputs`, `session`, `priority`, `deadline`,
        `record`.

        Raises TypeError for a name that it has not, ProblemError for a request that is refused, RunError for a run that
        failed. The run ends with an interrupt.
        """
        body, packing = self._request(given)
        call = result_call(self["deployment"], self["name"], body, packing.frames)
        return results.of_answer(self, *self._client.send(call))

    def stream(self, /, **given: Any) -> Stream:
        """Run the task and yield its outputs as they come."""
        body, packing = self._request(given)
        events = self._client.stream(self["deployment"], self["name"], body, frames=packing.frames, binary=True)
        return Stream(events, Gathered(self))

    def start(self, /, **given: Any) -> Run:
        """Start a run that needs no client."""
        body = request_of(self, given, Packing(framing=False))
        return self._client.send(start_call(self["deployment"], self["name"], body))


class AsyncTask(_Task):
    """A task that `AsyncClient.task` returns: like `Task`, awaited."""

    def __init__(self, client: AsyncClientProtocol, declared: Mapping[str, Any]) -> None:
        super().__init__(declared)
        self._client = client

    async def __call__(self, /, **given: Any) -> Result:
        """Like `Task.__call__`; cancelling the awaiting asyncio task ends the run."""
        body, packing = self._request(given)
        call = result_call(self["deployment"], self["name"], body, packing.frames)
        return results.of_answer(self, *await self._client.send(call))

    def stream(self, /, **given: Any) -> AsyncStream:
        """Run the task and yield its outputs as they come."""
        body, packing = self._request(given)
        events = self._client.stream(self["deployment"], self["name"], body, frames=packing.frames, binary=True)
        return AsyncStream(events, Gathered(self))

    async def start(self, /, **given: Any) -> Run:
        """Start a run that needs no client."""
        body = request_of(self, given, Packing(framing=False))
        return await self._client.send(start_call(self["deployment"], self["name"], body))


class _Streamed:
    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    @property
    def run(self) -> str:
        """The run's id; empty until the first event came."""
        return self._gathered.run

    @property
    def seed(self) -> int | None:
        return self._gathered.seed

    @property
    def result(self) -> Result:
        """The full result, once the iteration has ended. Raises ClientError before that."""
        if self._gathered.result is None:
            raise ClientError("the run is not over: go through its outputs to their end first")
        return self._gathered.result


class Stream(_Streamed):
    """Outputs as they come; the run ends with the iterator, or with the `with` around it.

    with draw.stream(prompt="a red circle", preview_every=4) as outputs:
        for output in outputs:
            print(output.name, output.index)
    outputs.result.picture()
    """

    def __init__(self, events: Generator[Event], gathered: Gathered) -> None:
        super().__init__(gathered)
        self._events = events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Output:
        """The next output. Raises RunError if the run ended in an error."""
        for event in self._events:
            output = self._gathered.take(event, event.frames)
            if output is not None:
                return output
        raise StopIteration

    def close(self) -> None:
        """End the run if it is still going."""
        self._events.close()


class AsyncStream(_Streamed):
    """Like `Stream`, with `async with` and `async for`."""

    def __init__(self, events: AsyncGenerator[Event], gathered: Gathered) -> None:
        super().__init__(gathered)
        self._events = events

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output:
        async for event in self._events:
            output = self._gathered.take(event, event.frames)
            if output is not None:
                return output
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the run if it is still going."""
        await self._events.aclose()
