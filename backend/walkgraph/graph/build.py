"""Write graphs in Python, with the same words as in JSON and the same checks.

    g = GraphBuilder("captions", description="Says what a picture shows.")
    g.weights("shapes", family="bagel", source="starter:shapes")
    main = g.state("main", "paged_kv", capacity="512")
    tail = g.state("tail", "tensor", scope="walk")
    picture_in = g.node("picture_in", "media.picture_in", params={"size": 64})
    vit = g.node("vit_encoder", "bagel.vit", weights="shapes")
    start = g.node("start", "text.begin_answer", weights="shapes")
    llm = g.node("llm", "bagel.backbone", weights="shapes", states={"kv": main}, params={"top_k": "=top_k"})
    text = g.node("detokenizer", "text.detokenizer", weights="shapes", states={"tail": tail})

    with g.walk("read_image", label="Encode a picture", image="image") as w:
        for node in (picture_in, vit, llm):
            w.use(node)
        w.edge(w.input("image"), picture_in["image"])
        w.edge(picture_in["pixels"], vit["pixels"])
        w.edge(vit["embeddings"], llm["image"])

    with g.walk("decode", label="Generate text") as w:
        w.use(start)
        with w.loop("tokens", times="max_tokens", until=llm["stop"], drop_last=True):
            w.use(llm)
            w.use(text)
        w.edge(start["token"], llm["token"])
        w.edge(llm["token"], llm["token"])  # carried to the next iteration: the target is not after its source
        w.edge(llm["token"], text["token"])
        w.edge(text["text"], w.out("text"), each=True)
        w.result("token", llm["token"])

    with g.task("caption", outputs=["text"], label="Say what a picture shows") as t:
        image = t.input("image", "image")
        t.param("max_tokens", "integer", default=64, min=1, max=256)
        t.param("top_k", "integer", default=0, min=0, max=1000)
        t.step("read_image", {"image": image})
        t.step("decode")

    graph = g.build()

Arguments may be names or the values that `node` and `use` return. `graph.export` writes such a program for any graph.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.codec import load
from walkgraph.graph.document import FORMAT, Collect, Graph

Fields = dict[str, Any]
Starts = Mapping[str, Scalar] | None


@dataclass(frozen=True)
class Ref:
    """A node or a use; `ref["port"]` names one of its ports."""

    name: str

    def __getitem__(self, port: str) -> str:
        return f"{self.name}.{port}"


def fixed(size: int, *, continue_after_done: bool = False, first: int | None = None) -> Fields:
    return _fields(policy="fixed", size=size, continue_after_done=continue_after_done or None, first=first)


def sliding(window: int, stride: int, *, first: int | None = None) -> Fields:
    return _fields(policy="sliding", window=window, stride=stride, first=first)


def left_context(chunk: int, context: int, *, first: int | None = None) -> Fields:
    return _fields(policy="left_context", chunk=chunk, context=context, first=first)


def whole() -> Fields:
    return {"policy": "whole"}


class _Declaring:
    """Declares nodes, and the states and weights that they name."""

    def __init__(self, document: Fields) -> None:
        self._document = document
        for section in ("weights", "states", "nodes", "layout"):
            document[section] = {}

    def weights(self, name: str, *, family: str, source: str) -> str:
        self._document["weights"][name] = {"family": family, "source": source}
        return name

    def state(
        self,
        name: str,
        kind: Literal["paged_kv", "tensor", "rng"],
        *,
        scope: Literal["session", "run", "walk", "iteration"] | None = None,
        width: str | None = None,
        capacity: str | None = None,
    ) -> str:
        self._document["states"][name] = _fields(kind=kind, scope=scope, width=width, capacity=capacity)
        return name

    def node(
        self,
        name: str,
        component: str,
        *,
        weights: str | None = None,
        states: Mapping[str, str] | None = None,
        params: Mapping[str, Scalar] | None = None,
        kept: Literal["own", "shared"] | None = None,
    ) -> Ref:
        given = _fields(component=component, weights=weights, states=_copy(states), params=_copy(params), kept=kept)
        self._document["nodes"][name] = given
        return Ref(name)

    def layout(self, key: str, value: Any) -> None:
        self._document["layout"][key] = value


class GraphBuilder(_Declaring):
    def __init__(self, name: str, *, description: str = "") -> None:
        super().__init__({"format": FORMAT, "name": name, "description": description, "streams": []})
        for section in ("walks", "tasks", "blueprints"):
            self._document[section] = {}

    @contextmanager
    def walk(
        self, name: str, *, label: str = "", inputs: Mapping[str, str] | None = None, **more: str
    ) -> Generator["WalkBuilder", None, None]:
        """Add a Walk. Inputs (name -> port type) may also be keywords: `g.walk("decode", token="tokens")`."""
        walk: Fields = {"label": label, "inputs": {**(inputs or {}), **more}, "body": [], "edges": [], "results": {}}
        self._document["walks"][name] = walk
        yield WalkBuilder(walk)

    def stream(
        self,
        name: str,
        source: str,
        *,
        walks: Sequence[str],
        chunks: Mapping[str, Any],
        credits: int | None = None,  # noqa: A002  the word of the document
    ) -> str:
        """Add a stream from `use.port`; return the reference that its consumer's edge starts from. For `chunks` see
        `fixed`, `sliding` and the other policies."""
        given = {"name": name, "from": source, "walks": list(walks), "chunks": dict(chunks)}
        self._document["streams"].append(given | _fields(credits=credits))
        return f"@stream.{name}"

    @contextmanager
    def task(self, name: str, *, outputs: Sequence[str], label: str = "") -> Generator["TaskBuilder", None, None]:
        task: Fields = {"label": label, "inputs": {}, "outputs": list(outputs), "params": {}, "steps": []}
        self._document["tasks"][name] = task
        yield TaskBuilder(task)

    @contextmanager
    def blueprint(
        self,
        name: str,
        *,
        description: str = "",
        inputs: Mapping[str, str] | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> Generator["BlueprintBuilder", None, None]:
        """Add a blueprint, for nodes with the component `blueprint.NAME`. `origin`: the entry of the library that it is
        a copy of."""
        given = {"description": description, "inputs": dict(inputs or {}), **_fields(origin=_copy(origin))}
        self._document["blueprints"][name] = given
        yield BlueprintBuilder(given)

    def build(self) -> Graph:
        """Return the graph; raises InvalidInput with a pointer into its JSON form where it is not well-formed."""
        return load(self._document)


class _Branching:
    """Collects the items of a body or the steps of a task, also those in the branches of choices."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items
        self._choice: Fields = {}
        """The choice whose branches come next."""

    @contextmanager
    def case(self, value: str) -> Generator[None, None, None]:
        """The items that run where the choice around them has this value, as text."""
        with self._into(self._given()["cases"].setdefault(value, [])):
            yield

    @contextmanager
    def otherwise(self) -> Generator[None, None, None]:
        """The items that run for any other value."""
        with self._into(self._given().setdefault("otherwise", [])):
            yield

    def _given(self) -> Fields:
        if not self._choice:
            raise InvalidInput("`case` and `otherwise` belong inside a choice; open one with `choose`")
        return self._choice

    @contextmanager
    def _choosing(self, given: Fields) -> Generator[None, None, None]:
        self._items.append(given)
        loose: list[Any] = []
        with self._into(loose, given):
            yield
        if loose:
            raise InvalidInput(f"the choice by `{given['choose']}` has more than `case` and `otherwise`; move the rest")

    @contextmanager
    def _into(self, items: list[Any], choice: Fields | None = None) -> Generator[None, None, None]:
        outer = self._items, self._choice
        self._items, self._choice = items, choice or {}
        try:
            yield
        finally:
            self._items, self._choice = outer


