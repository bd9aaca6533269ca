"""Converts requests of `POST /v1/images/generations` and `/edits` to requests of a task.

Settings of OpenAI's that a task can't follow are refused with an explanation. Other keys are parameters of the task or
its other text inputs (`steps`, `seed`, `negative_prompt`).
"""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from walkgraph.errors import InvalidInput, NotFound, WalkgraphError
from walkgraph.graph.steps import is_needed
from walkgraph.media_types import mime_of
from walkgraph.placement.tables import Scalar
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Fault, Unprocessable, pointer
from walkgraph.service.openai import serving
from walkgraph.service.openai.serving import Resolved, Route, Serving

FORMATS = ("png", "jpeg", "webp")
"""The first is the default."""
PREVIEW_EVERY = "preview_every"
STEPS = "steps"
SIDES = ("width", "height")
_FORMATS = frozenset({"image/png", "image/jpeg", "image/webp"})
MASK = "mask"
"""Usual names of the parameters for the iterations between previews, the number of iterations and the image's size,
and of the input with the area to edit."""
OURS = ("priority", "deadline")
"""Keys of a native request that are allowed beside OpenAI's."""
PICTURES = {"image", "images", "mask"}
"""Keys of OpenAI's body that hold images."""
N = 8
PARTIAL = 3

_NEUTRAL = {
    "response_format": (
        ("b64_json",),
        "images are not stored, so there is nothing to link to; leave `response_format` out, or ask for `b64_json`",
    ),
    "output_format": (FORMATS, "images can be `png`, `jpeg` or `webp`"),
    "quality": (
        ("auto", "standard"),
        "`quality` is not supported; leave it out, and set the task's `steps`",
    ),
    "background": (("auto", "opaque"), "images are always opaque; leave `background` out"),
    "moderation": (("auto", "low"), "moderation is not supported; leave `moderation` out"),
    "style": ((), "leave `style` out, and describe it in the prompt"),
    "input_fidelity": ((), "leave `input_fidelity` out, and set the task's parameters"),
}
"""Allowed values of OpenAI's settings, with advice for other values. A task's parameter of the same name overrides
them."""

_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", re.ASCII)

Text = Annotated[str, Field(max_length=limits.TEXT_CHARACTERS)]
Word = Annotated[str, Field(max_length=64)]


def _choice(name: str) -> Any:
    """A field for a setting. The schema allows any value, since the task may have a parameter of that name."""
    allowed, advice = _NEUTRAL[name]
    told = f"One of {', '.join(allowed)}. " if allowed else ""
    return Field(default=None, max_length=64, description=f"{told}Otherwise: {advice}.")


class PicturesRequest(BaseModel):
    """OpenAI's body. Other keys are parameters of the task."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    model: Annotated[str, Field(min_length=1, max_length=129)] | None = Field(
        default=None, description="`deployment` or `deployment/task`; optional if only one deployment serves this."
    )
    prompt: Text | None = Field(default=None, description="What the image should show, or what should change.")
    n: int | None = Field(default=None, ge=1, le=N, description="Number of images; each has its own seed.")
    size: str | None = Field(
        default=None,
        max_length=16,
        description="`auto`: the task's default. `WIDTHxHEIGHT` if the task has parameters for them; the answer has "
        "the actual size.",
    )
    response_format: str | None = _choice("response_format")
    output_format: str | None = _choice("output_format")
    output_compression: int | None = Field(default=None, ge=0, le=100, description="Quality of `jpeg` and `webp`.")
    stream: bool | None = None
    partial_images: int | None = Field(
        default=None, ge=0, le=PARTIAL, description="Previews to stream, if the task has them."
    )
    quality: str | None = _choice("quality")
    background: str | None = _choice("background")
    moderation: str | None = _choice("moderation")
    style: str | None = _choice("style")
    input_fidelity: str | None = _choice("input_fidelity")
    user: Word | None = None
    safety_identifier: Word | None = None

    @property
    def form(self) -> str:
        return self.output_format if self.output_format in FORMATS else FORMATS[0]

    @property
    def previews(self) -> int:
        """Number of previews asked for."""
        return (self.partial_images or 0) if self.stream else 0


class ImageReference(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    image_url: str = Field(max_length=limits.BODY_BYTES, description="A `data:` URL; images are not downloaded.")


Image = Annotated[str, Field(max_length=limits.BODY_BYTES)] | ImageReference


class EditRequest(PicturesRequest):
    """OpenAI's body as JSON: images are `data:` URLs or base64."""

    image: Image | Annotated[list[Image], Field(max_length=limits.IMAGES)] | None = None
    images: Annotated[list[Image], Field(max_length=limits.IMAGES)] | None = Field(
        default=None, description="Another name of `image`."
    )
    mask: Image | None = Field(default=None, description="The area to edit, for tasks that have a `mask` input.")

    def shown(self) -> "Shown":
        one = self.image if isinstance(self.image, list) or self.image is None else [self.image]
        found = [(f"/image/{i}" if isinstance(self.image, list) else "/image", e) for i, e in enumerate(one or ())]
        found += [(f"/images/{i}", entry) for i, entry in enumerate(self.images or ())]
        return Shown(tuple((at, _data(entry)) for at, entry in found), _data(self.mask) if self.mask else None)


