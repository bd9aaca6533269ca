"""Reads forms of `POST /v1/images/edits`: their images, and their fields as JSON values."""

from typing import Any

from pydantic import ValidationError

from walkgraph.graph.document import TaskParam
from walkgraph.service.http import body, limits
from walkgraph.service.http.body import BadForm, BadJson
from walkgraph.service.http.multipart import Form, Part
from walkgraph.service.http.problems import Fault, Unprocessable, pointer, validation_faults
from walkgraph.service.openai.images.pictures import PICTURES, EditRequest, PicturesRequest, Shown
from walkgraph.service.openai.serving import Serving

IMAGES = ("image", "image[]")
MASK = "mask"
_INTEGERS = frozenset({"n", "output_compression", "partial_images", "priority"})
_NUMBERS = frozenset({"deadline"})
_FLAGS = frozenset({"stream"})
_PICTURES = frozenset((name,) for name in PICTURES)
_WORDS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}


def edit_of_json(value: Any) -> tuple[PicturesRequest, Shown]:
    """Reads a JSON body. Raises Unprocessable."""
    try:
        asked = EditRequest.model_validate(value)
    except ValidationError as error:
        raise _unprocessable(error) from None
    return asked, asked.shown()


def model_of(form: Form) -> str | None:
    part = form.one("model")
    return part.text if part else None


def edit_of_form(form: Form, serving: Serving) -> tuple[PicturesRequest, Shown]:
    """Reads a form. Its fields are texts; each is converted to the type in OpenAI's body or of the task's parameter.
    Raises BadForm and Unprocessable."""
    mask = form.one(MASK)
    images = form.named(*IMAGES)
    shown = Shown(
        tuple((f"/image/{i}" if len(images) > 1 else "/image", part.data) for i, part in enumerate(images)),
        mask.data if mask else None,
    )
    fields: dict[str, Any] = {}
    for name in form.names:
        part = form.one(name) if name not in IMAGES else None
        if part is not None and name != MASK:
            fields[name] = _value(part, serving.params.get(name))
    try:
        return PicturesRequest.model_validate(fields), shown
    except ValidationError as error:
        raise _unprocessable(error) from None


def _value(part: Part, param: TaskParam | None) -> Any:
    """Converts a field. A text that can't be converted stays as it is, and the schema refuses it."""
    if part.filename is not None:
        raise BadForm(f"the part `{part.name}` is a file; send an image as `image`", f"/{part.name}")
    text = part.text
    kind = param.type if param is not None else ""
    if part.name in _FLAGS or kind == "boolean":
        return _WORDS.get(text, text)
    if part.name in _INTEGERS or kind == "integer":
        return _number(text, int)
    return _number(text, float) if part.name in _NUMBERS or kind == "number" else text


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    """Parses a JSON number of this kind; other texts stay texts."""
    try:
        found = body.parse(text)
    except BadJson:
        return text
    if type(found) is int:
        return kind(found)
    return found if type(found) is kind else text


def _unprocessable(error: ValidationError) -> Unprocessable:
    # Replaces pydantic's errors about images: they would list the union's members that were tried.
    found = error.errors(include_url=False, include_input=False)
    faults = validation_faults(one for one in found if one["loc"][:1] not in _PICTURES)
    message = f"send a `data:` URL or base64; a list may have up to {limits.IMAGES} images"
    wrong = dict.fromkeys(pointer(one["loc"][:1]) for one in found if one["loc"][:1] in _PICTURES)
    faults += [Fault(at, "bad_value", message) for at in wrong]
    return Unprocessable("some fields of the request are wrong", faults)
