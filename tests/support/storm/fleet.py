"""Deployments without processes that serve every route: each output of a task is answered by a value of its kind."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import soundfile

from tests.support.storm.known import ASKING, TURNING
from tests.unit.service.fakes import LOOPS, PNG, TIMES, FakeDeployment, FakeFleet
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.service.openai.serving import Serving, servings
from walkgraph.wire import messages as m
from walkgraph.wire.spec import DeploymentSpec
from walkgraph.wire.watching import HeldCall

ERRORS = (
    ErrorInfo(code="overloaded", message="the queue is full; try again", retryable=True),
    ErrorInfo(code="invalid_input", message="a value is outside its bounds"),
    ErrorInfo(code="worker_lost", message="a process ended; try again", retryable=True),
)
EVERY = 31
"""One in so many runs is refused, and one fails while it runs."""
STAYING = 6
"""Deployments of every storm."""
HELD = HeldCall(rank=Rank(0), walk="image_gen", use="llm", node="llm", step=0, iteration=(0,))


@cache
def _wav() -> bytes:
    found = io.BytesIO()
    soundfile.write(found, np.arange(480, dtype=np.int16), 24_000, format="WAV")
    return found.getvalue()


def value_of(modality: str) -> m.Value:
    match modality:
        case "image" | "video":
            return m.Blob(data=PNG)
        case "audio":
            return m.Blob(data=_wav())
        case "text":
            return m.Small(value="a red circle")
        case "flag":
            return m.Small(value=True)
        case "scalar":
            return m.Small(value=3)
        case _:
            return m.InlineTensor(dtype="float32", shape=(2,), data=bytes(8))


class AbleDeployment(FakeDeployment):
    """A run with `hold` waits for what steers it, and one of `ASKING` for a person; some are refused, and some fail."""

    def __init__(
        self, spec: DeploymentSpec, take: Callable[[m.FromConductor], None], end: Callable[[int], None]
    ) -> None:
        super().__init__(spec, take, end)
        self._serving: Mapping[str, Serving] = servings(codec.load(msgspec.json.encode(spec.graph)))
        self._begun = 0

    @property
    def held(self) -> set[str]:
        """Runs that wait for who steers them."""
        return set(self._waiting)

    def _answer(self, message: m.ToConductor) -> None:
        if isinstance(message, m.Steer) and message.run in self._waiting:
            if message.action == "resume":
                self._take(m.Resumed(run=message.run))
                self.finish(message.run)
            else:
                self._take(m.Paused(run=message.run, held=(HELD,)))
        else:
            super()._answer(message)

    def _begin(self, run: m.Submit) -> None:
        self.sessions.update({run.session} if run.session else ())
        self._begun += 1
        error = ERRORS[self._begun % len(ERRORS)] if self._begun % EVERY in (3, 17) else None
        if error is not None and self._begun % EVERY == 3:
            self._take(m.Rejected(run=run.run, error=error))
            return
        self._take(m.Accepted(run=run.run, seed=int(run.params.get("seed", 7))))
        if run.hold:
            self._waiting[run.run] = run
            self._take(m.Paused(run=run.run, held=(HELD,)))
            return
        if run.task == ASKING and run.resumed is None and error is None:
            shown = (m.ShownValue(name="draw.picture", value=value_of("scalar")),)
            approval = m.Approval(number=0, label="Publish it?", within=3600, goes_on=False, shown=shown)
            end = m.Finished(run=run.run, seconds=0.5)
            self._take(m.Waits(run=run.run, approval=approval, rest=m.Resumption(answers=()), end=end))
            return
        for output in self._serving[run.task].outputs if error is None else ():
            if run.outputs is None or output.name in run.outputs:
                value = value_of(output.modality)
                told = m.Output(run=run.run, name=output.name, index=0, value=value, modality=output.modality)
                self._take(told)
        self._take(m.Finished(run=run.run, error=error, seconds=0.5, queued=0.1, times=TIMES, loops=LOOPS, read=12))


class AbleFleet(FakeFleet):
    async def __call__(
        self,
        directory: Path,
        spec: DeploymentSpec,
        on_message: Callable[[m.FromConductor], None],
        on_exit: Callable[[int], None],
    ) -> FakeDeployment:
        found = AbleDeployment(spec, on_message, on_exit)
        self.started.append(found)
        self.directories.append(directory)
        # Of those that come and go, one in three never is; nor is a next version, until it is given up.
        turned = [one for one in self.started if one.spec.name == TURNING]
        if len(self.started) <= STAYING or (len(turned) < 2 if found in turned else len(self.started) % 3):
            found.ready()
        self.more.set()
        self.more = asyncio.Event()
        return found
