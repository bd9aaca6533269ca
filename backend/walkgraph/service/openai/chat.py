"""Converts a chat completion's request to requests of its task. Pure.

A task that takes a conversation gets all messages as its turns (`chat_turns`). For any other, texts, images, audio and
videos become parts in their order if the task walks parts, else inputs; messages of assistants and tools are refused,
since the task has no place for them. So are fields of OpenAI's API that the task lacks, unless their values have no
effect.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from walkgraph.checkpoints.chat_template import CallForm, opening_of
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.steps import steps_of
from walkgraph.service.http.dialects import parameter
from walkgraph.service.http.problems import Fault, Unprocessable, pointer
from walkgraph.service.openai.chat_schemas import ChatRequest, Message, read_part
from walkgraph.service.openai.chat_turns import turns_of
from walkgraph.service.openai.serving import Output, Resolved, Serving, unsupported
from walkgraph.service.openai.tool_choice import FIELDS, Tools, tools_of

SYSTEM = "system_prompt"
LOGPROBS, BIAS = "logprobs", "logit_bias"
"""The parameter and the output with log-probabilities, and the input with what is added to logits."""
_SYSTEM_ROLES = ("system", "developer")
_OURS = ("priority", "deadline")
"""Extra fields that belong to the native request instead of being parameters of the task."""
_LABELS = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key"})
"""OpenAI's fields that have no effect, whatever their values."""
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "service_tier": ("auto", "default"),
    "response_format": ({"type": "text"},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none",),
    "parallel_tool_calls": (True,),
    "reasoning_effort": (),
    "verbosity": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
}
"""OpenAI's fields that tasks don't have, with the values that have no effect."""


@dataclass(frozen=True)
class Sent:
    """A task's requests, with the places in OpenAI's request that their values came from."""

    bodies: list[dict[str, Any]]
    """Native bodies of `POST /v1/tasks`, one for each choice."""
    text: Output
    audio: Output | None
    format: str
    """Audio format."""
    logprobs: str | None = None
    """The output with log-probabilities, if the request asks for them."""
    tools: Tools | None = None
    """The functions that the answer may call."""
    calls: CallForm | None = None
    """The way in which it calls them; None if the request has none."""
    opening: str = ""
    """The text of the call that the prompt has begun, if the answer must make one."""
    origins: dict[str, str] = field(default_factory=dict[str, str])
    """Pointer into a body -> pointer into the request."""

    def translated(self, faults: Iterable[Fault]) -> list[Fault]:
        """Faults of a native body as faults of OpenAI's request."""
        return [Fault(self._origin(fault.pointer), fault.code, fault.message) for fault in faults]

    def _origin(self, at: str) -> str:
        for inside in _upwards(at):
            if inside in self.origins:
                return self.origins[inside]
        if at.startswith("/params/"):
            return at.removeprefix("/params")
        return "/messages" if at.startswith("/inputs") else at


def send(request: ChatRequest, resolved: Resolved) -> Sent:
    """Converts a request. Raises Unprocessable for anything that the task can't do."""
    serving = resolved.serving
    text = serving.output_of("text")
    if text is None:
        raise unsupported("/model", "unsupported_route", f"`{resolved.model}` outputs no text")
    reading = _Reading(request, resolved)
    params, more = reading.params()
    audio = reading.audio(params)
    inputs = {**reading.inputs(params), **reading.biases()}
    logprobs = LOGPROBS if params.get(LOGPROBS) and LOGPROBS in serving.task.outputs else None
    outputs = [text.name, *([audio.name] if audio else []), *([logprobs] if logprobs else [])]
    body = {"inputs": inputs, "params": params, "outputs": outputs, **more}
    return Sent(
        bodies=[_with_seed(body, i) for i in range(request.n or 1)],
        text=text,
        audio=audio,
        format=request.audio.format if request.audio else "",
        logprobs=logprobs,
        tools=reading.tools,
        calls=serving.calls if reading.tools else None,
        opening=_opening(serving, reading.tools),
        origins=reading.origins,
    )


