"""Reads a task's request over HTTP, as JSON or as a form, and writes its answer in the type that the client accepts.

    application/json       the result
    application/vnd.msgpack    the result, with bytes in it
    application/x-safetensors  its tensors
    text/event-stream      its events as they come; with `"stream": true`, also as parts of `multipart/mixed`, and as
                           msgpack
    image/png, image/*, audio/wav, text/plain, application/zip, application/octet-stream ...
                           the bytes of the one value of that type
    multipart/mixed, multipart/form-data    the result, and a part for each of its media and tensors; with `early=1`,
                           large ones before the run's end

The `Accept` header's most preferred type that fits is used.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Task
from walkgraph.media_types import UNKNOWN, ZIP, mime_of, suffix_of
from walkgraph.service.http import body, frames, multipart, pieces, problems
from walkgraph.service.http.dialects import PROBLEM_JSON
from walkgraph.service.runs import results, streaming
from walkgraph.service.runs.disconnects import Streamed, leave
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import outlets, tensors, values
from walkgraph.service.values.outlets import Frames, Spliced
from walkgraph.wire import messages as m

JSON = "application/json"
EVENTS = "text/event-stream"
BYTES = "bytes"
"""The modality of files of other kinds, which browsers save."""
FORMS = ("multipart/mixed", multipart.MEDIA_TYPE)
MSGPACK = ("application/vnd.msgpack", "application/msgpack")
SAFETENSORS = "application/x-safetensors"
RAW = ("image/", "audio/", "video/", "text/plain", ZIP, UNKNOWN)
"""Types of single values."""
_FIELDS = ("params", "outputs", "priority", "deadline", "stream", "record", "hold")
"""Form fields that hold JSON, with the names that they have in a JSON body."""
_MOST_RANGES = 16


# ── the request ─────────────────────────────────────────────────────────────────────────────────


async def read(request: Request, task: Callable[[], Task]) -> Any:
    """The body, with bytes in place of a form's files. `task` is called only if the names of inputs are needed. Raises
    BadJson, BadForm, InvalidInput, and whatever `task` raises."""
    if not multipart.is_form(request.headers.get("content-type", "")):
        return body.parse(await request.body())
    return read_form(await multipart.read(request), task)


def read_form(form: multipart.Form, task: Callable[[], Task]) -> Any:
    """A form has either a part `request` with the JSON body, and the parts `0`, `1` ... that its frames name; or a part
    for each input, by its name, with `params` and the other fields of a body as JSON.

    Raises BadForm for duplicate parts, InvalidInput for missing parts and for parts that nothing names.
    """
    request = form.one("request")
    if request is None:
        return _by_names(form, task())
    numbers = [str(k) for k in range(len(form.parts) - 1)]
    unknown = next((name for name in form.names if name not in (*numbers, "request")), None)
    if unknown is not None:
        advice = "beside `request` the parts are called `0`, `1` ... without a gap"
        raise InvalidInput(f"the part `{unknown[:80]}` is named by nothing; {advice}", f"/{unknown[:80]}")
    found = [part.data for part in map(form.one, numbers) if part is not None]
    return frames.placed(body.parse(request.data), found)


def _by_names(form: multipart.Form, task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for name in form.names:
        if name in task.inputs:
            given = [_value(part, task.inputs[name].modality) for part in form.named(name)]
            inputs[name] = given if len(given) > 1 else given[0]
            continue
        part = form.one(name)
        if part is not None:
            found[name] = body.parse(part.data) if name in _FIELDS else part.text
    return {**found, **({"inputs": inputs} if inputs else {})}


def _value(part: multipart.Part, modality: str) -> Any:
    if modality in values.MEDIA:
        return {"data": part.data}
    return part.text if modality == values.TEXT else body.parse(part.data)


# ── the answer ──────────────────────────────────────────────────────────────────────────────────


class Format(NamedTuple):
    """One form of answers."""

    types: tuple[str, ...]
    """Media types; those that end in `/` stand for all that begin so."""
    whole: Callable[[LiveRun, tuple[str, ...], str], Response | None]
    """The answer of a finished run in an accepted type, which may be a range; None if its outputs don't fit. Also takes
    the task's outputs in their order."""
    streamed: Callable[[LiveRun, str], Response] = lambda run, kind: streaming.sse(run, abort=True)
    """The answer that is sent as the run's events come."""
    begun: Callable[[LiveRun, str], Response] | None = None
    """The answer of a run that still goes on: its large values as they come, and the result behind them."""

    def serves(self, kind: str) -> bool:
        return any(kind == one or (one.endswith("/") and kind.startswith(one)) for one in self.types)


