"""OpenAI's requests for pictures as those of tasks, forms as the JSON they stand for, and pictures as they leave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.unit.service.fakes import PNG
from walkgraph import resources
from walkgraph.errors import ErrorInfo, InvalidInput, RunFailed
from walkgraph.graph import codec
from walkgraph.graph.document import Graph, TaskInput, TaskParam
from walkgraph.ids import RunId
from walkgraph.service.http.multipart import Form, Part
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.openai import serving
from walkgraph.service.openai.images import answers, forms, pictures
from walkgraph.service.openai.images.pictures import EditRequest, PicturesRequest, Shown
from walkgraph.service.openai.serving import Serving
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.tasks import read_request
from walkgraph.wire import messages as m


def graph_of(name: str) -> Graph:
    return codec.load(resources.bundled("graphs")[name].read_bytes())


SHAPES, BAGEL = graph_of("shapes"), graph_of("bagel")
DRAW, EDIT = serving.servings(SHAPES)["text_to_image"], serving.servings(SHAPES)["edit"]
LARGE = serving.servings(BAGEL)["text_to_image"]


def changed(found: Serving, **changes: Any) -> Serving:
    return Serving(found.name, found.task.model_copy(update=changes), found.outputs)


def bodies(found: Serving, shown: Shown | None = None, **fields: Any) -> list[dict[str, Any]]:
    """The converted fields; each is a request that the task accepts."""
    made = pictures.task_bodies(PicturesRequest.model_validate({"prompt": "x", **fields}), found, shown)
    for body in made:
        read_request(RunId("0" * 32), found.name, found.task, body, 60.0)
    return made


def refused(found: Serving, shown: Shown | None = None, **fields: Any) -> tuple[str, str, str]:
    """(pointer, code, message) of the one fault."""
    with pytest.raises(Unprocessable) as raised:
        bodies(found, shown, **fields)
    (fault,) = raised.value.faults
    return fault.pointer, fault.code, fault.message


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_is_the_tasks_text_and_its_picture_is_wanted() -> None:
    assert bodies(DRAW) == [{"inputs": {"prompt": "x"}, "params": {}, "outputs": ["image"]}]
    assert bodies(LARGE)[0]["outputs"] == ["image", "text"]


def test_other_keys_are_parameters_and_texts() -> None:
    inputs = {**DRAW.task.inputs, "negative": TaskInput(modality="text", optional=True)}
    found = bodies(changed(DRAW, inputs=inputs), steps=4, shift=2.5, renorm="none", negative="blurred", seed=None)
    assert found[0]["params"] == {"steps": 4, "shift": 2.5, "renorm": "none"}
    assert found[0]["inputs"] == {"prompt": "x", "negative": "blurred"}


def test_what_is_ours_stands_beside() -> None:
    body = bodies(DRAW, priority=5, deadline=30)[0]
    assert (body["priority"], body["deadline"]) == (5, 30)
    assert refused(DRAW, deadline=-1)[0] == "/deadline"


def test_each_picture_has_a_seed_of_its_own() -> None:
    assert [b["params"] for b in bodies(DRAW, n=3, seed=5)] == [{"seed": 5}, {"seed": 6}, {"seed": 7}]
    assert [b["params"] for b in bodies(DRAW, n=2)] == [{}, {}]
    most = int(DRAW.params["seed"].max or 2**53)
    drawn = [b["params"]["seed"] for b in bodies(DRAW, n=8, seed=most)] if DRAW.params["seed"].max else [0, 1]
    assert len(set(drawn)) == len(drawn)


def test_sizes_are_the_tasks() -> None:
    assert bodies(LARGE, size="512x256")[0]["params"] == {"width": 512, "height": 256}
    assert bodies(LARGE, size="auto")[0]["params"] == bodies(DRAW, size="auto")[0]["params"] == {}
    for size in ("1040x512", "512x4096", "99999x99999", "1x1", "0x0", "512", "512X512", "x", "auto ", "512x512x3"):
        at, code, message = refused(LARGE, size=size)
        assert (at, code) == ("/size", "bad_value")
        assert "1024" in message, size
        assert "16" in message
    assert refused(LARGE, size="512x512", width=512)[0] == "/size"
    assert "a fixed size" in refused(DRAW, size="64x64")[2]


@given(st.integers(2, 200), st.integers(1, 3))
def test_about_as_many_previews_come_as_are_asked_for(steps: int, count: int) -> None:
    body = bodies(DRAW, steps=steps, stream=True, partial_images=count)[0]
    every = body["params"]["preview_every"]
    come = sum((index + 1) % every == 0 for index in range(steps - 1))
    assert body["outputs"] == ["image", "preview"]
    assert min(count, steps - 1) - 1 <= come <= 2 * count + 1 or math.isclose(come, count, abs_tol=1)
    assert come >= 1


def test_previews_come_only_where_they_are_streamed() -> None:
    assert bodies(DRAW, partial_images=3) == bodies(DRAW) == bodies(DRAW, stream=True, partial_images=0)
    told = bodies(DRAW, partial_images=1, stream=True, preview_every=7)[0]["params"]
    assert told == {"preview_every": 7}
    without = Serving(DRAW.name, DRAW.task, tuple(o for o in DRAW.outputs if o.name != "preview"))
    assert bodies(without, partial_images=3, stream=True)[0]["outputs"] == ["image"]


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no prompt": ({"prompt": None}, "/prompt", "missing", "needed"),
    "an empty prompt": ({"prompt": ""}, "/prompt", "missing", "needed"),
    "a link": ({"response_format": "url"}, "/response_format", "bad_value", "b64_json"),
    "svg": ({"output_format": "svg"}, "/output_format", "bad_value", "webp"),
    "quality": ({"quality": "high"}, "/quality", "bad_value", "steps"),
    "style": ({"style": "vivid"}, "/style", "bad_value", "prompt"),
    "a clear background": ({"background": "transparent"}, "/background", "bad_value", "opaque"),
    "a small png": ({"output_compression": 50}, "/output_compression", "bad_value", "jpeg"),
    "an unknown key": ({"stepps": 3}, "/stepps", "unknown_key", "`steps`"),
    "another unknown key": ({"zzzz/~": 3}, "/zzzz~1~0", "unknown_key", "`seed`"),
    "too few steps": ({"steps": 1}, "/params/steps", "bad_value", "2"),
    "steps as a text": ({"steps": "4"}, "/params/steps", "bad_value", "integer"),
    "steps as a list": ({"steps": [4]}, "/params/steps", "bad_value", "integer"),
    "a seed as a text": ({"seed": "4", "n": 3}, "/params/seed", "bad_value", "integer"),
    "true as a seed": ({"seed": True, "n": 3}, "/params/seed", "bad_value", "integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cant_be_is_refused_with_what_can(name: str) -> None:
    fields, at, code, words = REFUSED[name]
    found = refused(DRAW, **fields)
    assert found[:2] == (at, code)
    assert words in found[2]


def test_a_setting_that_is_the_tasks_parameter_goes_there() -> None:
    params = {**DRAW.task.params, "quality": TaskParam(type="string", default="low", choices=("low", "high"))}
    assert bodies(changed(DRAW, params=params), quality="high")[0]["params"] == {"quality": "high"}
    assert refused(changed(DRAW, params=params), quality="hd")[0] == "/params/quality"


def test_neutral_settings_change_nothing() -> None:
    neutral = {
        "response_format": "b64_json",
        "output_format": "png",
        "output_compression": 100,
        "quality": "auto",
        "background": "opaque",
        "moderation": "low",
        "user": "me",
        "safety_identifier": "me",
        "stream": False,
        "style": None,
    }
    assert bodies(DRAW, **neutral) == bodies(DRAW)


def test_refusals_point_into_what_was_sent() -> None:
    def place(at: str) -> str:
        error = pictures.in_openai_terms(Unprocessable("x", [Fault(at, "bad_value", "x")]), EDIT)
        assert isinstance(error, Unprocessable)
        return error.faults[0].pointer

    given = ("/params/steps", "/inputs/image/0", "/inputs/instruction", "/deadline", "/inputs")
    assert [place(at) for at in given] == ["/steps", "/image", "/prompt", "/deadline", ""]
    plain = InvalidInput("x")
    assert pictures.in_openai_terms(plain, EDIT) is plain


# ── pictures that come along ────────────────────────────────────────────────────────────────────


def shown(count: int, data: bytes | str = PNG, mask: bytes | None = None) -> Shown:
    return Shown(tuple((f"/image/{i}", data) for i in range(count)), mask)


def test_pictures_go_where_the_task_has_room() -> None:
    made = bodies(EDIT, shown(2))[0]["inputs"]
    assert made == {"instruction": "x", "image": [{"type": "image", "data": PNG}] * 2}
    one = EDIT.task.inputs["image"].model_copy(update={"many": False})
    single = changed(EDIT, inputs={**EDIT.task.inputs, "image": one})
    assert bodies(single, shown(1))[0]["inputs"]["image"] == {"type": "image", "data": PNG}
    assert refused(single, shown(2)) == ("/image", "too_long", "task `edit` takes 1 image")
    double = changed(single, inputs={"image": one, "style_image": one, "instruction": EDIT.task.inputs["instruction"]})
    assert list(bodies(double, shown(2))[0]["inputs"]) == ["instruction", "image", "style_image"]
    masked = changed(EDIT, inputs={**EDIT.task.inputs, "mask": TaskInput(modality="image", optional=True)})
    assert bodies(masked, shown(1, mask=PNG))[0]["inputs"]["mask"] == {"type": "image", "data": PNG}


def test_pictures_that_are_none_are_refused_before_a_run() -> None:
    assert refused(EDIT, shown(0))[:2] == ("/image", "missing")
    assert refused(EDIT, shown(17))[:2] == ("/image", "too_long")
    assert refused(EDIT, shown(1, mask=PNG))[:2] == ("/mask", "unsupported_parameter")
    assert refused(EDIT, shown(1, b""))[:2] == ("/image/0", "bad_value")
    for data in (b"GIF89a", b"%PDF-1.7", b"<svg/>", b"RIFF1234WAVEfmt ", b"\x00" * 100):
        assert refused(EDIT, shown(1, data))[:2] == ("/image/0", "invalid_image_format")
    for url in ("http://x/y.png", "https://x"):
        assert refused(EDIT, shown(1, url))[:2] == ("/image/0", "invalid_url")
    for text in ("file:///etc/passwd", "not base64!", "data:image/png,x"):
        assert refused(EDIT, shown(1, text))[1] == "bad_value"


def test_json_names_pictures_in_three_ways() -> None:
    data = base64.b64encode(PNG).decode()
    for fields in (
        {"image": data},
        {"image": [data]},
        {"images": [{"image_url": data}]},
        {"image": {"image_url": data}},
    ):
        _, found = forms.edit_of_json(fields)
        assert [text for _, text in found.images] == [data]
    _, found = forms.edit_of_json({"image": [data, data], "images": [data], "mask": data})
    assert [at for at, _ in found.images] == ["/image/0", "/image/1", "/images/0"]
    assert found.mask == data
    for bad in ([], "x", None, {"image": 3}, {"image": [data] * 17}, {"images": [{"url": data}]}, {"n": "2"}):
        with pytest.raises(Unprocessable) as raised:
            forms.edit_of_json(bad)
        at = [f"/{key}" for key in bad] if isinstance(bad, dict) else [""]
        assert [fault.pointer for fault in raised.value.faults] == at


# ── forms ───────────────────────────────────────────────────────────────────────────────────────


def form(*more: Part, **fields: str) -> Form:
    return Form((*(Part(name, text.encode()) for name, text in fields.items()), *more))


def test_fields_become_what_they_stand_for() -> None:
    picture = Part("image", PNG, "a.png", "image/png")
    fields = {"prompt": "x", "n": "2", "stream": "true", "partial_images": "1", "steps": "4", "shift": "2", "seed": "7"}
    asked, found = forms.edit_of_form(form(picture, **fields), EDIT)
    assert asked.model_dump(exclude_unset=True) == {
        "prompt": "x", "n": 2, "stream": True, "partial_images": 1, "steps": 4, "shift": 2.0, "seed": 7,
    }  # fmt: skip
    assert found == Shown((("/image", PNG),), None)
    both = form(Part("image[]", PNG), Part("image[]", b"2"), Part("mask", b"3"), prompt="x")
    assert forms.edit_of_form(both, EDIT)[1] == Shown((("/image/0", PNG), ("/image/1", b"2")), b"3")


BAD_FIELDS = (
    {"n": "two"}, {"n": "2.5"}, {"n": "9"}, {"n": "1_0"}, {"n": "٣"}, {"n": "[2]"}, {"stream": "yes"},
    {"output_compression": "9" * 5000}, {"partial_images": "NaN"}, {"user": "x" * 65}, {"size": "x" * 17},
)  # fmt: skip


@pytest.mark.parametrize("fields", BAD_FIELDS)
def test_fields_that_stand_for_nothing_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(Unprocessable) as raised:
        forms.edit_of_form(form(**fields), EDIT)
    assert [fault.pointer for fault in raised.value.faults] == [f"/{name}" for name in fields]
    assert "9999" not in str(raised.value.faults)


def test_forms_with_doubled_fields_or_strange_files_are_refused() -> None:
    for parts in ((Part("n", b"1"), Part("n", b"2")), (Part("n", b"\xff"),), (Part("n", b"1", "n.txt"),)):
        with pytest.raises(InvalidInput) as raised:
            forms.edit_of_form(Form(parts), EDIT)
        assert raised.value.pointer == "/n"
    for text in ("nan", "inf", "1e999", "9" * 30, "x"):
        asked, _ = forms.edit_of_form(form(shift=text, steps=text, prompt="x"), EDIT)
        with pytest.raises(Unprocessable):
            bodies(EDIT, shown(1), **asked.model_extra)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JUNK = TEXTS | st.from_regex(r"-?[0-9.e]{1,12}", fullmatch=True)
FIELDS = st.dictionaries(st.sampled_from([*EditRequest.model_fields, *EDIT.params, "other"]), JUNK, max_size=5)


@given(FIELDS)
def test_any_form_is_a_request_or_a_typed_error(fields: dict[str, str]) -> None:
    parts = tuple(Part(name, text.encode()) for name, text in fields.items())
    with contextlib.suppress(InvalidInput):
        asked, found = forms.edit_of_form(Form(parts), EDIT)
        for body in pictures.task_bodies(asked, EDIT, found):
            read_request(RunId("0" * 32), EDIT.name, EDIT.task, body, 60.0)


# ── how they leave ──────────────────────────────────────────────────────────────────────────────


def opened(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def picture(mode: str, form_: str = "PNG") -> bytes:
    made = io.BytesIO()
    Image.effect_noise((40, 24), 90).convert(mode).save(made, form_)
    return made.getvalue()


@pytest.mark.parametrize("form_", pictures.FORMATS)
@pytest.mark.parametrize("data", [PNG, picture("RGBA"), picture("L"), picture("P"), picture("RGB", "JPEG")])
def test_pictures_leave_in_any_format(data: bytes, form_: str) -> None:
    made = answers.encode(data, form_, 100)
    assert opened(made.text).format == form_.upper()
    assert opened(made.text).size == (made.width, made.height) == Image.open(io.BytesIO(data)).size
    if form_ == "png" and data.startswith(b"\x89PNG"):
        assert base64.b64decode(made.text) == data


def test_less_quality_is_fewer_bytes() -> None:
    data = picture("RGB")
    for form_ in ("jpeg", "webp"):
        sizes = [len(answers.encode(data, form_, quality).text) for quality in (0, 1, 50, 100)]
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[-1]


@given(st.binary(max_size=60) | st.integers(0, len(PNG) - 1).map(lambda at: PNG[:at] + b"\xff" + PNG[at + 1 :]))
def test_what_is_no_picture_is_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(RunFailed):
        answers.encode(data, "jpeg", 90)


def ended(*events: m.Output | m.Finished) -> LiveRun:
    run = LiveRun(m.Submit(run=RunId("0" * 32), task="t", params={}, inputs={}), "d", lambda _: None)
    for event in (m.Accepted(run=run.id, seed=7), *events):
        run.take(event)
    return run


def output(name: str, value: m.Value) -> m.Output:
    return m.Output(run=RunId("0" * 32), name=name, index=0, value=value, modality="image")


def end(**fields: Any) -> m.Finished:
    return m.Finished(run=RunId("0" * 32), **fields)


async def events_of(run: LiveRun, found: Serving, previews: int = 3) -> list[dict[str, Any]]:
    coming = answers.Coming([run], found, answers.Look("image_edit", "png", 100, previews))
    events: list[dict[str, Any]] = []
    try:
        while (event := await coming.next()) is not None:
            events.append(event)
    finally:
        coming.close()
    return events


async def test_usage_says_what_was_read_written_and_drawn() -> None:
    (walk, loop), *_ = next(o.loops for o in LARGE.outputs if o.name == "text")
    loops = (m.LoopEnd(walk, loop, 5, "stop"), m.LoopEnd(walk, "other", 100, "stop"))
    run = ended(output("text", m.Small(value="a plan")), output("image", m.Blob(data=PNG)), end(read=11, loops=loops))
    (told,) = await events_of(run, LARGE)
    usage = told["usage"]
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 3 * 2 + 5, 22)
    assert (usage.output_tokens_details.image_tokens, usage.output_tokens_details.text_tokens) == (6, 5)
    assert told["revised_prompt"] == "a plan"
    assert told["seed"] == 7


async def test_previews_are_numbered_and_no_more_than_asked_for() -> None:
    preview = output("preview", m.Blob(data=PNG))
    run = ended(preview, preview, preview, output("image", m.Blob(data=PNG)), end())
    told = await events_of(run, DRAW, previews=2)
    assert [event["type"] for event in told] == ["image_edit.partial_image"] * 2 + ["image_edit.completed"]
    assert [event.get("partial_image_index") for event in told] == [0, 1, None]
    assert {event["size"] for event in told} == {"48x32"}


@pytest.mark.parametrize("value", [m.Small(value="x"), m.Blob(data=b"x"), None])
async def test_a_run_without_a_picture_fails(value: m.Value | None) -> None:
    run = ended(*([output("image", value)] if value else []), end())
    with pytest.raises(RunFailed):
        await events_of(run, DRAW)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def test_a_run_that_fails_on_the_way_ends_the_stream_with_its_error() -> None:
    error = ErrorInfo(code="worker_lost", message="its worker is gone; try again", retryable=True)
    run = ended(output("preview", m.Blob(data=PNG)), end(error=error))
    coming = answers.Coming([run], DRAW, answers.Look("image_generation", "png", 100, 3))
    first = asyncio.ensure_future(coming.next())
    sent_ = b"".join([piece async for piece in answers.told(coming, first)]).decode()
    partial, last = lines(sent_)
    assert partial["type"] == "image_generation.partial_image"
    assert last == {
        "type": "error",
        "error": {"message": error.message, "type": "server_error", "param": None, "code": "worker_lost"},
    }