def _data(entry: Image) -> str:
    return entry.image_url if isinstance(entry, ImageReference) else entry


@dataclass(frozen=True)
class Shown:
    """A request's encoded images, as bytes or base64 text."""

    images: tuple[tuple[str, bytes | str], ...] = ()
    """(pointer, data)."""
    mask: bytes | str | None = None


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def resolve(deployments: Deployments, model: str | None, route: Route) -> Resolved:
    """As `serving.resolve`; without a model, the only deployment that serves the route."""
    if model is not None:
        return serving.resolve(deployments, model, route)
    judged = [(m.id, m.graph, m.plan) for m in deployments.offered()]
    able = [id_ for id_, graph, plan in judged if graph is not None and route in serving.routes(graph, plan)]
    if len(able) == 1:
        return serving.resolve(deployments, able[0], route)
    if not able:
        raise NotFound(f"no deployment serves {route}; deploy one that does", "/model")
    raise _wrong("/model", f"name the model; there are {_listed(able)}", "missing")


def task_bodies(asked: PicturesRequest, serving: Serving, shown: Shown | None = None) -> list[dict[str, Any]]:
    """The bodies of the native requests, one per image. Raises Unprocessable, with pointers into OpenAI's body."""
    final = serving.output_of("image")
    if final is None:
        raise NotFound(f"task `{serving.name}` outputs no image", "/model")
    ours, params, inputs = _extras(asked, serving)
    _judge_compression(asked)
    params |= _settings(asked, serving) | _sides(asked, serving, params)
    outputs = [final.name, *(output.name for output in serving.outputs if output.modality == "text")]
    if serving.preview is not None and asked.previews > 0:
        outputs.append(serving.preview.name)
        params |= _distance(asked.previews, serving, params)
    inputs |= _prompt(asked, serving)
    if shown is not None:
        inputs |= _images(serving, shown)
    seeds = _seeds(params.pop("seed", None), asked.n or 1, serving)
    return [{**ours, "inputs": inputs, "params": {**params, **seed}, "outputs": outputs} for seed in seeds]


def _extras(asked: PicturesRequest, serving: Serving) -> tuple[dict[str, Any], dict[str, Scalar], dict[str, Any]]:
    """(native fields, parameters, text inputs) among the keys that are not OpenAI's."""
    texts = serving.inputs_of("text")
    ours: dict[str, Any] = {}
    params: dict[str, Scalar] = {}
    inputs: dict[str, Any] = {}
    for name, value in (asked.model_extra or {}).items():
        if value is None:
            continue
        if name in serving.params:
            params[name] = value
        elif name in texts:
            inputs[name] = value
        elif name in OURS:
            ours[name] = value
        else:
            known = sorted({*serving.params, *texts, *PicturesRequest.model_fields, *OURS})
            near = difflib.get_close_matches(name[:64], known, n=1)
            advice = f"did you mean `{near[0]}`?" if near else f"the task's parameters are {_listed(serving.params)}"
            raise _wrong(pointer([name[:200]]), f"the key `{name[:64]}` is not known here; {advice}", "unknown_key")
    return ours, params, inputs


def _settings(asked: PicturesRequest, serving: Serving) -> dict[str, Scalar]:
    """OpenAI's settings that are parameters of the task."""
    found: dict[str, Scalar] = {}
    for name, (allowed, advice) in _NEUTRAL.items():
        given: str | None = getattr(asked, name)
        if given is None:
            continue
        if name in serving.params:
            found[name] = given
        elif given not in allowed:
            raise _wrong(f"/{name}", advice)
    return found


def _judge_compression(asked: PicturesRequest) -> None:
    if asked.form == "png" and asked.output_compression not in (None, 100):
        raise _wrong("/output_compression", "`png` is lossless; leave `output_compression` out, or ask for `jpeg`")


def _sides(asked: PicturesRequest, serving: Serving, given: Iterable[str]) -> dict[str, Scalar]:
    if asked.size is None or asked.size == "auto":
        return {}
    if not all(name in serving.params for name in SIDES):
        raise _wrong("/size", f"task `{serving.name}` has a fixed size; leave `size` out")
    found = _SIZE.fullmatch(asked.size)
    if found is None:
        raise _wrong(
            "/size", f"write the size as `WIDTHxHEIGHT`, or `auto`; task `{serving.name}` draws {_sizes(serving)}"
        )
    if any(name in given for name in SIDES):
        raise _wrong("/size", "the size is given twice; leave out `size`, or `width` and `height`")
    wanted: dict[str, Scalar] = dict(zip(SIDES, map(int, found.groups()), strict=True))
    for name, value in wanted.items():
        param = serving.params[name]
        if not (param.min or 0) <= int(value) <= (math.inf if param.max is None else param.max):
            raise _wrong("/size", f"task `{serving.name}` draws {_sizes(serving)}")
    return wanted


