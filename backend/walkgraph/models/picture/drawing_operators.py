"""Boxes and text drawn on pictures, and pictures encoded, by Pillow."""

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, plain_text
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.pictures import MAX_PIXELS, all_pixels_of, pixels_of
from walkgraph.layers.pictures.patches import normalise, to_levels
from walkgraph.models.picture.components import MOST_BOXES, MOST_CHARACTERS, MOST_LISTED
from walkgraph.models.picture.stacked import color_of

_LABEL_CHARACTERS = 100
_LONGEST = 16383
"""The longest side of a WebP picture; a JPEG's may be longer."""
_SHADE = (0, 0, 0)


class Annotate(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": pixels} for pixels in map(_annotated, calls)]


class Encode(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"image": image} for image in map(_encoded, calls)]


class Animate(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"image": image} for image in map(_animated, calls)]


def _annotated(call: Call) -> Tensor:
    pixels = pixels_of(call, "pixels")
    boxes, labels = _boxes(call, pixels.shape[2], pixels.shape[1]), _labels(call)
    picture = Image.fromarray(to_levels(pixels).cpu().numpy())
    draw, color = ImageDraw.Draw(picture), color_of(call)
    font = ImageFont.load_default(int(call.params["size"]))
    thickness = int(call.params["thickness"])
    for box in boxes:
        draw.rectangle(box, outline=color, width=thickness)
    for (left, top, *_), label in zip(boxes, labels, strict=False):
        _write_label(draw, font, (left, top), label, color)
    if call.inputs.get("text") is not None:
        _write(call, draw, font, picture.size)
    return normalise(torch.from_numpy(np.array(picture)))


def _boxes(call: Call, width: int, height: int) -> list[tuple[int, int, int, int]]:
    """In whole pixels, each with its smaller coordinates first, at most one line beyond the picture."""
    given = call.inputs.get("boxes")
    if given is None:
        return []
    sound = isinstance(given, Tensor) and given.dim() == 2 and given.shape[1] == 4 and len(given) <= MOST_BOXES
    if not sound or not given.float().isfinite().all():
        message = f"`boxes` of `{call.node}` has four finite numbers for each of at most {MOST_BOXES} boxes"
        raise CallFailed(message, "boxes", code="invalid_input")
    edge = int(call.params["thickness"])
    scale = (width, height) if call.params["unit"] == "shares" else (1, 1)
    made = []
    for x1, y1, x2, y2 in given.tolist():
        xs = sorted(round(min(max(x * scale[0], -edge), width + edge)) for x in (x1, x2))
        ys = sorted(round(min(max(y * scale[1], -edge), height + edge)) for y in (y1, y2))
        made.append((xs[0], ys[0], xs[1], ys[1]))
    return made


def _labels(call: Call) -> list[str]:
    given: Any = call.inputs.get("labels", ())
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise CallFailed(f"`labels` of `{call.node}` is a list of texts", "labels", code="invalid_input")
    return [" ".join(plain_text(label[:_LABEL_CHARACTERS]).split()) for label in given[:MOST_BOXES]]


def _write_label(
    draw: ImageDraw.ImageDraw,
    font: Any,
    corner: tuple[int, int],
    label: str,
    color: tuple[int, int, int],
) -> None:
    """A label on a field of the box's colour, above the box's corner, or below it at the top of the picture."""
    if not label:
        return
    height = sum(font.getmetrics())
    left, top = max(corner[0], 0), corner[1] - height if corner[1] >= height else max(corner[1], 0)
    draw.rectangle((left, top, left + font.getlength(label) + 4, top + height), fill=color)
    light = sum(color) > 382
    draw.text((left + 2, top), label, font=font, fill=(0, 0, 0) if light else (255, 255, 255))


def _write(call: Call, draw: ImageDraw.ImageDraw, font: Any, size: tuple[int, int]) -> None:
    """The text, with a dark rim so that it can be read on any picture."""
    text = call.text("text")
    if len(text) > MOST_CHARACTERS:
        message = f"`{call.node}` writes at most {MOST_CHARACTERS} characters on a picture, and this has {len(text):,}"
        raise CallFailed(message, "text", code="invalid_input")
    height, margin = sum(font.getmetrics()), max(2, int(call.params["size"]) // 4)
    fitting = max((size[1] - 2 * margin) // height, 1)
    lines = [line for _, line in zip(range(fitting), _wrapped(text, font, size[0] - 2 * margin), strict=False)]
    free = size[1] - 2 * margin - len(lines) * height
    top = margin + {"top": 0, "middle": free // 2, "bottom": free}[str(call.params["place"])]
    for index, line in enumerate(lines):
        at = (margin, top + index * height)
        draw.text(at, line, font=font, fill=color_of(call), stroke_width=max(1, margin // 4), stroke_fill=_SHADE)


def _wrapped(text: str, font: Any, width: int) -> Iterator[str]:
    """The lines of a text that fit into a width; words that don't are broken."""
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if font.getlength(longer) <= width:
                line = longer
                continue
            if line:
                yield line
            line = word
            while len(line) > 1 and font.getlength(line) > width:
                fits = bisect_right(range(2, len(line)), width, key=lambda n, line=line: font.getlength(line[:n])) + 1
                yield line[:fits]
                line = line[fits:]
        yield line


def _encoded(call: Call) -> bytes:
    pixels = pixels_of(call, "pixels")
    _allow_side(call, "pixels", pixels)
    made = io.BytesIO()
    picture = Image.fromarray(to_levels(pixels).cpu().numpy())
    picture.save(made, str(call.params["format"]).upper(), quality=int(call.params["quality"]))
    return made.getvalue()


def _allow_side(call: Call, port: str, pixels: Tensor) -> None:
    if max(pixels.shape) > _LONGEST:
        message = f"`{call.node}` encodes sides of at most {_LONGEST:,} pixels; make the picture smaller first"
        raise CallFailed(message, port, code="invalid_input")


def _animated(call: Call) -> bytes:
    pictures = all_pixels_of(call, "pictures", MOST_LISTED)
    shapes = {tuple(picture.shape) for picture in pictures}
    if len(shapes) > 1:
        message = f"the frames of `{call.node}` have different sizes; resize them first"
        raise CallFailed(message, "pictures", code="invalid_input")
    ((_, height, width),) = shapes
    _allow_side(call, "pictures", pictures[0])
    if len(pictures) * height * width > MAX_PIXELS:
        message = f"`{call.node}` encodes at most {MAX_PIXELS // 10**6} million pixels in all"
        raise CallFailed(f"{message}; make the frames fewer or smaller", "pictures", code="invalid_input")
    first, *others = (Image.fromarray(to_levels(picture).cpu().numpy()) for picture in pictures)
    kind, loops = str(call.params["format"]).upper(), int(call.params["loops"])
    options: dict[str, Any] = {"quality": int(call.params["quality"]), "method": 0} if kind == "WEBP" else {}
    if kind != "GIF" or loops != 1:
        # A GIF counts how often it starts again, and one without a count plays once.
        options["loop"] = loops - 1 if kind == "GIF" and loops else loops
    made = io.BytesIO()
    span = round(1000 / float(call.params["rate"]))
    first.save(made, kind, save_all=True, append_images=others, duration=span, **options)
    return made.getvalue()
