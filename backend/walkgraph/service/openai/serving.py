"""Decides which of OpenAI's routes a task serves, from its declaration alone: its inputs, outputs and names of
parameters. Independent of model families.

    chat.completions      the first output is text; it takes a conversation, or text, images, audio or video, and
                          requires nothing else
    images.generations    the first output is an image; it takes text, and requires nothing else
    images.edits          the first output is an image; it takes an image, and requires at most a text besides
    audio.speech          the first output is audio; it takes text, and requires nothing else
    realtime              it serves chat or speech, and requires no video

A task serves no route if an output fits no such answer (a robot's actions, a flag).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

from walkgraph.checkpoints.chat_template import CallForm, ChatTemplate
from walkgraph.checkpoints.known_templates import PUBLISHED, TEMPLATES, template_of
from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.conversation import MESSAGES, Role
from walkgraph.graph.document import ForStep, Graph, Step, Task, TaskParam, TurnsStep
from walkgraph.graph.steps import inside, is_needed, lanes, steps_of
from walkgraph.graph.structure import Route as Edge
from walkgraph.graph.structure import WalkStructure, structure
from walkgraph.graph.turns import turn_parts
from walkgraph.placement.request import by_name, declared_params
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.deployments import Deployments
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.http.problems import Fault, Unprocessable

Route = Literal["chat.completions", "images.generations", "images.edits", "audio.speech", "realtime"]
ROUTES: tuple[Route, ...] = get_args(Route)
SPOKEN = frozenset({"text", "image", "audio"})
"""Modalities that OpenAI's requests and answers can carry."""
SHOWN = SPOKEN | {"video"}
"""Modalities that the messages of a chat can carry: videos too, as `video_url`, which other servers know."""
VOICES = ("voice", "speaker")
"""Usual names of the parameter that selects the voice."""
KEPT_GRAPHS = 64
_CHAT_PROMPT = "text.chat_prompt"


@dataclass(frozen=True)
class Output:
    name: str
    modality: str
    each: bool
    """True if it comes once per iteration: a preview, or text token by token. (Outputs of a Walk that runs `per: chunk`
    come many times too.)"""
    loops: frozenset[tuple[str, str]]
    """(Walk, innermost loop with an `until`) pairs that it leaves from."""


@dataclass(frozen=True, eq=False)
class Serving:
    """A task as OpenAI's routes see it."""

    name: str
    task: Task
    outputs: tuple[Output, ...]
    """In the order in which the task declares them."""
    template: ChatTemplate | None = None
    """The template that writes the task's conversations; None if it is not known."""

    @property
    def calls(self) -> CallForm | None:
        """The form in which the task's answers call functions; None if its template is unknown or has none."""
        return self.template.called if self.template is not None else None

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        return tuple(route for route in ROUTES if self._serves(route))

    @cached_property
    def params(self) -> Mapping[str, TaskParam]:
        """Parameters of the task, including `seed`."""
        return declared_params(self.task)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Modalities of the required inputs."""
        return frozenset(i.modality for i in self.task.inputs.values() if is_needed(i))

    @cached_property
    def taken(self) -> frozenset[str]:
        """Modalities of all inputs."""
        return frozenset(i.modality for i in self.task.inputs.values())

    @cached_property
    def walked(self) -> frozenset[str]:
        """Modalities that the task walks in the order in which they are sent (`parts`)."""
        bound = by_name(self.task)
        kinds = frozenset(i.modality for name, i in self.task.inputs.items() if name not in bound)
        return kinds & self._for_parts

    @cached_property
    def conversation(self) -> str | None:
        """The input that takes a conversation."""
        return next(iter(self.inputs_of(MESSAGES)), None)

    @cached_property
    def turns(self) -> Mapping[Role, frozenset[str]]:
        """Role -> the modalities that such turns of the conversation may have; empty without one."""
        return turn_parts(self.task)

    @cached_property
    def heard(self) -> frozenset[str]:
        """The modalities that a chat can bring: those of a conversation's turns, or of all inputs."""
        return frozenset[str]().union(*self.turns.values()) if self.turns else self.taken

    @cached_property
    def voice(self) -> str | None:
        """The parameter that selects the voice."""
        return next((name for name in VOICES if name in self.task.params), None)

    def voice_named(self, asked: str) -> str:
        """The task's voice of this name, however that is capitalised; a name that it doesn't have stays as it is."""
        choices = self.params[self.voice].choices if self.voice is not None else None
        return next((one for one in map(str, choices or ()) if one.casefold() == asked.casefold()), asked)

    def inputs_of(self, modality: str) -> tuple[str, ...]:
        """Names of the inputs of a modality, in the order of their declaration."""
        return tuple(name for name, i in self.task.inputs.items() if i.modality == modality)

    def output_of(self, modality: str) -> Output | None:
        """The first output of a modality; for images, the first that isn't a preview, if there is one."""
        fitting = [output for output in self.outputs if output.modality == modality]
        if modality == "image":
            fitting.sort(key=lambda output: output.each)
        return fitting[0] if fitting else None

    @cached_property
    def preview(self) -> Output | None:
        """The output with previews of the image."""
        final = self.output_of("image")
        rest = (output for output in self.outputs if output.modality == "image" and output.each)
        return next((output for output in rest if output is not final), None)

    @cached_property
    def _for_parts(self) -> frozenset[str]:
        return frozenset(kind for steps in lanes(self.task).values() for kind in _kinds(steps))

    def _serves(self, route: Route) -> bool:
        if not self.outputs or not {output.modality for output in self.outputs} <= SPOKEN:
            return False
        first = self.outputs[0].modality
        match route:
            case "chat.completions":
                if self.conversation is not None:
                    return first == "text" and self.needed <= {MESSAGES}
                return first == "text" and bool(self.taken & SHOWN) and self.needed <= SHOWN
            case "images.generations":
                return first == "image" and "text" in self.taken and self.needed <= {"text"}
            case "images.edits":
                return first == "image" and "image" in self.taken and self.needed <= {"image", "text"}
            case "audio.speech":
                return first == "audio" and "text" in self.taken and self.needed <= {"text"}
            case "realtime":
                talks = self._serves("chat.completions") and "video" not in self.needed
                return talks or self._serves("audio.speech")


