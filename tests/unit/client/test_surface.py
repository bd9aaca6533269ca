"""Both clients have the same methods, each public route has one, and answers match their types."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

import httpx
import msgspec
import pytest

from tests.unit.service.conftest import Running, empty_database, serving, settings
from tests.unit.service.fakes import FakeFleet
from walkgraph.client import AsyncClient, Client, calls, shown
from walkgraph.client.resources import running
from walkgraph.service import routes
from walkgraph.service.schemas.answers import model_of
from walkgraph.settings import Settings

_ = (empty_database, settings, routes)

OWN = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
MORE = {
    "GET /v1/tasks/{deployment}": "tasks",
    "GET /v1/tasks/{deployment}/{task}": "task",
    "POST /v1/tasks/{deployment}/{task}": "run, stream, task",
    "GET /api/v1/runs/{run}/events": "follow_run",
}
"""Routes of methods that do more than one call."""
ELSEWHERE = {
    ("/v1/chat/", "/v1/images/", "/v1/audio/", "/v1/models"): "OpenAI's client speaks these",
    ("/v2",): "KServe's clients speak these",
}
"""Beginnings of paths that have no method here, and why."""


def public(kind: type[Any]) -> dict[str, Any]:
    """Methods by name."""
    names = (name for name in dir(kind) if not name.startswith("_") or name in {*OWN, *OWN.values()})
    return {name: inspect.getattr_static(kind, name) for name in names}


def parameters(kind: type[Any], name: str) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def routes_of(kind: type[Any]) -> dict[str, set[str]]:
    """Route -> the methods that call it."""
    found: dict[str, set[str]] = {}
    for name in public(kind):
        describe = calls.description(kind, name)
        if describe is None:
            continue
        for documents in ("graph", "placement", "blueprint"):
            call = describe(None, *given(describe, documents))
            found.setdefault(f"{call.method} {call.route}", set()).add(name)
    return found


def given(describe: Any, documents: str) -> list[Any]:
    """Something for each parameter that has to be given."""
    wanted = list(inspect.signature(describe).parameters.values())[1:]
    needed = [one for one in wanted if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return [documents if one.name == "kind" else {} if one.name in ("request", "document") else "x" for one in needed]


def test_both_clients_have_the_same_methods() -> None:
    blocking, awaiting = public(Client), public(AsyncClient)
    assert {OWN.get(name, name) for name in blocking} == awaiting.keys()
    for name in blocking.keys() - OWN.keys():
        if callable(getattr(Client, name)):
            assert parameters(Client, name) == parameters(AsyncClient, name), name
        if isinstance(blocking[name], calls.described):
            assert blocking[name] is awaiting[name], name
            assert inspect.iscoroutinefunction(getattr(AsyncClient, name)), name
            assert not inspect.iscoroutinefunction(getattr(Client, name)), name
    assert len(blocking) > 60


def test_every_method_says_what_it_does() -> None:
    for kind in (Client, AsyncClient):
        named = public(kind).keys() - {*OWN, *OWN.values()}
        assert [name for name in named if not getattr(kind, name).__doc__] == []
    assert inspect.signature(Client.deployment).return_annotation == "shown.Deployment"


async def test_every_route_has_a_method_or_a_reason(service: Running) -> None:
    operations = {
        f"{method.upper()} {path}" for path, methods in service.app.openapi()["paths"].items() for method in methods
    }
    elsewhere = tuple(start for starts in ELSEWHERE for start in starts)
    left = {name for name in operations if not name.partition(" ")[2].startswith(elsewhere)}
    called = routes_of(Client).keys() | MORE.keys()
    assert left - called == set(), "a route without a method"
    # A graph's schema has that of blueprints.
    assert called - left == {"GET /schemas/blueprint-v1.json"}, "a method without a route"
    assert {route for route in called if len(routes_of(AsyncClient).get(route, ())) == 0} == MORE.keys() - {
        "POST /v1/tasks/{deployment}/{task}"
    }


def test_calls_of_more_than_one_route_are_those_that_are_named() -> None:
    found = [running.declaration("d", "t"), running.run_call("d", "t", {}), running.events_call("r")]
    describe = calls.description(Client, "tasks")
    assert describe is not None
    found.append(describe(None, "d"))
    assert {f"{call.method} {call.route}" for call in found} == MORE.keys()


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Running]:
    async with serving(settings, FakeFleet()) as found:
        yield found


@pytest.fixture
async def client(service: Running) -> AsyncIterator[AsyncClient]:
    """On that service, without a socket between them."""
    transport = httpx.ASGITransport(app=service.app, raise_app_exceptions=False)
    async with AsyncClient("http://127.0.0.1:8421", "t" * 32, transport=transport) as found:
        yield found


def missing(kind: Any, answer: Any, at: str = "") -> Iterator[str]:
    """Keys of an answer that its type has not."""
    if answer is None:
        return
    inner = get_args(kind)
    if get_origin(kind) is list:
        for item in answer:
            yield from missing(inner[0], item, f"{at}/*")
    elif get_origin(kind) is dict:
        for item in answer.values():
            yield from missing(inner[1], item, f"{at}/*")
    elif is_typeddict(kind):
        yield from (f"{at}/{key}" for key in answer.keys() - kind.__annotations__.keys())
        for key, one in get_type_hints(kind).items():
            yield from missing(one, answer.get(key), f"{at}/{key}")
    else:
        for one in inner:
            yield from missing(one, answer, at) if is_typeddict(one) else ()


async def test_answers_are_what_is_typed(service: Running, client: AsyncClient) -> None:
    await service.deploy("shapes", "shapes_one_cpu")
    service.fleet.started[0].ready()
    request = {"inputs": {"prompt": "a"}, "params": {"seed": 1}}
    run = (await client.run("shapes", "text_to_image", request))["run"]
    tap = await client.tap("shapes", "image_gen_cfg", "vae_decoder.pixels")
    stop = await client.set_breakpoint("shapes", "image_gen_cfg", "vae_decoder")
    key = await client.add_key("mine", ["infer"], concurrent=2)
    answers: list[tuple[Any, Any]] = [
        (list[shown.Deployment], await client.deployments()),
        (shown.Deployment, await client.deployment("shapes")),
        (list[shown.DeclaredTask], await client.tasks("shapes")),
        (list[shown.Host], await client.hosts()),
        (list[shown.Document], await client.graphs()),
        (list[shown.Document], await client.placements()),
        (list[shown.GalleryEntry], await client.gallery()),
        (list[shown.Component], await client.components()),
        (shown.Plan, await client.plan("shapes", "shapes_one_cpu")),
        (shown.Check, await client.check({})),
        (shown.Simulation, await client.simulate("shapes", "text_to_image", inputs={"prompt": 1})),
        (shown.Version, await client.keep_version("graph", "shapes", "as it came")),
        (list[shown.Version], await client.versions("graph", "shapes")),
        (list[shown.Run], await client.runs()),
        (shown.Run, await client.get_run(run)),
        (shown.Run, await client.start_run("shapes", "text_to_image", request)),
        (shown.Asked, await client.asked(run)),
        (shown.Watch, await client.watch("shapes")),
        (shown.Tap, tap),
        (shown.Breakpoint, stop),
        (list[shown.TraceListed], await client.traces("shapes")),
        (shown.Why, await client.why(run)),
        (shown.Statistics, await client.statistics("shapes")),
        (shown.KeyMade, key),
        (list[shown.Key], await client.keys(former=True)),
        (list[shown.AuditEntry], await client.audit(action="key")),
    ]
    for kind, answer in answers:
        assert answer != [] or kind == list[shown.TraceListed], kind
        msgspec.convert(answer, kind)
        assert list(missing(kind, answer)) == [], kind


async def test_answers_that_are_no_objects(service: Running, client: AsyncClient) -> None:
    await service.deploy("shapes", "shapes_one_cpu")
    assert await client.live()
    assert isinstance(await client.ready("shapes"), bool)
    assert "walkgraph" in await client.metrics()
    assert (await client.drawing("shapes")).startswith(("flowchart", "graph"))
    assert "Graph" in await client.python("shapes")
    assert (await client.limits())["body_bytes"] > 0
    assert (await client.schema("placement"))["type"] == "object"
    assert (await client.studio_address()).startswith("http://127.0.0.1:8421/studio/?code=")
    document, etag = await client.document("graph", "shapes")
    saved = await client.put_document("graph", "shapes", {**document, "description": "mine"}, etag)
    assert saved["description"] == "mine"
    await client.delete_document("graph", "shapes")
    assert (await client.graph("shapes")).get("description") == document.get("description")


BY_ANSWER = {"Component", "Deployment", "Next", "DeclaredTask", "DeclaredInput"}
"""Types of answers that have no model: the OpenAPI document calls them objects."""
MODELLED = [kind for kind in vars(shown).values() if is_typeddict(kind) and kind.__name__ not in BY_ANSWER]


@pytest.mark.parametrize("kind", MODELLED, ids=lambda one: one.__name__)
def test_the_services_models_are_made_from_the_clients_types(kind: Any) -> None:
    model = model_of(kind)
    assert list(model.model_fields) == list(get_type_hints(kind))
    assert model.__doc__ == kind.__doc__


def test_a_field_more_in_a_type_is_one_in_its_model() -> None:
    kind = TypedDict("Planted", {**get_type_hints(shown.Watch), "planted": list[shown.Tap]})
    fields = model_of(kind).model_fields
    assert list(fields) == ["level", "taps", "breakpoints", "planted"]
    assert fields["planted"].annotation == fields["taps"].annotation == list[model_of(shown.Tap)]


async def test_the_openapi_document_has_the_types_and_no_others(service: Running) -> None:
    schemas = service.app.openapi()["components"]["schemas"]
    models = {model_of(kind).__name__: list(get_type_hints(kind)) for kind in MODELLED}
    assert len(models) == len(MODELLED), "two have one name"
    assert {name: list(schemas[name]["properties"]) for name in models} == models
    assert {name for name in schemas if name.endswith("Shown")} <= models.keys()
