"""Reads a task's request over HTTP, as JSON or as a form, and writes its answer in the type that the client accepts.

    application/json       the result
    text/event-stream      its events as they come; with `"stream": true`, also as parts of `multipart/mixed`
    image/png, image/*, audio/wav, text/plain, application/zip, application/octet-stream ...
                           the bytes of the one value of that type
    multipart/mixed, multipart/form-data    the result, and a part for each of its media and tensors

The `Accept` header's most preferred type that fits is used.
"""

import secrets
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Task
from walkgraph.media_types import UNKNOWN, ZIP, mime_of, suffix_of
from walkgraph.service.http import body, frames, multipart, pieces
from walkgraph.service.http.problems import problem
from walkgraph.service.runs import results
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import values
from walkgraph.wire import messages as m

JSON = "application/json"
EVENTS = "text/event-stream"
BYTES = "bytes"
"""The modality of files of other kinds, which browsers save."""
FORMS = ("multipart/mixed", multipart.MEDIA_TYPE)
RAW = ("image/", "audio/", "video/", "text/plain", ZIP, UNKNOWN)
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


def accepted(accept: str) -> tuple[str, ...]:
    """The types and ranges in an `Accept` header that an answer can have, most preferred first; `*/*` means JSON. Empty
    if there is none."""
    if accept in ("", "*/*", JSON):
        return (JSON,)
    weighed: list[tuple[float, str]] = []
    for entry in accept.split(",")[:_MOST_RANGES]:
        kind, *options = (piece.strip().lower() for piece in entry.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        kind = JSON if kind in ("", "*/*", "application/*") else kind
        if kind in (JSON, EVENTS, *FORMS) or kind.startswith(RAW):
            weighed.append((-_weight(weight), kind))
    return tuple(kind for weight, kind in sorted(weighed, key=lambda found: found[0]) if weight < 0)


def _weight(text: str) -> float:
    digits = text.replace(".", "", 1)
    return min(float(text), 1.0) if digits.isascii() and digits.isdigit() and len(text) <= 8 else 1.0


def refused() -> Response:
    return problem(
        406, "invalid_input", f"the answer can be `{JSON}`, `{EVENTS}`, `{FORMS[0]}`, or one value's own type"
    )


def result(run: LiveRun, outputs: tuple[str, ...], kinds: tuple[str, ...]) -> Response:
    """The answer of a finished run in the first of `kinds` that fits its outputs. `outputs`: the task's outputs in
    their order."""
    for kind in kinds:
        if kind in (JSON, EVENTS):
            return Response(msgspec.json.encode(results.result_of(run)), media_type=JSON)
        if kind in FORMS:
            return _form(run, kind)
        found = _bare(run, outputs, kind)
        if found is not None:
            return found
    told = ", ".join(f"`{name}`" for name in dict.fromkeys(output.name for output in run.outputs)) or "none"
    detail = f"no output of the run is a single value of the accepted type (its outputs: {told})"
    return problem(406, "invalid_input", f"{detail}; name one in `outputs`, or accept `{FORMS[0]}` or `{JSON}`")


def waits(run: LiveRun) -> Response:
    """The answer for a run that waits for a person: what it has sent so far, and what the person is asked."""
    told = {"state": run.state, **results.result_of(run), "approval": results.approval_of(run)}
    headers = {"Location": f"/api/v1/runs/{run.id}"}
    return Response(msgspec.json.encode(told), 202, headers, JSON)


def _bare(run: LiveRun, outputs: tuple[str, ...], kind: str) -> Response | None:
    """The first output that is a single value of this type, as an answer."""
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


def _form(run: LiveRun, kind: str) -> Response:
    """The answer as a form: a part `result`, and the parts `0`, `1` ... that it names as frames."""
    found: list[bytes] = []
    shown = results.result_of(run, found)
    told = msgspec.json.encode({frames.COUNT: len(found), **shown})
    boundary = secrets.token_hex(16)
    sent = [*pieces.part(boundary, "result", JSON, told)]
    for number, data in enumerate(found):
        sent += pieces.part(boundary, str(number), mime_of(data), data)
    sent.append(pieces.last(boundary))
    return pieces.answer(sent, {"Content-Type": f"{kind}; boundary={boundary}"})


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
            **{kind: {"schema": _BYTES} for kind in (*FORMS, "image/*", "audio/*", ZIP, UNKNOWN)},
            "text/plain": {"schema": {"type": "string"}},
        },
    },
}