class WalkBuilder(_Branching):
    def __init__(self, walk: Fields) -> None:
        super().__init__(walk["body"])
        self._walk = walk

    def use(self, node: Ref | str, *, as_: str | None = None, when: str | None = None) -> Ref:
        name = _name(node)
        self._items.append({"use": name} | _fields(when=when) | ({"as": as_} if as_ else {}))
        return Ref(as_ or name)

    def fork(self, state: str, into: str, *, when: str | None = None) -> None:
        self._items.append(_fields(fork=state, into=into, when=when))

    @contextmanager
    def loop(
        self,
        name: str,
        *,
        times: str | int,
        until: str | None = None,
        drop_last: bool = False,
        when: str | None = None,
    ) -> Generator[str, None, None]:
        """Add a loop; yields the reference to its index, for edges inside."""
        given = _fields(loop=name, times=str(times), until=until, drop_last=drop_last or None, when=when)
        with self._inside(given, "body"):
            yield f"@loop.{name}"

    @contextmanager
    def map(
        self,
        source: str,
        *,
        bound: str | int,
        width: str | int = 1,
        as_: str | None = None,
        when: str | None = None,
    ) -> Generator[str, None, None]:
        """Run what is inside for every item of a list, `width` at once; yields the reference to the item's index. An
        edge from the list into it with `each=True` brings the item."""
        given = _fields(map=source, bound=str(bound), width=str(width) if str(width) != "1" else None, when=when)
        with self._inside(given | ({"as": as_} if as_ else {}), "body"):
            yield f"@loop.{as_ or 'items'}"

    @contextmanager
    def parallel(self, *, when: str | None = None) -> Generator[None, None, None]:
        with self._inside(_fields(when=when), "parallel"):
            yield

    @contextmanager
    def sequence(self, *, when: str | None = None) -> Generator[None, None, None]:
        with self._inside(_fields(when=when), "sequence"):
            yield

    @contextmanager
    def choose(self, source: str, *, when: str | None = None) -> Generator[None, None, None]:
        """Take one branch by the value of `source`: `with w.choose(judge["kind"]):`, inside it `with w.case("draw"):`
        and `with w.otherwise():`."""
        with self._choosing({"choose": source, "cases": {}, **_fields(when=when)}):
            yield

    def merge(self, name: str, *sources: str) -> str:
        """Name the one value of several exclusive branches; returns its reference, for edges."""
        self._walk.setdefault("merges", {})[name] = list(sources)
        return f"@merge.{name}"

    @contextmanager
    def _inside(self, item: Fields, key: str) -> Generator[None, None, None]:
        inside: list[Any] = []
        self._items.append({**item, key: inside})
        with self._into(inside):
            yield

    def edge(self, source: str, target: str, *, each: bool = False, collect: Collect = False) -> None:
        self._walk["edges"].append({"from": source, "to": target, "each": each, "collect": collect})

    def result(self, name: str, source: str, *, collect: Collect = False) -> None:
        self._walk["results"][name] = {"from": source, "collect": collect}

    def input(self, name: str) -> str:
        return f"@in.{name}"

    def out(self, name: str) -> str:
        return f"@out.{name}"