def _sizes(serving: Serving) -> str:
    """The allowed sizes in words."""
    told: list[str] = []
    for name in SIDES:
        param = serving.params[name]
        low, high = param.min or 1, param.max
        told.append(f"{name}s from {low:g}" + (f" to {high:g}" if high is not None else ""))
    return f"{' and '.join(told)} ({serving.params[SIDES[0]].description})"


def _distance(count: int, serving: Serving, params: dict[str, Scalar]) -> dict[str, Scalar]:
    """The distance that gives about `count` previews before the image; the client's own value overrides it."""
    if PREVIEW_EVERY not in serving.params or PREVIEW_EVERY in params or STEPS not in serving.params:
        return {}
    steps = params.get(STEPS, serving.params[STEPS].default)
    if not isinstance(steps, int) or isinstance(steps, bool):
        return {}
    # One iteration fewer runs than there are timesteps.
    every = max(1, -(-(steps - 1) // (count + 1)))
    most = serving.params[PREVIEW_EVERY].max
    return {PREVIEW_EVERY: every if most is None else min(every, int(most))}


def _prompt(asked: PicturesRequest, serving: Serving) -> dict[str, Any]:
    texts = serving.inputs_of("text")
    needed = [name for name in texts if is_needed(serving.task.inputs[name])]
    if not asked.prompt:
        if needed:
            raise _wrong("/prompt", "a `prompt` is needed", "missing")
        return {}
    if not texts:
        raise _wrong("/prompt", f"task `{serving.name}` takes no text; leave `prompt` out", "unsupported_parameter")
    return {prompt_input(serving): asked.prompt}


def prompt_input(serving: Serving) -> str:
    """The required text input, or the first."""
    texts = serving.inputs_of("text")
    return next((name for name in texts if is_needed(serving.task.inputs[name])), texts[0])


def _images(serving: Serving, shown: Shown) -> dict[str, Any]:
    names = [name for name in serving.inputs_of("image") if name != MASK]
    if not shown.images:
        raise _wrong("/image", "an `image` is needed", "missing")
    if len(shown.images) > limits.IMAGES:
        raise _wrong("/image", f"send at most {limits.IMAGES} images", "too_long")
    many = serving.task.inputs[names[0]].many
    room = limits.IMAGES if many else len(names)
    if len(shown.images) > room:
        raise _wrong("/image", f"task `{serving.name}` takes {room} image{'s' * (room > 1)}", "too_long")
    found: dict[str, Any] = {}
    pictures = [_picture(at, data) for at, data in shown.images]
    if many:
        found[names[0]] = pictures
    else:
        found |= dict(zip(names, pictures, strict=False))
    if shown.mask is not None:
        if MASK not in serving.inputs_of("image"):
            message = f"task `{serving.name}` takes no mask; say in the prompt what is to change"
            raise _wrong("/mask", message, "unsupported_parameter")
        found[MASK] = _picture("/mask", shown.mask)
    return found


def _picture(at: str, data: bytes | str) -> dict[str, Any]:
    if isinstance(data, bytes):
        if not data:
            raise _wrong(at, "this image is empty")
        if mime_of(data) not in _FORMATS:
            raise _wrong(at, "this image is not a PNG, JPEG or WebP file, whatever its name", "invalid_image_format")
    elif data.startswith(("http:", "https:")):
        raise _wrong(at, "this service downloads no images; send the image itself, as a `data:` URL", "invalid_url")
    return {"type": "image", "data": data}


def _seeds(seed: Scalar | None, count: int, serving: Serving) -> Sequence[dict[str, Scalar]]:
    """A different seed for each image; the runs draw theirs if the client gives none."""
    if seed is None:
        return [dict[str, Scalar]() for _ in range(count)]
    if not isinstance(seed, int) or isinstance(seed, bool):
        return [{"seed": seed}]
    most = serving.params["seed"].max
    return [{"seed": seed + k if most is None or seed + k <= most else seed - k} for k in range(count)]


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


def in_openai_terms(error: WalkgraphError, serving: Serving) -> WalkgraphError:
    """The native request's error, with pointers into OpenAI's body."""
    if not isinstance(error, Unprocessable):
        return error
    return Unprocessable(str(error), [Fault(_place(f.pointer, serving), f.code, f.message) for f in error.faults])


def _place(at: str, serving: Serving) -> str:
    head, _, rest = at.removeprefix("/").partition("/")
    if head == "params":
        return f"/{rest}"
    if head in OURS:
        return f"/{head}"
    name, _, rest = rest.partition("/")
    if head != "inputs" or name not in serving.task.inputs:
        return ""
    if serving.task.inputs[name].modality == "image":
        return f"/{MASK}" if name == MASK else "/image"
    return "/prompt" if name == prompt_input(serving) else f"/{name}"


def _wrong(at: str, message: str, code: str = "bad_value") -> InvalidInput:
    return Unprocessable(message, [Fault(at, code, message)])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