@dataclass(frozen=True)
class Resolved:
    """The deployment and task that a request's `model` names."""

    managed: Managed
    serving: Serving

    @property
    def model(self) -> str:
        """The name in answers."""
        return f"{self.managed.id}/{self.serving.name}"


def servings(graph: Graph, plan: Plan | None = None) -> Mapping[str, Serving]:
    """All tasks of a graph, in its order; cached per graph. `plan`: knows the outputs of nodes that call tasks."""
    return _servings(_ById(graph), _ById(plan))


def routes(graph: Graph, plan: Plan | None = None) -> dict[Route, list[str]]:
    """Route -> the tasks that serve it, the default first. Routes without a task are left out. `plan`: as in
    `servings`."""
    able = servings(graph, plan).values()
    found: dict[Route, list[str]] = {route: [s.name for s in able if route in s.routes] for route in ROUTES}
    return {route: names for route, names in found.items() if names}


def find(deployments: Deployments, model: str) -> tuple[Managed, str | None]:
    """The deployment, and the task if `model` is `deployment/task`. Raises NotFound, and Unavailable if the deployment
    is not judged yet."""
    id_, slash, task = model.partition("/")
    try:
        managed = deployments.get(id_)
    except NotFound as error:
        raise NotFound(str(error), "/model") from None
    if not slash:
        return managed, None
    if task not in managed.tasks():
        known = ", ".join(f"`{id_}/{name}`" for name in managed.tasks()) or "none"
        raise NotFound(f"the deployment `{id_}` has no task `{task[:64]}`; there are: {known}", "/model")
    return managed, task


def resolve(deployments: Deployments, model: str, route: Route, *, history: bool = False) -> Resolved:
    """The task that serves `route` for a request's `model`: the named one, or the deployment's first that can. With
    `history`, which is earlier answers in the request, the first that takes a conversation, if there is one.

    Raises NotFound for an unknown name, Unavailable while the deployment is not judged, Unprocessable
    (`unsupported_route`), with the routes that it serves, if the model can't.
    """
    managed, task = find(deployments, model)
    known = servings(managed.judged_graph(), managed.plan)
    if task is not None:
        if route in known[task].routes:
            return Resolved(managed, known[task])
        raise unsupported("/model", "unsupported_route", _refusal(managed, route, task))
    able = [found for found in known.values() if route in found.routes]
    if not able:
        raise unsupported("/model", "unsupported_route", _refusal(managed, route, None))
    return Resolved(managed, next((one for one in able if history and one.conversation is not None), able[0]))