def _opening(serving: Serving, tools: Tools | None) -> str:
    if tools is None or tools.call is None or serving.template is None:
        return ""
    return opening_of(serving.template, tools.call)


def _with_seed(body: dict[str, Any], choice: int) -> dict[str, Any]:
    """Adds the choice's number to the seed; without a seed every run draws its own."""
    params = body["params"]
    if choice == 0 or "seed" not in params:
        return body
    return {**body, "params": {**params, "seed": params["seed"] + choice}}


class _Reading:
    def __init__(self, request: ChatRequest, resolved: Resolved) -> None:
        self._request = request
        self._name = resolved.model
        self._serving: Serving = resolved.serving
        self.origins: dict[str, str] = {}
        self.tools = tools_of(request.model_extra or {}, resolved.serving)

    # ── parameters ──────────────────────────────────────────────────────────────────────────────

    def params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(parameters of the task, fields of the native request)."""
        found: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for name in ("temperature", "top_p", "seed"):
            value = getattr(self._request, name)
            if value is not None and not (name == "top_p" and value == 1 and name not in self._serving.params):
                self._take(found, name, value, f"/{name}")
        self._take_most(found)
        self._take_logprobs(found)
        if self._request.stop:
            more["stop"] = self._request.stop
        for name, value in (self._request.model_extra or {}).items():
            if value is None or name in _LABELS or self._reads(name, value):
                continue
            if name in self._serving.params:
                found[name] = value
            elif name in _OURS:
                more[name] = value
            else:
                self._refuse_extra(name, value)
        return found, more

    def _reads(self, name: str, value: Any) -> bool:
        """True for a field about tools that has its effect, or none because nothing may be called."""
        return name in FIELDS and (self.tools is not None or (name == "tools" and bool(value and self._serving.calls)))

    def _take(self, found: dict[str, Any], name: str, value: Any, at: str) -> None:
        if name not in self._serving.params:
            raise unsupported(at, "unsupported_parameter", f"`{self._name}` has no parameter `{at[1:]}`; leave it out")
        found[name] = value
        self.origins[f"/params/{name}"] = at

    def _take_most(self, found: dict[str, Any]) -> None:
        new, old = self._request.max_completion_tokens, self._request.max_tokens
        if new is not None and old is not None and new != old:
            message = "`max_tokens` and `max_completion_tokens` differ; send one"
            raise unsupported("/max_tokens", "invalid_value", message)
        for name, value in (("max_completion_tokens", new), ("max_tokens", old)):
            if value is not None and "max_tokens" not in self._serving.params:
                message = f"`{self._name}` has no parameter `max_tokens`; leave `{name}` out"
                raise unsupported(f"/{name}", "unsupported_parameter", message)
            if value is not None:
                found["max_tokens"] = value
                self.origins["/params/max_tokens"] = f"/{name}"

    def _take_logprobs(self, found: dict[str, Any]) -> None:
        request = self._request
        if request.top_logprobs and not request.logprobs:
            message = "`top_logprobs` needs `logprobs`; send it as true"
            raise unsupported("/top_logprobs", "invalid_value", message)
        for name in (LOGPROBS, f"top_{LOGPROBS}"):
            if value := getattr(request, name):
                self._take(found, name, value, f"/{name}")

    def biases(self) -> dict[str, Any]:
        """The native input with what is added to logits, if the request has some."""
        if not self._request.logit_bias:
            return {}
        if BIAS not in self._serving.task.inputs:
            message = f"`{self._name}` has no input `{BIAS}`; leave it out"
            raise unsupported(f"/{BIAS}", "unsupported_parameter", message)
        self.origins[f"/inputs/{BIAS}"] = f"/{BIAS}"
        return {BIAS: [[int(token), value] for token, value in self._request.logit_bias.items()]}

    def _refuse_extra(self, name: str, value: Any) -> None:
        at = pointer([name[:80]])
        if name in _HARMLESS:
            if value in _HARMLESS[name]:
                return
            told = ", ".join(f"`{_json(known)}`" for known in _HARMLESS[name])
            advice = f"leave it out, or send {told}" if told else "leave it out"
            message = f"`{name}` can't be served by `{self._name}`; {advice}"
            raise unsupported(at, "unsupported_parameter", message)
        names = [*self._serving.params, *_OURS, *ChatRequest.model_fields]
        near = difflib.get_close_matches(name[:64], names, n=1)
        advice = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(f'`{n}`' for n in self._serving.params)}"
        raise unsupported(at, "unknown_parameter", f"`{self._name}` has no parameter `{name[:80]}`; {advice}")

    def audio(self, params: dict[str, Any]) -> Output | None:
        """The audio output, if the request asks for one; adds its voice to the parameters."""
        request, wanted = self._request, self._request.modalities or ["text"]
        if "audio" not in wanted:
            if request.audio is not None:
                raise unsupported("/audio", "invalid_value", '`audio` needs `"modalities": ["text", "audio"]`')
            return None
        found = self._serving.output_of("audio")
        if found is None:
            raise unsupported("/modalities", "unsupported_value", f'`{self._name}` has no audio; ask for `["text"]`')
        if "text" not in wanted:
            message = 'audio comes with its text; send `"modalities": ["text", "audio"]`'
            raise unsupported("/modalities", "unsupported_value", message)
        if request.audio is None:
            message = '`audio` is missing; send `{"voice": ..., "format": "wav"}`'
            raise unsupported("/audio", "missing_required_parameter", message)
        if request.audio.format == "aac":
            message = "`audio.format` can't be `aac`; there are `wav`, `mp3`, `flac`, `opus` and `pcm16`"
            raise unsupported("/audio/format", "unsupported_value", message)
        if request.audio.voice is not None:
            voice = request.audio.voice
            self._take_voice(params, voice if isinstance(voice, str) else voice.id)
        return found

    def _take_voice(self, params: dict[str, Any], voice: str) -> None:
        name = self._serving.voice
        if name is None:
            message = f"`{self._name}` has one voice; leave `audio.voice` out"
            raise unsupported("/audio/voice", "unsupported_parameter", message)
        params[name] = self._serving.voice_named(voice)
        self.origins[f"/params/{name}"] = "/audio/voice"

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def inputs(self, params: dict[str, Any]) -> dict[str, Any]:
        """The native inputs: the conversation, or by name and as `parts`."""
        if self._serving.conversation is not None:
            inputs, origins = turns_of(self._request.messages, self._serving, self._name)
            self.origins |= origins
            tools, name = self.tools, self._serving.conversation
            if tools is None:
                return inputs
            self.origins |= {f"/inputs/{name}/tools": "/tools", f"/inputs/{name}/call": "/tool_choice"}
            call = {} if tools.call is None else {"call": tools.call or True}
            return {name: {"turns": inputs[name], "tools": tools.given, **call}}
        said: list[tuple[str, Any, str]] = []
        system: list[tuple[str, str]] = []
        for i, message in enumerate(self._request.messages):
            at = f"/messages/{i}"
            self._check(message, at)
            pieces = list(_pieces(message, at))
            if message.role in _SYSTEM_ROLES:
                system += self._system(pieces)
            else:
                said += pieces
        if system:
            told = "\n".join(text for text, _ in system)
            if self._reads_system(params):
                params[SYSTEM] = told
                self.origins[f"/params/{SYSTEM}"] = system[0][1]
            else:
                said.insert(0, ("text", told, system[0][1]))
        return self._placed(said)

    def _check(self, message: Message, at: str) -> None:
        if message.role not in (*_SYSTEM_ROLES, "user"):
            advice = "send `user` messages, with earlier answers quoted in them if they matter"
            text = f"`{self._name}` has no place for messages of role `{message.role}`; {advice}"
            raise unsupported(f"{at}/role", "unsupported_value", text)
        for name in message.model_extra or {}:
            where = at + pointer([name[:80]])
            raise unsupported(where, "unknown_parameter", f"messages of role `{message.role}` have no such key")
        if message.content is None:
            raise unsupported(f"{at}/content", "missing_required_parameter", f"`{parameter(at)}.content` is missing")

    def _system(self, pieces: list[tuple[str, Any, str]]) -> Iterator[tuple[str, str]]:
        for kind, value, at in pieces:
            if kind != "text":
                raise unsupported(at, "unsupported_value", "a system message can only be text")
            yield cast(str, value), at

    def _reads_system(self, params: Mapping[str, Any]) -> bool:
        """True if a step that runs with these parameters reads the task's system prompt."""
        declared = self._serving.params
        if SYSTEM not in declared:
            return False
        filled = {name: params.get(name, param.default) for name, param in declared.items()}
        filled = {name: value for name, value in filled.items() if value is not None}
        reads = [at.step for at in steps_of(self._serving.task) if f"@task.{SYSTEM}" in at.step.with_.values()]
        try:
            return any(step.when is None or evaluate(parse(step.when), filled) is True for step in reads)
        except ExpressionError:
            # The task refuses such parameters itself.
            return True

    def _placed(self, said: list[tuple[str, Any, str]]) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        named: dict[str, list[Any]] = {}
        for kind, value, at in said:
            if kind not in self._serving.taken:
                taken = " and ".join(sorted(f"`{k}`" for k in self._serving.taken))
                raise unsupported(at, "unsupported_value", f"`{self._name}` takes {taken}, no `{kind}`; leave that out")
            if kind in self._serving.walked:
                self.origins[f"/inputs/parts/{len(parts)}"] = at
                parts.append({"type": kind, "text" if kind == "text" else "data": value})
                continue
            name = self._room(kind, named, at)
            self.origins[f"/inputs/{name}/{len(named.setdefault(name, []))}"] = at
            self.origins.setdefault(f"/inputs/{name}", at)
            named[name].append(value)
        found: dict[str, Any] = {name: self._one(name, values) for name, values in named.items()}
        return {**found, "parts": parts} if parts else found

    def _room(self, kind: str, named: Mapping[str, list[Any]], at: str) -> str:
        """Name of an input with room for one more value. Texts share one and are joined; others need their own."""
        names = self._serving.inputs_of(kind)
        for name in names:
            if self._serving.task.inputs[name].many or name not in named:
                return name
        if kind == "text":
            return names[-1]
        raise unsupported(at, "unsupported_value", f"`{self._name}` takes {len(names)} of type `{kind}`; send fewer")

    def _one(self, name: str, values: list[Any]) -> Any:
        declared = self._serving.task.inputs[name]
        if declared.many:
            return values
        return "\n".join(values) if declared.modality == "text" else values[0]


def _pieces(message: Message, at: str) -> Iterator[tuple[str, Any, str]]:
    """(modality, value, pointer) of a message's content."""
    if isinstance(message.content, str):
        yield "text", message.content, f"{at}/content"
        return
    for i, part in enumerate(message.content or ()):
        kind, value, place = read_part(part)
        yield kind, value, f"{at}/content/{i}{place}"


def _upwards(at: str) -> Iterator[str]:
    while at:
        yield at
        at = at.rpartition("/")[0]


def _json(value: Any) -> str:
    return repr(value).replace("'", '"').replace("False", "false").replace("True", "true")


def refused(error: Unprocessable, sent: Sent) -> Unprocessable:
    """The task's error, with pointers into OpenAI's request."""
    return Unprocessable(str(error), sent.translated(error.faults))