class Accepted(NamedTuple):
    """A type or range in an `Accept` header, and the form of its answers."""

    kind: str
    format: Format
    begun: Callable[[LiveRun, str], Response] | None = None
    """As that of the format, if the client takes an answer that begins before the run's end."""


def accepted(accept: str) -> tuple[Accepted, ...]:
    """The types and ranges in an `Accept` header that an answer can have, most preferred first; `*/*` means JSON. Empty
    if there is none."""
    weighed: list[tuple[float, Accepted]] = []
    for entry in (accept or JSON).split(",")[:_MOST_RANGES]:
        kind, *options = (piece.strip().lower() for piece in entry.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        kind = JSON if kind in ("", "*/*", "application/*") else kind
        found = next((one for one in FORMATS if one.serves(kind)), None)
        if found is not None:
            early = found.begun if "early=1" in options else None
            weighed.append((-_weight(weight), Accepted(kind, found, early)))
    return tuple(one for weight, one in sorted(weighed, key=lambda found: found[0]) if weight < 0)


def _weight(text: str) -> float:
    digits = text.replace(".", "", 1)
    return min(float(text), 1.0) if digits.isascii() and digits.isdigit() and len(text) <= 8 else 1.0


def refused() -> Response:
    told = ", ".join(f"`{one.types[0]}`" for one in FORMATS if not one.types[0].endswith("/"))
    return problems.problem(406, "invalid_input", f"the answer can be {told}, or one value's own type")


def result(run: LiveRun, outputs: tuple[str, ...], kinds: tuple[Accepted, ...]) -> Response:
    """The answer of a finished run in the first of `kinds` that fits its outputs. `outputs`: the task's outputs in
    their order."""
    for one in kinds:
        found = one.format.whole(run, outputs, one.kind)
        if found is not None:
            return found
    told = ", ".join(f"`{name}`" for name in dict.fromkeys(output.name for output in run.outputs)) or "none"
    detail = f"no output of the run is a single value of the accepted type (its outputs: {told})"
    return problems.problem(
        406, "invalid_input", f"{detail}; name one in `outputs`, or accept `{FORMS[0]}` or `{JSON}`"
    )


def waits(run: LiveRun) -> Response:
    """The answer for a run that waits for a person: what it has sent so far, and what the person is asked."""
    outlet = Spliced(outlets.JSON)
    told = _waiting(run, outlet)
    headers = {"Location": f"/api/v1/runs/{run.id}", "Content-Type": JSON}
    return pieces.answer(tuple(outlet.pieces(told)), headers, 202)


def _waiting(run: LiveRun, outlet: outlets.Outlet) -> dict[str, Any]:
    return {"state": run.state, **results.result_of(run, outlet), "approval": results.approval_of(run)}


def _json(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response:
    return _spliced(run, outlets.JSON, JSON)


def _msgpack(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response:
    return _spliced(run, outlets.MSGPACK, kind)


def _spliced(run: LiveRun, codec: outlets.Codec, kind: str) -> Response:
    outlet = Spliced(codec)
    told = results.result_of(run, outlet)
    return pieces.answer(tuple(outlet.pieces(told)), {"Content-Type": kind})


def _safetensors(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response | None:
    """The tensors of a run, if it has no other outputs: `name`, or `name.0`, `name.1` ... for several of one output."""
    made: dict[str, list[m.InlineTensor]] = {}
    for output in run.outputs:
        if not isinstance(output.value, m.InlineTensor):
            return None
        made.setdefault(output.name, []).append(output.value)
    named = {
        name if len(made[name]) == 1 else f"{name}.{number}": value
        for name in outputs
        for number, value in enumerate(made.get(name, ()))
    }
    if not named:
        return None
    return pieces.answer(tensors.safetensors(named, {"run": run.id, "seed": str(run.seed)}), {"Content-Type": kind})


def _bare(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response | None:
    """The first output that is a single value of this type."""
    for name in outputs:
        sent = [output for output in run.outputs if output.name == name]
        made = values.joined(sent)
        if len(made) == 1:
            mime, data = _raw(made[0])
            file = sent[0].modality == BYTES and isinstance(made[0], m.Blob)
            mime = UNKNOWN if file and kind == UNKNOWN else mime
            if mime and (mime == kind or (kind.endswith("/*") and mime.startswith(kind[:-1]))):
                headers = {"X-Walkgraph-Output": name, "X-Walkgraph-Seed": str(run.seed)}
                if isinstance(made[0], m.InlineTensor):
                    headers["X-Walkgraph-Dtype"] = made[0].dtype
                    headers["X-Walkgraph-Shape"] = ",".join(map(str, made[0].shape))
                if file:
                    headers["Content-Disposition"] = f'attachment; filename="{name}{suffix_of(mime_of(data))}"'
                if mime.startswith("text/"):
                    mime = f"{mime}; charset=utf-8"
                return pieces.answer((data,), {**headers, "Content-Type": mime})
    return None


def _raw(value: m.Value) -> tuple[str, pieces.Bytes]:
    """(media type, bytes) of a value; an empty type for values that can't be sent as bytes."""
    match value:
        case m.Blob():
            return mime_of(value.data), value.data
        case m.InlineTensor():
            return UNKNOWN, value.data
        case m.Small(value=str() as text):
            return "text/plain", text.encode()
        case m.Small():
            return "text/plain", msgspec.json.encode(value.value)
        case _:
            return "", b""


def _form(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response:
    """The answer as a form: a part `result`, and the parts `0`, `1` ... that it names as frames."""
    boundary = secrets.token_hex(16)
    return pieces.answer(_end(run, (), boundary), {"Content-Type": f"{kind}; boundary={boundary}"})


def _begun_form(run: LiveRun, kind: str) -> Response:
    """The answer as a form whose frames come before the result that names them. Where the run fails, the part `problem`
    stands in place of the result."""
    boundary = secrets.token_hex(16)
    return Streamed(_as_they_come(run, boundary), lambda: leave((run,)), f"{kind}; boundary={boundary}")


async def _as_they_come(run: LiveRun, boundary: str) -> AsyncGenerator[pieces.Bytes]:
    beside, position, sent = Frames(), 0, 0
    while not run.resting:
        told = await run.after(position)
        position += len(told)
        for event in told:
            if isinstance(event, m.Output) and values.is_early(event.value):
                values.write(event.value, event.modality, beside)
        for window in pieces.windows(_frames(beside, sent, boundary)):
            yield window
        sent = len(beside.found)
    for window in pieces.windows(_end(run, beside.found, boundary)):
        yield window


def _end(run: LiveRun, sent: Sequence[pieces.Bytes], boundary: str) -> list[pieces.Piece]:
    """The result of a run that rests, the frames that it names but for those `sent` before, and the end of the
    form."""
    if run.finished is not None and run.finished.error is not None:
        failed = problems.of_run(run.finished.error)
        return [*pieces.part(boundary, "problem", PROBLEM_JSON, failed.body), pieces.last(boundary)]
    beside = Frames(sent)
    shown = results.result_of(run, beside) if run.waiting is None else _waiting(run, beside)
    told = msgspec.json.encode({frames.COUNT: len(beside.found), **shown})
    return [
        *pieces.part(boundary, "result", JSON, told),
        *_frames(beside, len(sent), boundary),
        pieces.last(boundary),
    ]


def _frames(beside: Frames, sent: int, boundary: str) -> Iterator[pieces.Bytes]:
    """The parts of the frames from number `sent` on."""
    for number, data in enumerate(beside.found[sent:], sent):
        yield from pieces.part(boundary, str(number), mime_of(data), data)


FORMATS = (
    Format((JSON,), _json),
    Format((EVENTS,), _json),
    Format(FORMS, _form, streaming.parts, _begun_form),
    Format(MSGPACK, _msgpack, streaming.packed),
    Format((SAFETENSORS,), _safetensors),
    Format(RAW, _bare),
)


# ── OpenAPI descriptions of both ────────────────────────────────────────────────────────────────

_OBJECT: dict[str, Any] = {"type": "object"}
_BYTES: dict[str, Any] = {"type": "string", "format": "binary"}
REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "`GET` returns the schema. As a form: the part `request` and the parts that its frames name, or "
        "a part for each input.",
        "content": {
            JSON: {"schema": _OBJECT},
            multipart.MEDIA_TYPE: {"schema": {"type": "object", "additionalProperties": _BYTES}},
        },
    }
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The run waits for a person: its outputs so far, and `approval`. `Location` is the run.",
        "content": {JSON: {"schema": _OBJECT}},
    },
    200: {
        "description": "In the accepted type: the result, its events, one of its values, or all of them in parts.",
        "content": {
            JSON: {"schema": _OBJECT},
            EVENTS: {"schema": {"type": "string"}},
            **{kind: {"schema": _BYTES} for kind in (*FORMS, *MSGPACK, SAFETENSORS)},
            **{kind: {"schema": _BYTES} for kind in ("image/*", "audio/*", ZIP, UNKNOWN)},
            "text/plain": {"schema": {"type": "string"}},
        },
    },
}