def unsupported(pointer: str, code: str, message: str) -> InvalidInput:
    """An error with status 400, `param` and `code` in OpenAI's dialect."""
    return Unprocessable(message, [Fault(pointer, code, message)])


def _refusal(managed: Managed, route: Route, task: str | None) -> str:
    name = f"`{managed.id}`" if task is None else f"`{managed.id}/{task}`"
    able = routes(managed.judged_graph(), managed.plan)
    if task is not None:
        able = {one: [task] for one, tasks in able.items() if task in tasks}
    told = ", ".join(f"{route} ({', '.join(tasks)})" for route, tasks in able.items())
    instead = f"it serves: {told}" if told else "none of its tasks has an OpenAI route; call them at `/v1/tasks`"
    return f"{name} does not serve {route}; {instead}"


# ── the graph ───────────────────────────────────────────────────────────────────────────────────


class _ById:
    """A cache key that compares graphs, or plans, by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.value is self.value


@lru_cache(maxsize=KEPT_GRAPHS)
def _servings(graph_key: _ById, plan_key: _ById) -> Mapping[str, Serving]:
    graph: Graph = graph_key.value
    planned = _planned(plan_key.value)
    return {
        name: Serving(name, task, tuple(_outputs(graph, task, planned)), _template(graph, task))
        for name, task in graph.tasks.items()
    }


def _template(graph: Graph, task: Task) -> ChatTemplate | None:
    """The template of the node that writes the task's conversations."""
    walks = dict.fromkeys(at.step.walk for at in steps_of(task))
    used = {entry.node for walk in walks for entry in structure(graph.walks[walk], walk).entries}
    for name, node in graph.nodes.items():
        if node.component == _CHAT_PROMPT and name in used:
            template = node.params.get("template", PUBLISHED)
            source = graph.weights[node.weights].source if node.weights in graph.weights else ""
            if template == PUBLISHED and source.startswith("random:"):
                template = template_of(None, PUBLISHED).name
            return TEMPLATES.get(str(template))
    return None


def _planned(plan: Plan | None) -> Mapping[tuple[str, str], str]:
    """(Walk, output) -> its modality."""
    walks = plan.walks if plan is not None else ()
    out = [(walk.name, edge.target) for walk in walks for edge in walk.edges if edge.target.kind == "out"]
    return {(walk, target.port): target.modality for walk, target in out if target.modality}


def _outputs(graph: Graph, task: Task, planned: Mapping[tuple[str, str], str]) -> Iterator[Output]:
    """The declared outputs, with what the edges of the task's Walks say about them."""
    walks = dict.fromkeys(at.step.walk for at in steps_of(task))
    made: dict[str, list[tuple[WalkStructure, Edge]]] = {}
    for walk in walks:
        for edge in (found := structure(graph.walks[walk], walk)).routes:
            if edge.target.kind == "out":
                made.setdefault(edge.target.name, []).append((found, edge))
    for name in task.outputs:
        edges = made.get(name, [])
        kinds = [_modality(graph, edge) or planned.get((walk.name, name), "") for walk, edge in edges]
        modality = next(filter(None, kinds), "")
        each = any(edge.leave == "each" for _, edge in edges)
        loops = {(walk.name, loop) for walk, edge in edges if (loop := _judged_loop(walk, edge))}
        yield Output(name, modality, each, frozenset(loops))


def _modality(graph: Graph, edge: Edge) -> str:
    if edge.source.entry is None:
        return ""
    component = catalogue().get(graph.nodes[edge.source.entry.node].component)
    port = component.output(edge.source.port) if component else None
    return port.type.modality if port else ""


def _judged_loop(walk: WalkStructure, edge: Edge) -> str | None:
    """The innermost loop around an edge's source that has an `until`."""
    if edge.source.entry is None:
        return None
    judged = {loop.name for loop in walk.loops if loop.item.until is not None}
    return next((name for name in reversed(edge.source.entry.loops) if name in judged), None)


def _kinds(steps: tuple[Step, ...]) -> Iterator[str]:
    """Modalities that are walked as parts of the request."""
    for step in steps:
        if isinstance(step, TurnsStep):
            continue
        if isinstance(step, ForStep):
            yield from step.branches
        for inner in inside(step):
            yield from _kinds(inner)
