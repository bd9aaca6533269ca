"""A task's request: its JSON Schema, and its conversion to a `Submit`. Both follow the task's declaration."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, cast

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import MESSAGES
from walkgraph.graph.document import Task, TaskInput, TaskParam
from walkgraph.graph.steps import is_needed
from walkgraph.graph.turns import turn_parts
from walkgraph.ids import RunId
from walkgraph.placement import selection
from walkgraph.placement.request import declared_params, fill_params, name_inputs, reads_calls, takes_whole
from walkgraph.placement.tables import Scalar
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Fault, Unprocessable, pointer
from walkgraph.service.values import conversations, tensors, values
from walkgraph.service.values.stops import MAX_CHARACTERS, MAX_STOPS, stops_of
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES

PARTS = "parts"
_KEYS = ("inputs", "params", "outputs", "stream", "session", "priority", "deadline", "stop", "record", "hold")
_STOP = {"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS}
_DRAWN = "seed"
"""The parameter that is drawn at random if the client gives none."""


def part_kinds(task: Task) -> list[str]:
    """The modalities that interleaved parts may have."""
    return list(dict.fromkeys(i.modality for i in task.inputs.values() if i.modality != MESSAGES))


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


def request_schema(name: str, task: Task) -> dict[str, Any]:
    """JSON Schema of the body of `POST /v1/tasks/{deployment}/{task}`."""
    named = {key: _declared_schema(task, declared) for key, declared in task.inputs.items()}
    needed = [key for key, i in task.inputs.items() if is_needed(i)]
    inputs: dict[str, Any] = _closed(named, needed)
    kinds = part_kinds(task)
    if kinds and PARTS not in task.inputs:
        parts = {"type": "array", "minItems": 1, "maxItems": limits.PARTS, "items": _part_schema(kinds)}
        inputs = {"anyOf": [inputs, _closed({**named, PARTS: parts}, [PARTS])]}
    params = {key: _param_schema(p) for key, p in declared_params(task).items()}
    missing = [key for key, p in task.params.items() if p.default is None and key != _DRAWN]
    body: dict[str, Any] = {
        "inputs": inputs,
        "params": _closed(params, missing),
        "outputs": selection.schema(task),
        "stream": {"type": "boolean", "default": False},
        "session": {"type": "string", "minLength": 1, "maxLength": 64},
        "priority": {"type": "integer", "minimum": -100, "maximum": 100, "default": 0},
        "deadline": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400, "description": "Seconds."},
        "stop": {
            "anyOf": [_STOP, {"type": "array", "maxItems": MAX_STOPS, "items": _STOP}],
            "description": "The first output, a text, ends before any of these, and so does the run.",
        },
        "record": {
            "type": "boolean",
            "default": False,
            "description": "Keep the digest of every value, to compare it with another run; its loops are stepped.",
        },
        "hold": {
            "type": "boolean",
            "default": False,
            "description": "Pause it before its first calls; its loops are stepped.",
        },
    }
    required = [*(["inputs"] if needed else []), *(["params"] if missing else [])]
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": task.label or name, **_closed(body, required)}


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _declared_schema(task: Task, declared: TaskInput) -> dict[str, Any]:
    if declared.modality != MESSAGES:
        found = _input_schema(declared.modality, many=declared.many, text=declared.description)
        return found if declared.default is None else {**found, "default": declared.default}
    taken = turn_parts(task)
    kinds = sorted(frozenset[str]().union(*taken.values()))
    return conversations.schema(taken, _part_schema(kinds), declared.description, whole=takes_whole(task))


def _part_schema(kinds: Iterable[str]) -> dict[str, Any]:
    forms = [form for kind in kinds for form in _forms(kind)]
    return {"oneOf": [{**form, "required": [*form["required"], "type"]} for form in forms]}


def _input_schema(modality: str, *, many: bool, text: str) -> dict[str, Any]:
    one = {"anyOf": [_bare(modality), *_forms(modality)]}
    if not many:
        return {**one, "description": text}
    several = {"type": "array", "minItems": 1, "maxItems": limits.PARTS, "items": one}
    return {"anyOf": [*one["anyOf"], several], "description": text}


def _bare(modality: str) -> dict[str, Any]:
    if modality == values.TEXT:
        return {"type": "string", "maxLength": limits.TEXT_CHARACTERS}
    if modality in values.MEDIA:
        return {"type": "string", "contentEncoding": "base64", "minLength": 1}
    return {"type": ["array", "number"]}


def _forms(modality: str) -> list[dict[str, Any]]:
    """Schemas of a value that is an object."""
    if modality in (values.TEXT, *values.MEDIA):
        return [_wrapped(modality)]
    sides = {"type": "array", "minItems": 1, "maxItems": limits.TENSOR_DIMENSIONS}
    shape = {"dtype": {"enum": list(ITEM_BYTES)}, "shape": {**sides, "items": {"type": "integer", "minimum": 1}}}
    encoded = {"type": {"const": modality}, **shape, "base64": {"type": "string", "contentEncoding": "base64"}}
    wrapped = _wrapped(modality)
    return [{**wrapped, "properties": {**wrapped["properties"], **shape}}, _closed(encoded, [*shape, "base64"])]


def _wrapped(modality: str) -> dict[str, Any]:
    key = "text" if modality == values.TEXT else "data"
    return _closed({"type": {"const": modality}, "mime": {"type": "string"}, key: _bare(modality)}, [key])


def _param_schema(param: TaskParam) -> dict[str, Any]:
    found: dict[str, Any] = {"type": param.type, "description": param.description}
    if param.default is not None:
        found["default"] = param.default
    if param.choices:
        found["enum"] = list(param.choices)
    if param.type in ("integer", "number"):
        found |= {key: bound for key, bound in (("minimum", param.min), ("maximum", param.max)) if bound is not None}
    return found


# ── the request ─────────────────────────────────────────────────────────────────────────────────


Kinds = Callable[[str], tensors.Kind | None]
"""The kind of tensor that the ports behind a task's input take."""