class BlueprintBuilder(_Declaring, WalkBuilder):
    """Writes a blueprint: its nodes as a graph's, and what they do as in a Walk."""

    def __init__(self, blueprint: Fields) -> None:
        blueprint |= {"outputs": {}, "params": {}, "body": [], "edges": []}
        _Declaring.__init__(self, blueprint)
        WalkBuilder.__init__(self, blueprint)

    def output(self, name: str, source: str, *, collect: Collect = False) -> None:
        self._walk["outputs"][name] = {"from": source, "collect": collect}

    def param(
        self,
        name: str,
        type_: Literal["integer", "number", "boolean", "string"],
        *,
        default: Scalar | None = None,
        min: float | None = None,  # noqa: A002  the words of the document
        max: float | None = None,  # noqa: A002
        choices: Sequence[Scalar] = (),
        description: str = "",
    ) -> str:
        """Declare a parameter; returns its name, for expressions."""
        given = _fields(type=type_, default=default, min=min, max=max, choices=list(choices), description=description)
        self._walk["params"][name] = given
        return name


class TaskBuilder(_Branching):
    def __init__(self, task: Fields) -> None:
        super().__init__(task["steps"])
        self._task = task

    def input(
        self,
        name: str,
        modality: str,
        *,
        many: bool = False,
        optional: bool = False,
        default: Scalar | Sequence[float] | None = None,
        description: str = "",
    ) -> str:
        self._task["inputs"][name] = {
            "modality": modality,
            "many": many,
            "optional": optional,
            "description": description,
            **({} if default is None else {"default": default}),
        }
        return f"@task.{name}"

    def param(
        self,
        name: str,
        type_: Literal["integer", "number", "boolean", "string"],
        *,
        default: Scalar | None = None,
        min: float | None = None,  # noqa: A002  the words of the document
        max: float | None = None,  # noqa: A002
        choices: Sequence[Scalar] = (),
        description: str = "",
    ) -> str:
        given = _fields(type=type_, default=default, min=min, max=max, choices=list(choices), description=description)
        self._task["params"][name] = given
        return f"@task.{name}"

    def step(
        self,
        walk: str,
        with_: Mapping[str, Scalar] | None = None,
        *,
        as_: str | None = None,
        when: str | None = None,
        per: Literal["chunk"] | None = None,
    ) -> str:
        """Run a Walk; returns its name for `f"{step}.result"`."""
        names = {"as": as_} if as_ else {}
        self._items.append({"walk": walk, "with": _copy(with_) or {}} | names | _fields(when=when, per=per))
        return as_ or walk

    @contextmanager
    def first(self) -> Generator[None, None, None]:
        """Take the first of the steps inside whose `when` holds."""
        steps: list[Any] = []
        self._items.append({"first": steps})
        with self._into(steps):
            yield

    @contextmanager
    def choose(self, source: str) -> Generator[None, None, None]:
        """Take one branch by a parameter (`"@task.mode"`) or by a result (`f"{step}.kind"`): `with t.case("draw"):`
        and `with t.otherwise():` hold the steps."""
        with self._choosing({"choose": source, "cases": {}}):
            yield

    @contextmanager
    def loop(
        self, *, times: str | int, until: str | None = None, start: Starts = None, as_: str | None = None
    ) -> Generator[None, None, None]:
        """Run the steps inside again and again. `until`: a flag of one of them (`f"{step}.done"`) that ends the loop;
        `start`: what their results stand for before they have run, as `{f"{step}.text": "@task.prompt"}`; `as_`: its
        name where a run tells why it ended."""
        steps: list[Any] = []
        given = _fields(times=str(times), until=until, start=_copy(start))
        self._items.append({"loop": steps} | given | ({"as": as_} if as_ else {}))
        with self._into(steps):
            yield

    def approve(self, *shown: str, label: str = "", within: int | None = None, as_: str | None = None) -> str:
        """Wait until a person approves what is shown: results of earlier steps, as `f"{step}.text"`. `within`: seconds;
        `as_`: a name that gives the answer to later steps, as `f"{name}.approved"` and `f"{name}.note"`. Returns that
        name."""
        names = {"label": label} if label else {}
        self._items.append({"approve": list(shown)} | names | _fields(within=within) | ({"as": as_} if as_ else {}))
        return as_ or ""

    def parts(self) -> "PartsBuilder":
        """Go through the interleaved input parts: `parts = t.parts()`, then `with parts.steps("text"): ...`."""
        step: Fields = {"for": "parts"}
        self._items.append(step)
        return PartsBuilder(self, step)

    def turns(self) -> "TurnsBuilder":
        """Go through the turns of the `messages` input: `turns = t.turns()`, then `with turns.steps("user"): ...`.
        Inside, `parts` goes through the parts of the turn."""
        step: Fields = {"for": "turns"}
        self._items.append(step)
        return TurnsBuilder(self, step)

    def lanes(self) -> None:
        """Give each partition its own list of steps; `lane` does this too."""
        if not isinstance(self._task["steps"], dict):
            self._task["steps"] = {}

    @contextmanager
    def lane(self, name: str) -> Generator[None, None, None]:
        """The steps of one partition."""
        self.lanes()
        with self._into(self._task["steps"].setdefault(name, [])):
            yield

    def session(
        self,
        *,
        queue: Literal["fifo", "latest"] | None = None,
        ttl_seconds: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._task["session"] = _fields(queue=queue, ttl_seconds=ttl_seconds, max_bytes=max_bytes)


class PartsBuilder:
    def __init__(self, task: TaskBuilder, step: Fields) -> None:
        self._task = task
        self._step = step

    @contextmanager
    def steps(
        self, modality: Literal["text", "image", "audio", "video", "state", "actions"]
    ) -> Generator[None, None, None]:
        """Add the steps for a part of this modality."""
        with self._task._into(self._step.setdefault(modality, [])):  # pyright: ignore[reportPrivateUsage]
            yield


class TurnsBuilder:
    def __init__(self, task: TaskBuilder, step: Fields) -> None:
        self._task = task
        self._step = step

    @contextmanager
    def steps(self, role: Literal["system", "user", "assistant", "tool"]) -> Generator[None, None, None]:
        """Add the steps for a turn of this role."""
        with self._task._into(self._step.setdefault(role, [])):  # pyright: ignore[reportPrivateUsage]
            yield


def _fields(**values: Any) -> Fields:
    """The given values without those that are None."""
    return {key: value for key, value in values.items() if value is not None}


def _copy(values: Mapping[str, Any] | None) -> Fields | None:
    return None if values is None else dict(values)


def _name(node: Ref | str) -> str:
    return node if isinstance(node, str) else node.name
