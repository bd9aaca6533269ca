"""Pictures by the official client: a table of calls, good and bad, streamed and not."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import httpx2
import openai
import pytest
from openai.types import ImagesResponse
from PIL import Image, ImageDraw

from tests.support.serving import Service

STEPS = {"steps": 4}
NATIVE = openai.types.ImagesResponse


@cache
def picture(form: str = "PNG", side: int = 64) -> bytes:
    """A red square on white."""
    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).rectangle((side // 4, side // 4, side * 3 // 4, side * 3 // 4), fill="red")
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def huge() -> bytes:
    """More pixels than are decoded, in few bytes."""
    buffer = io.BytesIO()
    Image.new("L", (12_000, 6_000)).save(buffer, "PNG")
    return buffer.getvalue()


def url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def opened(text: str | None) -> Image.Image:
    assert text is not None
    image = Image.open(io.BytesIO(base64.b64decode(text)))
    image.load()
    return image


def images(answer: ImagesResponse) -> list[Image.Image]:
    assert answer.data is not None
    return [opened(entry.b64_json) for entry in answer.data]


def form(answer: ImagesResponse) -> tuple[str | None, ...]:
    return tuple(image.format for image in images(answer))


def sizes(answer: ImagesResponse) -> set[tuple[int, int]]:
    found = {image.size for image in images(answer)}
    assert answer.size in {f"{width}x{height}" for width, height in found}
    return found


def tokens(answer: ImagesResponse) -> tuple[int, int]:
    usage = answer.usage
    assert usage is not None
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    details = usage.input_tokens_details
    assert details.image_tokens + details.text_tokens == usage.input_tokens
    assert 0 <= (details.model_extra or {})["cached_tokens"] <= usage.input_tokens
    return usage.input_tokens, usage.output_tokens


def ours(answer: ImagesResponse, name: str) -> list[Any]:
    assert answer.data is not None
    return [(entry.model_extra or {}).get(name) for entry in answer.data]


class Good(NamedTuple):
    name: str
    method: str
    call: dict[str, Any]
    check: Callable[[ImagesResponse], Any]


DRAW, EDIT = "generate", "edit"
GOOD = (
    Good("a picture", DRAW, {"model": "shapes"}, lambda a: sizes(a) == {(64, 64)} and form(a) == ("PNG",)),
    Good("what was read and drawn", DRAW, {"model": "shapes"}, lambda a: tokens(a)[0] > 2 and tokens(a)[1] == 16),
    Good("the task by name", DRAW, {"model": "bagel/text_to_image"}, lambda a: sizes(a) == {(32, 32)}),
    Good("a size", DRAW, {"model": "bagel", "size": "48x32"}, lambda a: sizes(a) == {(48, 32)}),
    Good("its own size", DRAW, {"model": "bagel", "size": "auto"}, lambda a: sizes(a) == {(32, 32)}),
    Good("a JPEG", DRAW, {"model": "shapes", "output_format": "jpeg"}, lambda a: form(a) == ("JPEG",)),
    Good(
        "a small WebP",
        DRAW,
        {"model": "shapes", "output_format": "webp", "output_compression": 10},
        lambda a: form(a) == ("WEBP",) and a.output_format == "webp",
    ),
    Good(
        "three pictures, each with a seed of its own",
        DRAW,
        {"model": "bagel", "n": 3, "extra_body": {"seed": 5}},
        lambda a: ours(a, "seed") == [5, 6, 7] and len({image.tobytes() for image in images(a)}) == 3,
    ),
    Good(
        "neutral settings",
        DRAW,
        {
            "model": "shapes",
            "response_format": "b64_json",
            "quality": "auto",
            "background": "auto",
            "moderation": "low",
            "user": "me",
        },
        lambda a: a.background == "opaque",
    ),
    Good(
        "a thought before the picture",
        DRAW,
        {"model": "bagel", "extra_body": {"think": True, "max_tokens": 5, "seed": 1}},
        lambda a: a.data[0].revised_prompt and tokens(a)[1] == 4 + 5,
    ),
    Good("an edit", EDIT, {"model": "shapes", "image": picture()}, lambda a: sizes(a) == {(64, 64)}),
    Good("a file by name", EDIT, {"model": "shapes", "image": ("../x.png", picture())}, lambda a: len(images(a)) == 1),
    Good("a JPEG is edited", EDIT, {"model": "shapes", "image": picture("JPEG")}, lambda a: len(images(a)) == 1),
    Good("a WebP called PNG", EDIT, {"model": "bagel", "image": ("x.png", picture("WEBP"))}, lambda a: tokens(a)[0]),
    Good("three pictures in turn", EDIT, {"model": "bagel", "image": [picture()] * 3}, lambda a: tokens(a)[0] > 200),
    Good(
        "as large as is asked for",
        EDIT,
        {"model": "bagel", "image": picture(), "size": "64x32", "n": 2},
        lambda a: sizes(a) == {(64, 32)} and len(images(a)) == 2,
    ),
)


def call(client: Any, method: str, fields: dict[str, Any]) -> Any:
    fields = {"prompt": "a red circle on white", **fields}
    body = {**(STEPS if fields.get("model") != "nobody" else {}), **fields.pop("extra_body", {})}
    return getattr(client.images, method)(**fields, extra_body=body)


@pytest.mark.parametrize("row", GOOD, ids=[row.name for row in GOOD])
def test_good_calls(client: openai.OpenAI, row: Good) -> None:
    assert row.check(call(client, row.method, row.call))


@pytest.mark.parametrize("row", [row for row in GOOD if row.name in ("a picture", "an edit", "a size")])
async def test_good_calls_side_by_side(aio: openai.AsyncOpenAI, row: Good) -> None:
    assert row.check(await call(aio, row.method, row.call))


def test_a_red_circle_is_red_and_round(client: openai.OpenAI) -> None:
    """The starter's weights are trained: what it draws is what it was told, and an edit changes that alone."""
    made = client.images.generate(model="shapes", prompt="a red circle on white", extra_body={"seed": 5, "steps": 24})
    edited = client.images.edit(
        model="shapes",
        image=base64.b64decode(made.data[0].b64_json or ""),
        prompt="make the circle blue",
        extra_body={"seed": 5, "steps": 24},
    )
    red, blue = (images(answer)[0].convert("RGB") for answer in (made, edited))
    inside = [at for at in itertools.product(range(64), range(64)) if min(red.getpixel(at)[1:]) < 100]
    assert 20 < len(inside) < 2000
    assert all(red.getpixel(at)[0] > 150 for at in inside)
    left, right = min(x for x, _ in inside), max(x for x, _ in inside)
    top, bottom = min(y for _, y in inside), max(y for _, y in inside)
    assert abs((right - left) - (bottom - top)) <= 2
    # Of the square around it a circle fills pi / 4.
    assert 0.65 < len(inside) / ((right - left + 1) * (bottom - top + 1)) < 0.95
    middle = ((left + right) // 2, (top + bottom) // 2)
    assert red.getpixel(middle)[0] > red.getpixel(middle)[2] + 80
    assert blue.getpixel(middle)[2] > blue.getpixel(middle)[0] + 80


# ── as they come ────────────────────────────────────────────────────────────────────────────────

STREAMS = (
    ("three before it", DRAW, {"model": "shapes", "partial_images": 3, "extra_body": {"steps": 9}}, 3),
    ("none before it", DRAW, {"model": "shapes", "partial_images": 0}, 0),
    ("as none is asked for", DRAW, {"model": "bagel"}, 0),
    ("an edit with two before it", EDIT, {"model": "bagel", "image": picture(), "partial_images": 2}, 2),
    ("two pictures", DRAW, {"model": "bagel", "n": 2, "partial_images": 1, "output_format": "webp"}, 2),
)


@pytest.mark.parametrize("row", STREAMS, ids=[row[0] for row in STREAMS])
def test_pictures_come_as_they_are_made(client: openai.OpenAI, row: tuple[str, str, dict[str, Any], int]) -> None:
    _, method, fields, partial = row
    events = list(call(client, method, {**fields, "stream": True}))
    judge(events, method, partial, fields.get("n", 1))
    assert {opened(event.b64_json).format for event in events} == {fields.get("output_format", "png").upper()}


async def test_pictures_come_to_many_at_once(aio: openai.AsyncOpenAI) -> None:
    fields = {"model": "bagel", "stream": True, "partial_images": 1}
    streams = [await call(aio, DRAW, fields) for _ in range(4)]
    for stream in streams:
        judge([event async for event in stream], DRAW, 1, 1)


def judge(events: list[Any], method: str, partial: int, count: int) -> None:
    kind = "image_generation" if method == DRAW else "image_edit"
    told = [event.type for event in events]
    assert told.count(f"{kind}.partial_image") == partial
    assert told.count(f"{kind}.completed") == count
    assert told[-1] == f"{kind}.completed"
    numbers = [event.partial_image_index for event in events if event.type.endswith("partial_image")]
    assert sorted(numbers) == sorted(list(range(partial // count)) * count)
    for event in events:
        assert (event.quality, event.background) == ("auto", "opaque")
        assert event.created_at > 1_700_000_000
        width, height = opened(event.b64_json).size
        assert event.size == f"{width}x{height}"
    usage = events[-1].usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 4


async def test_who_leaves_a_stream_ends_its_run(running: Service, aio: openai.AsyncOpenAI) -> None:
    fields = {"model": "shapes", "stream": True, "partial_images": 3, "extra_body": {"steps": 200, "preview_every": 1}}
    stream = await call(aio, DRAW, fields)
    first = await anext(stream)
    assert first.type == "image_generation.partial_image"
    run = stream.response.headers["x-request-id"]
    await stream.close()
    with running.client() as native:
        told = [event.data for event in native.follow_run(run)]
    assert told[-1]["error"]["code"] == "cancelled", told[-1]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


class Bad(NamedTuple):
    name: str
    method: str
    call: dict[str, Any]
    kind: type[openai.APIStatusError]
    param: str | None
    code: str
    words: str = ""


WRONG, MISSING = openai.BadRequestError, openai.NotFoundError
BAD = (
    Bad("no such deployment", DRAW, {"model": "nobody"}, MISSING, "model", "model_not_found", "`shapes`"),
    Bad("no such task", DRAW, {"model": "bagel/x"}, MISSING, "model", "model_not_found", "`bagel/edit`"),
    Bad("another route", DRAW, {"model": "orpheus"}, WRONG, "model", "unsupported_route", "audio.speech"),
    Bad("another task's route", EDIT, {"model": "bagel/text_to_image", "image": b"x"}, WRONG, "model",
        "unsupported_route", "images.generations"),
    Bad("no prompt", DRAW, {"model": "shapes", "prompt": ""}, WRONG, "prompt", "missing_required_parameter"),
    Bad("nine", DRAW, {"model": "shapes", "n": 9}, WRONG, "n", "invalid_value", "8"),
    Bad("a link", DRAW, {"model": "shapes", "response_format": "url"}, WRONG, "response_format", "invalid_value"),
    Bad("no size", DRAW, {"model": "shapes", "size": "1024x1024"}, WRONG, "size", "invalid_value", "fixed size"),
    Bad("too large", DRAW, {"model": "bagel", "size": "1024x1024"}, WRONG, "size", "invalid_value", "64"),
    Bad("a GIF", DRAW, {"model": "shapes", "output_format": "gif"}, WRONG, "output_format", "invalid_value", "webp"),
    Bad("quality", DRAW, {"model": "shapes", "quality": "hd"}, WRONG, "quality", "invalid_value", "steps"),
    Bad("a typing error", DRAW, {"model": "shapes", "extra_body": {"cfg_text_scal": 2}}, WRONG, "cfg_text_scal",
        "unknown_parameter", "`cfg_text_scale`"),
    Bad("a bound", DRAW, {"model": "shapes", "extra_body": {"steps": 999}}, WRONG, "steps", "invalid_value", "200"),
    Bad("a stream", DRAW, {"model": "shapes", "stream": True, "n": 0}, WRONG, "n", "invalid_value"),
    Bad("a PDF called PNG", EDIT, {"model": "shapes", "image": ("x.png", b"%PDF-1.7 ")}, WRONG, "image",
        "invalid_image_format", "PNG"),
    Bad("a broken PNG", EDIT, {"model": "shapes", "image": ("x.png", picture()[:60])}, WRONG, None, "invalid_input"),
    Bad("broken, streamed", EDIT, {"model": "shapes", "image": picture()[:60], "stream": True}, WRONG, None,
        "invalid_input"),
    Bad("an empty file", EDIT, {"model": "shapes", "image": ("x.png", b"")}, WRONG, "image", "invalid_value", "empty"),
    Bad("too many pixels", EDIT, {"model": "bagel", "image": huge()}, WRONG, None, "invalid_input", "64 million"),
    Bad("17 pictures", EDIT, {"model": "bagel", "image": [picture()] * 17}, WRONG, "image", "invalid_value", "16"),
    Bad("more than there is room for", EDIT, {"model": "bagel", "image": [picture()] * 16}, WRONG, None,
        "invalid_input", "at most 512 tokens"),
    Bad("a mask", EDIT, {"model": "shapes", "image": picture(), "mask": picture()}, WRONG, "mask",
        "unsupported_parameter", "prompt"),
    Bad("a field that is no number", EDIT, {"model": "shapes", "image": picture(), "extra_body": {"steps": "many"}},
        WRONG, "steps", "invalid_value", "integer"),
)  # fmt: skip


@pytest.mark.parametrize("row", BAD, ids=[row.name for row in BAD])
def test_bad_calls(client: openai.OpenAI, row: Bad) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        call(client, row.method, row.call)
    judge_error(raised.value, row)


async def test_bad_calls_side_by_side(aio: openai.AsyncOpenAI) -> None:
    for row in BAD[:3]:
        with pytest.raises(openai.APIStatusError) as raised:
            await call(aio, row.method, row.call)
        judge_error(raised.value, row)


def judge_error(error: openai.APIStatusError, row: Bad) -> None:
    assert type(error) is row.kind, error
    assert (error.param, error.code) == (row.param, row.code), error
    assert error.type == "invalid_request_error"
    assert row.words in error.message
    assert error.response.headers["x-should-retry"] == "false"
    assert error.request_id


class Cut(httpx2.BaseTransport):
    """Sends a request, and loses the answer of the first."""

    def __init__(self) -> None:
        self.tries: list[str] = []
        self.lost: dict[str, Any] = {}
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.tries.append(request.headers.get("x-stainless-retry-count", ""))
        answer = self._inner.handle_request(request)
        if len(self.tries) == 1 and answer.status_code == 200:
            self.lost = json.loads(answer.read())
            answer.close()
            raise httpx2.ReadError("the connection was cut")
        return answer

    def close(self) -> None:
        self._inner.close()


def test_what_was_lost_is_asked_for_again_and_drawn_once(running: Service) -> None:
    cut = Cut()
    with (
        httpx2.Client(transport=cut) as http,
        openai.OpenAI(base_url=f"{running.told['url']}/v1", api_key=running.token, http_client=http) as eager,
    ):
        answer = call(eager, DRAW, {"model": "bagel", "extra_headers": {"Idempotency-Key": "lost"}})
    assert cut.tries == ["0", "1"]
    assert ours(answer, "run") == [entry["run"] for entry in cut.lost["data"]]


def test_what_is_wrong_is_not_tried_again(running: Service) -> None:
    cut = Cut()
    with (
        httpx2.Client(transport=cut) as http,
        openai.OpenAI(base_url=f"{running.told['url']}/v1", api_key=running.token, http_client=http) as eager,
        pytest.raises(openai.BadRequestError),
    ):
        call(eager, EDIT, {"model": "shapes", "image": b"x", "n": 2})
    assert cut.tries == ["0"]


def test_there_are_no_variations(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/images/edits"):
        client.post("/images/variations", cast_to=NATIVE, files={"image": picture()}, body={})


def test_pictures_come_as_json_too(client: openai.OpenAI) -> None:
    body = {"model": "bagel", "prompt": "x", "seed": 3}
    for fields in ({"image": url(picture())}, {"images": [{"image_url": url(picture())}] * 2}):
        answer = client.post("/images/edits", cast_to=NATIVE, body={**body, **fields})
        assert sizes(answer) == {(32, 32)}
    for fields, code in (
        ({}, "missing_required_parameter"),
        ({"image": "http://127.0.0.1/x.png"}, "invalid_url"),
        ({"image": "no base64!"}, "invalid_value"),
        ({"image": [url(picture())] * 17}, "invalid_value"),
    ):
        with pytest.raises(openai.BadRequestError) as raised:
            client.post("/images/edits", cast_to=NATIVE, body={**body, **fields})
        assert (raised.value.param, raised.value.code) == ("image", code)


def test_a_key_brings_the_same_picture(client: openai.OpenAI) -> None:
    options = {"prompt": "x", "model": "bagel", "extra_headers": {"Idempotency-Key": "one-picture"}}
    first, again = client.images.generate(**options), client.images.generate(**options)
    assert ours(first, "run") == ours(again, "run")
    with pytest.raises(openai.BadRequestError) as raised:
        client.images.generate(**{**options, "prompt": "y"})
    assert raised.value.code == "idempotency_conflict"


def test_nobody_draws_without_a_token(client: openai.OpenAI) -> None:
    stranger = client.with_options(api_key="nobody")
    for method, fields in ((DRAW, {}), (EDIT, {"image": picture()})):
        with pytest.raises(openai.AuthenticationError):
            call(stranger, method, {"model": "shapes", **fields})
