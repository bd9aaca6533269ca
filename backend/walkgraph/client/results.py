"""The values of a run by the names of its outputs, as they come and when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar, cast

from walkgraph.client import values
from walkgraph.client.errors import of_run
from walkgraph.client.events import Event
from walkgraph.client.shown import Approval, NodeTime
from walkgraph.client.values import File, Picture, Sound, Tensor, Text, Value, Video

V = TypeVar("V")


@dataclass(frozen=True)
class Output:
    """One value as it left the run."""

    name: str
    index: int
    """Position among the values of this name."""
    value: Value
    iteration: tuple[int, ...] = ()
    """Iterations of the loops that it comes from, outermost first."""
    passes: tuple[int, ...] = ()
    """Passes of the loops of steps that it comes from, outermost first."""


def loop_name(loop: Mapping[str, Any]) -> str:
    """`walk.loop` for one of `usage.loops`, or the name of a loop of steps."""
    return f"{loop['walk']}.{loop['loop']}" if loop["walk"] else loop["loop"]


@dataclass(frozen=True)
class Result:
    """The result of a run that is over, or waits for a person. `result["film"]` holds all values of one output;
    `result.picture()` is one picture."""

    run: str
    task: str
    seed: int | None
    outputs: Mapping[str, Sequence[Value]]
    """In the order that the task declares: texts and sounds joined, other values as they came."""
    seconds: float
    queued: float
    """Seconds of these before the run began."""
    times: Sequence[NodeTime] = field(default=(), repr=False)
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Tokens, if the service counts them."""
    approval: Approval | None = field(default=None, repr=False)
    """The approval that the run waits for: it is not over, and these are its outputs so far. `Client.approve` and
    `Client.refuse` answer it."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """`walk.loop`, or the name of a loop of steps -> why it ended, for loops that a value can end: `stop`, `bound`
        (its limit was reached), or what a component says of it."""
        return {loop_name(loop): loop["reason"] for loop in self.usage.get("loops", ())}

    def __getitem__(self, name: str) -> Sequence[Value]:
        """The values of an output. Raises KeyError if it has none."""
        if name not in self.outputs:
            raise KeyError(f"nothing came from `{name}`; there are {', '.join(self.outputs) or 'no outputs'}")
        return self.outputs[name]

    def __contains__(self, name: str) -> bool:
        return name in self.outputs

    def text(self, name: str | None = None) -> str:
        """All text of an output, or of the first output that has texts. Each pass of a loop of steps begins a line."""
        return "\n".join(self._of(Text, name))

    def picture(self, name: str | None = None) -> Picture:
        """The last picture of an output, or of the first output that has pictures."""
        return self._of(Picture, name)[-1]

    def pictures(self, name: str | None = None) -> list[Picture]:
        return self._of(Picture, name)

    def sound(self, name: str | None = None) -> Sound:
        return self._of(Sound, name)[-1]

    def video(self, name: str | None = None) -> Video:
        return self._of(Video, name)[-1]

    def file(self, name: str | None = None) -> File:
        """The last file of another kind, such as a ZIP archive; `save` writes it."""
        return self._of(File, name)[-1]

    def tensor(self, name: str | None = None) -> Tensor:
        return self._of(Tensor, name)[-1]

    def _of(self, kind: type[V], name: str | None) -> list[V]:
        if name is not None and name not in self.outputs:
            raise LookupError(f"nothing came from `{name}`; there are {', '.join(self.outputs) or 'no outputs'}")
        for made in self.outputs.values() if name is None else [self.outputs[name]]:
            found = [value for value in made if isinstance(value, kind)]
            if found:
                return found
        raise LookupError(f"no {kind.__name__.lower()} came from this run; there are {', '.join(self.outputs)}")


class Gathered:
    """Builds a result from a run's events."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self.run = ""
        self.seed: int | None = None
        self.result: Result | None = None
        self._task: str = declared["name"]
        self._names: Sequence[str] = declared["outputs"]
        self._outputs: dict[str, list[Output]] = {}

    def take(self, event: Event, frames: Sequence[values.Bytes] = ()) -> Output | None:
        """Take an event; returns the output that it carries, if any. Raises RunError if the run ended in an error."""
        data = event.data
        if event.name == "accepted":
            self.run, self.seed = data["run"], data["seed"]
        elif event.name == "output":
            output = Output(
                data["name"],
                data["index"],
                values.read(data["value"], frames),
                tuple(data.get("iteration", ())),
                tuple(data.get("passes", ())),
            )
            self._outputs.setdefault(output.name, []).append(output)
            return output
        elif event.name == "done":
            made = {name: _joined(found) for name, found in self._outputs.items()}
            self.result = _result(self._names, {**data, "task": self._task, "seed": self.seed}, made)
        elif event.name == "error":
            raise of_run(data["error"], data.get("errors", ()))
        return None


def _joined(outputs: Sequence[Output]) -> list[Value]:
    """The values of one output, with texts and sounds of a pass joined."""
    passes = groupby(outputs, key=lambda output: output.passes)
    return [value for _, made in passes for value in values.joined(output.value for output in made)]


def of_answer(declared: Mapping[str, Any], answer: Mapping[str, Any], frames: Sequence[values.Bytes] = ()) -> Result:
    """Build the result from the answer of a run that was not followed."""
    answered = cast(Mapping[str, list[Mapping[str, Any]]], answer["outputs"])
    made = {name: [values.read(value, frames) for value in found] for name, found in answered.items()}
    return _result(declared["outputs"], answer, made)


def _result(names: Sequence[str], answered: Mapping[str, Any], made: Mapping[str, Sequence[Value]]) -> Result:
    order = [*(name for name in names if name in made), *(name for name in made if name not in names)]
    return Result(
        run=answered["run"],
        task=answered["task"],
        seed=answered["seed"],
        outputs={name: made[name] for name in order},
        seconds=answered["seconds"] or 0.0,
        queued=answered["queued"] or 0.0,
        times=tuple(answered.get("times", ())),
        usage=answered.get("usage") or {},
        approval=answered.get("approval"),
    )
