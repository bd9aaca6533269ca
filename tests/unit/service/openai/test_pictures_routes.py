"""The routes for pictures before deployments that answer at once."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from tests.unit.service.openai.test_pictures import FIELDS, lines, opened, picture
from walkgraph.service.http import limits
from walkgraph.wire import messages as m

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"


def sent(service: Running) -> list[m.Submit]:
    return [message for message in service.fleet.started[0].sent if isinstance(message, m.Submit)]


async def test_pictures_are_drawn(service: Running) -> None:
    await service.deploy()
    body = {"model": "shapes", "prompt": "a red circle", "n": 2, "seed": 3, "output_format": "webp"}
    answer = await service.http.post(GENERATIONS, json=body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["size"], told["output_format"], told["background"]) == ("48x32", "webp", "opaque")
    assert [entry["seed"] for entry in told["data"]] == [3, 4]
    assert {opened(entry["b64_json"]).format for entry in told["data"]} == {"WEBP"}
    assert told["usage"]["output_tokens"] == 12
    assert [submit.task for submit in sent(service)] == ["text_to_image"] * 2
    assert {entry["run"] for entry in told["data"]} == {submit.run for submit in sent(service)}


async def test_pictures_are_told_as_they_come(service: Running) -> None:
    await service.deploy()
    body = {"prompt": "a red circle", "n": 2, "stream": True, "partial_images": 1}
    answer = await service.http.post(GENERATIONS, json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds = [event["type"] for event in lines(answer.text)]
    assert sorted(kinds) == ["image_generation.completed"] * 2 + ["image_generation.partial_image"] * 2
    assert [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")] == kinds


async def test_edits_come_as_forms_and_as_json(service: Running) -> None:
    await service.deploy()
    files = [("image[]", ("../../x.png", PNG, "image/png")), ("image[]", ("y.png", PNG, "image/png"))]
    answer = await service.http.post(EDITS, files=files, data={"model": "shapes", "prompt": "blue", "steps": "5"})
    assert answer.status_code == 200, answer.text
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    answer = await service.http.post(EDITS, json={"model": "shapes", "prompt": "blue", "steps": 5, "image": [url, url]})
    assert answer.status_code == 200, answer.text
    by_form, by_json = sent(service)
    assert by_form.params == by_json.params == {"steps": 5}
    assert by_form.inputs == by_json.inputs == {
        "image": (m.Blob(data=PNG),) * 2, "instruction": (m.Small(value="blue"),),
    }  # fmt: skip
    assert by_form.task == "edit"


async def test_refusals_are_openais(service: Running) -> None:
    async def error(path: str, status: int, **body: Any) -> dict[str, Any]:
        answer = await service.http.post(path, **body)
        assert answer.status_code == status, answer.text
        assert answer.headers["x-should-retry"] == "false"
        return answer.json()["error"]

    nobody = await error(GENERATIONS, 404, json={"prompt": "x"})
    assert (nobody["param"], nobody["code"]) == ("model", "model_not_found")
    await service.deploy()
    many = [("image", ("x.png", PNG, "image/png"))] * 17
    assert (await error(EDITS, 400, files=many, data={"prompt": "x"}))["param"] == "image"
    assert (await error(EDITS, 400, json=[]))["message"]
    assert (await error(EDITS, 400, content=b"", headers={"Content-Type": "application/json"}))["message"]
    assert (await error(EDITS, 400, content=b"x", headers={"Content-Type": "multipart/form-data"}))["message"]
    assert (await error(GENERATIONS, 400, json={"prompt": "x", "steps": 0}))["param"] == "steps"
    assert (await error("/v1/images/variations", 404, json={}))["message"].startswith("variations are not")
    large = {"image": ("x.png", PNG + b"x" * limits.FORM_BYTES, "image/png")}
    assert (await error(EDITS, 413, files=large, data={"prompt": "x"}))["message"]


async def test_a_failed_run_has_its_status_and_leaves_none_behind(service: Running) -> None:
    await service.deploy()
    for stream in (False, True):
        answer = await service.http.post(GENERATIONS, json={"prompt": "x", "seed": 13, "n": 2, "stream": stream})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "numeric_error"
    for run in service.services.runs.unfinished:
        assert (await run.ended()).error is not None


async def test_a_key_brings_the_same_pictures_again(service: Running) -> None:
    await service.deploy()
    headers = {"Idempotency-Key": "k"}
    body = {"prompt": "x", "n": 2}
    first = await service.http.post(GENERATIONS, json=body, headers=headers)
    again = await service.http.post(GENERATIONS, json=body, headers=headers)
    assert first.json()["data"] == again.json()["data"]
    assert len(sent(service)) == 2
    other = await service.http.post(GENERATIONS, json={**body, "output_format": "webp"}, headers=headers)
    assert other.status_code == 400
    assert other.json()["error"]["code"] == "idempotency_conflict"
    headers = {"Idempotency-Key": "edit"}
    for data, status in ((PNG, 200), (PNG, 200), (picture("RGB"), 400)):
        files = {"image": ("x.png", data, "image/png")}
        answer = await service.http.post(EDITS, files=files, data={"prompt": "x"}, headers=headers)
        assert answer.status_code == status, answer.text
    assert len(sent(service)) == 3


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    found: list[Any] = []

    @settings(max_examples=count, database=None, derandomize=True, phases=[Phase.generate])
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


async def test_any_request_is_answered_by_pictures_or_a_typed_error(service: Running) -> None:
    await service.deploy()
    statuses: Counter[int] = Counter()
    some = {"prompt": "x", "model": "shapes"}
    for fields in drawn(FIELDS.map(lambda found: {**some, **found}), 60):
        for path, body in (
            (GENERATIONS, {"json": fields}),
            (EDITS, {"json": fields}),
            (EDITS, {"data": fields, "files": {"image": ("x.png", PNG, "image/png")}}),
        ):
            answer = await service.http.post(path, **body)
            statuses[answer.status_code] += 1
            assert answer.status_code in (200, 400, 404, 413), (fields, answer.text)
            if answer.status_code != 200:
                assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert statuses[200] > 0
    assert statuses[400] > 20