def read_request(
    run: RunId,
    name: str,
    task: Task,
    body: Any,
    deadline: float,
    kinds: Kinds = lambda name: None,
    sources: selection.Sources = lambda name: (),
) -> m.Submit:
    """The message for a client's JSON, in which `bytes` may replace base64. Raises Unprocessable with all faults and
    their pointers.

    `deadline`: seconds, used if the client gives none. `sources`: those of the task's outputs.
    """
    reader = _Reader(task, kinds)
    if not isinstance(body, dict):
        raise Unprocessable("the request must be an object", [Fault("", "dict_type", "send a JSON object")])
    fields = cast(dict[str, Any], body)
    reader.unknown("", fields, _KEYS)
    inputs, parts = reader.inputs(fields.get("inputs", {}))
    params = reader.params(fields.get("params", {}))
    outputs, selected = reader.outputs(fields.get("outputs"), sources)
    submit = m.Submit(
        run=run,
        task=name,
        params=params,
        inputs=inputs,
        parts=parts,
        outputs=outputs,
        selected=selected,
        priority=reader.number("/priority", fields.get("priority", 0), -100, 100),
        deadline=reader.deadline(fields.get("deadline", deadline)),
        session=reader.session(fields.get("session")),
        record=reader.flag("/record", fields.get("record", False)),
        hold=reader.flag("/hold", fields.get("hold", False)),
    )
    reader.flag("/stream", fields.get("stream", False))
    if "stop" in fields:
        reader.stop(fields["stop"])
    if reader.faults:
        raise Unprocessable(f"the request to task `{name}` is invalid; see `errors`", reader.faults)
    return submit


def defaults(task: Task, given: Collection[str], kinds: Kinds = lambda name: None) -> dict[str, tuple[m.Value, ...]]:
    """The values of the inputs that have a default and aren't given."""
    found: dict[str, tuple[m.Value, ...]] = {}
    for name, declared in task.inputs.items():
        if declared.default is not None and name not in given:
            plain = list(declared.default) if isinstance(declared.default, tuple) else declared.default
            found[name] = (values.read(declared.modality, plain, f"/inputs/{name}", partial(kinds, name)),)
    return found


class _Reader:
    """Collects faults instead of stopping at the first."""

    def __init__(self, task: Task, kinds: Kinds) -> None:
        self.faults: list[Fault] = []
        self._task, self._kinds = task, kinds

    def fault(self, at: str, code: str, message: str) -> None:
        self.faults.append(Fault(at, code, message))

    def unknown(self, at: str, found: Iterable[str], known: Iterable[str]) -> None:
        names = list(known)
        for key in found:
            if key not in names:
                near = difflib.get_close_matches(key[:64], names, n=1)
                advice = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(f'`{n}`' for n in names)}"
                self.fault(at + pointer([key[:200]]), "unknown_key", f"this key is not known here; {advice}")

    def inputs(self, given: Any) -> tuple[dict[str, tuple[m.Value, ...]], tuple[m.Part, ...]]:
        if not isinstance(given, dict):
            self.fault("/inputs", "dict_type", "this must be an object")
            return {}, ()
        named = cast(dict[str, Any], given)
        before = len(self.faults)
        parts: tuple[m.Part, ...] = ()
        if PARTS in named and PARTS not in self._task.inputs:
            parts = self._parts(named[PARTS])
            named = {name: value for name, value in named.items() if name != PARTS}
        self.unknown("/inputs", named, [*self._task.inputs, PARTS])
        found: dict[str, tuple[m.Value, ...]] = {}
        for name, declared in self._task.inputs.items():
            if named.get(name) is not None:
                found[name] = self._several(name, declared, named[name], f"/inputs/{name}")
        if len(self.faults) == before:
            found |= self._judge(found, parts)
        return found, parts

    def _judge(
        self, found: dict[str, tuple[m.Value, ...]], parts: tuple[m.Part, ...]
    ) -> dict[str, tuple[m.Value, ...]]:
        """The defaults of the inputs that neither their names nor parts give."""
        try:
            given = name_inputs(self._task, found, parts)
        except InvalidInput as error:
            inside = f"/inputs{error.pointer}" if error.pointer.startswith("/parts") else error.pointer
            self.fault(inside, "bad_inputs", str(error))
            return {}
        media = sum(isinstance(value, m.Blob) for one in given for value in one.values)
        if media > limits.MEDIA:
            self.fault(
                "/inputs", "too_long", f"these are {media} pictures, sounds or videos; send at most {limits.MEDIA}"
            )
        return defaults(self._task, {one.input for one in given}, self._kinds)

    def _several(self, name: str, declared: TaskInput, given: Any, at: str) -> tuple[m.Value, ...]:
        # A bare list of numbers is one tensor; several tensors are a list of objects.
        listed = isinstance(given, list) and (
            declared.modality in (values.TEXT, *values.MEDIA)
            or any(isinstance(item, dict) for item in cast(list[Any], given))
        )
        if not (declared.many and listed):
            return self._one(name, given, at)
        items = cast(list[Any], given)
        if not 0 < len(items) <= limits.PARTS:
            self.fault(at, "too_long", f"send 1 to {limits.PARTS} values")
            return ()
        return tuple(value for i, item in enumerate(items) for value in self._one(name, item, f"{at}/{i}"))

    def _one(self, name: str, given: Any, at: str) -> tuple[m.Value, ...]:
        """Reads one value of the input `name`. Empty if it has a fault."""
        modality = self._task.inputs[name].modality
        try:
            if modality == MESSAGES:
                reads = {"calls": reads_calls(self._task), "whole": takes_whole(self._task)}
                return (conversations.read(turn_parts(self._task), given, at, **reads),)
            return (values.read(modality, given, at, lambda: self._kinds(name)),)
        except InvalidInput as error:
            self.fault(error.pointer, "bad_value", str(error))
            return ()

    def _parts(self, given: Any) -> tuple[m.Part, ...]:
        items = cast(list[Any], given) if isinstance(given, list) else []
        if not 0 < len(items) <= limits.PARTS:
            self.fault("/inputs/parts", "list_type", f"send a list of 1 to {limits.PARTS} parts")
            return ()
        kinds = part_kinds(self._task)
        first = {declared.modality: name for name, declared in reversed(self._task.inputs.items())}
        found: list[m.Part] = []
        for i, item in enumerate(items):
            kind = cast(dict[str, Any], item).get("type") if isinstance(item, dict) else None
            at = f"/inputs/parts/{i}"
            if not isinstance(kind, str) or kind not in kinds:
                self.fault(at, "bad_part", f"a part needs a `type` out of {', '.join(f'`{k}`' for k in kinds)}")
                continue
            found.extend(m.Part(modality=kind, value=value) for value in self._one(first[kind], item, at))
        return tuple(found)

    def params(self, given: Any) -> dict[str, Scalar]:
        if not isinstance(given, dict):
            self.fault("/params", "dict_type", "this must be an object")
            return {}
        named = cast(dict[str, Any], given)
        declared = declared_params(self._task)
        self.unknown("/params", named, declared)
        known = {name: value for name, value in named.items() if name in declared}
        try:
            fill_params(self._task, {_DRAWN: 0, **known})
        except InvalidInput:
            self._faults_of(declared, known)
        return known

    def _faults_of(self, declared: Mapping[str, TaskParam], given: Mapping[str, Any]) -> None:
        """Checks one parameter at a time, so that every fault is reported."""
        for name, param in declared.items():
            alone = self._task.model_copy(update={"params": {name: param}})
            try:
                fill_params(alone, {_DRAWN: 0, **({name: given[name]} if name in given else {})})
            except InvalidInput as error:
                self.fault(error.pointer, "bad_value", str(error))

    def outputs(
        self, given: Any, sources: selection.Sources
    ) -> tuple[tuple[str, ...] | None, dict[str, selection.Selection]]:
        try:
            return selection.read_outputs(given, self._task, sources)
        except InvalidInput as error:
            self.fault(error.pointer, "bad_value", str(error))
            return None, {}

    def number(self, at: str, given: Any, low: int, high: int) -> int:
        if isinstance(given, int) and not isinstance(given, bool) and low <= given <= high:
            return given
        self.fault(at, "bad_value", f"this must be an integer from {low} to {high}")
        return low

    def deadline(self, given: Any) -> float:
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= 86_400:
            return float(given)
        self.fault("/deadline", "bad_value", "this must be a number of seconds, more than 0 and at most 86400")
        return 1.0

    def session(self, given: Any) -> str | None:
        if given is None or (isinstance(given, str) and 0 < len(given) <= 64):
            return given
        self.fault("/session", "bad_value", "this must be a text of 1 to 64 characters")
        return None

    def stop(self, given: Any) -> None:
        if stops_of(given) is None:
            each = f"of 1 to {MAX_CHARACTERS} characters"
            self.fault("/stop", "bad_value", f"this must be a text {each}, or a list of at most {MAX_STOPS}")

    def flag(self, at: str, given: Any) -> bool:
        if not isinstance(given, bool):
            self.fault(at, "bool_type", "this must be true or false")
        return given is True
