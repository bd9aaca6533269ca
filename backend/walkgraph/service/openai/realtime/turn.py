"""Settings of a session of `/v1/realtime`, and the conversion of a turn to a task's request. The task alone decides the
modalities, so that models that hear and speak need no code here.

A task that takes a conversation gets all items. For any other, a turn is the items since the last answer: a task with
a session remembers earlier ones; for others, the client sends them in `response.create` with `input`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from walkgraph.service.http.dialects import Fault
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai.realtime.events import PCM, Asked, Modality, wrong
from walkgraph.service.openai.realtime.items import Conversation, Item, Part, spoken, wav_of
from walkgraph.service.openai.serving import Serving
from walkgraph.service.openai.speech import INSTRUCTIONS, voice_param

MOST = "max_tokens"


@dataclass(frozen=True)
class Setting:
    """Settings of a session, or of one response."""

    instructions: str
    modality: Modality
    voice: str | None
    most: int | Literal["inf"] = "inf"
    """Limit of output tokens."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, serving: Serving) -> Self:
        """The initial settings: the task's defaults."""
        name = instructions_of(serving)
        default = serving.params[name].default if name else None
        voice = serving.params[serving.voice].default if serving.voice else None
        spoken_ = "audio" in gives(serving)
        return cls(str(default or ""), "audio" if spoken_ else "text", None if voice is None else str(voice))

    def updated(self, asked: Asked, serving: Serving, at: str) -> Self:
        """The settings with a client's changes. Raises Unprocessable, with pointers below `at`, if the task can't
        follow one."""
        changes: dict[str, Any] = {}
        if asked.instructions is not None and asked.instructions != self.instructions:
            if not _instructed(serving):
                raise wrong(f"{at}/instructions", "this model takes no instructions; leave this out")
            changes["instructions"] = asked.instructions
        if asked.asked_modalities is not None:
            changes["modality"] = _modality(asked, serving, at)
        if asked.asked_voice is not None:
            voice_param(serving, asked.asked_voice, f"{at}/audio/output/voice")
            changes["voice"] = asked.asked_voice
        if asked.max_output_tokens is not None:
            if asked.max_output_tokens != "inf" and MOST not in serving.params:
                raise wrong(f"{at}/max_output_tokens", "this model has no such limit; leave this out")
            changes["most"] = asked.max_output_tokens
        if asked.params:
            _check_known(asked.params, serving, at)
            changes["params"] = {**self.params, **asked.params}
        return replace(self, **changes)

    def shown(self, serving: Serving) -> dict[str, Any]:
        """The fields that the session and response objects share."""
        speaks = "audio" in gives(serving)
        output = {"output": {"format": PCM, **({"voice": self.voice} if self.voice else {})}} if speaks else {}
        return {"output_modalities": [self.modality], "max_output_tokens": self.most, "audio": output}


def instructions_of(serving: Serving) -> str | None:
    """The task's parameter for instructions."""
    return next((name for name in INSTRUCTIONS if name in serving.params), None)


def _instructed(serving: Serving) -> bool:
    """True if the task takes instructions: in a parameter, or as a turn of its conversation."""
    return instructions_of(serving) is not None or "system" in serving.turns


def gives(serving: Serving) -> tuple[Modality, ...]:
    """Modalities of the task's outputs that a client can ask for."""
    known: tuple[Modality, ...] = ("text", "audio")
    return tuple(modality for modality in known if serving.output_of(modality) is not None)


def session_shown(id_: str, model: str, setting: Setting, serving: Serving) -> dict[str, Any]:
    """The session object of OpenAI's events."""
    common = setting.shown(serving)
    hears = {"input": {"format": PCM, "turn_detection": None, "transcription": None, "noise_reduction": None}}
    audio = {**(hears if "audio" in serving.heard else {}), **common["audio"]}
    if "output" in audio:
        audio["output"] = {**audio["output"], "speed": 1.0}
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": id_,
        "model": model,
        **common,
        "audio": audio,
        "instructions": setting.instructions,
        "tools": [],
        "tool_choice": "auto",
        "truncation": "disabled",
        "tracing": None,
        "include": None,
        **setting.params,
    }


def _modality(asked: Asked, serving: Serving, at: str) -> Modality:
    """The modality of the answer. `audio` includes its text if there is one, as in OpenAI's API."""
    wanted: Modality = "audio" if "audio" in (asked.asked_modalities or ()) else "text"
    able = gives(serving)
    key = "output_modalities" if asked.output_modalities else "modalities"
    if wanted not in able:
        told = " or ".join(f'`["{one}"]`' for one in able)
        raise wrong(f"{at}/{key}", f"this model can't answer in that modality; it can in {told}")
    return wanted


def _check_known(params: Mapping[str, Any], serving: Serving, at: str) -> None:
    known = ", ".join(f"`{name}`" for name in serving.params)
    faults = [
        Fault(f"{at}/{name[:80]}", "unknown_key", f"this model has no such parameter; it has {known}")
        for name in params
        if name not in serving.params
    ]
    if faults:
        raise Unprocessable("some fields of the event are not known", faults)


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def check_item(item: Item, serving: Serving, at: str) -> None:
    """Raises Unprocessable if the task has no place for the item."""
    if item.role == "system" and not _instructed(serving):
        raise wrong(f"{at}/role", "this model takes no instructions; say it in an item of role `user`")


def taken(conversation: Conversation, serving: Serving) -> list[Item]:
    """The items of a conversation that a response answers."""
    return conversation.turn() if serving.conversation is None else list(conversation)


def body_of(items: Sequence[Item], setting: Setting, serving: Serving, session: str) -> dict[str, Any]:
    """The native request of a turn. `session`: its name, for tasks that have one. Raises Unprocessable."""
    parts = spoken(items)
    if not parts:
        raise wrong("", "there is nothing to answer; send an item of role `user` first", "missing")
    inputs = _inputs(parts, serving) if serving.conversation is None else _turns(items, setting, serving)
    body: dict[str, Any] = {"inputs": inputs, "params": _params(items, setting, serving)}
    text, audio = serving.output_of("text"), serving.output_of("audio")
    wanted = (audio, text) if setting.modality == "audio" else (text,)
    body["outputs"] = [output.name for output in wanted if output is not None]
    if serving.task.session is not None and serving.conversation is None:
        body["session"] = session
    return body


def _params(items: Sequence[Item], setting: Setting, serving: Serving) -> dict[str, Any]:
    params = dict(setting.params)
    name = instructions_of(serving)
    if name is not None and "system" not in serving.turns:
        told = [setting.instructions, *(part.text for part in spoken(items, ("system",)))]
        params[name] = "\n".join(text for text in told if text)
    if setting.voice is not None and serving.voice is not None and setting.modality == "audio":
        params[serving.voice] = setting.voice
    if setting.most != "inf":
        params[MOST] = setting.most
    return params


def _turns(items: Sequence[Item], setting: Setting, serving: Serving) -> dict[str, Any]:
    """The conversation: the instructions, then every item as a turn. Of an answer, its text or the audio's
    transcript."""
    turns: list[dict[str, Any]] = []
    if setting.instructions and "system" in serving.turns:
        turns.append({"role": "system", "content": setting.instructions})
    for item in items:
        if item.role == "assistant":
            text = "".join(part.text for part in item.parts)
            turns += [{"role": "assistant", "content": text}] if text else []
        else:
            turns.append({"role": item.role, "content": [_written(part) for part in item.parts]})
    return {serving.conversation or "": turns}


def _written(part: Part) -> dict[str, Any]:
    if part.kind == "text":
        return {"type": "text", "text": part.text}
    return {"type": part.kind, "data": wav_of(part.data) if part.kind == "audio" else bytes(part.data)}


def _inputs(parts: Sequence[Part], serving: Serving) -> dict[str, Any]:
    """The native inputs: parts in their order if the task walks parts, else inputs by name."""
    walked: list[dict[str, Any]] = []
    named: dict[str, list[Any]] = {}
    for part in parts:
        value: Any = part.text if part.kind == "text" else wav_of(part.data) if part.kind == "audio" else part.data
        if part.kind in serving.walked:
            walked.append({"type": part.kind, "text" if part.kind == "text" else "data": value})
        else:
            named.setdefault(serving.inputs_of(part.kind)[0], []).append(value)
    found: dict[str, Any] = {name: _one(name, given, serving) for name, given in named.items()}
    return {**found, "parts": walked} if walked else found


def _one(name: str, given: list[Any], serving: Serving) -> Any:
    declared = serving.task.inputs[name]
    if declared.many:
        return given
    if declared.modality == "text":
        return "\n".join(given)
    if len(given) > 1:
        raise wrong("", f"this model takes one {declared.modality} a turn; delete the others")
    return given[0]


def in_realtime_terms(error: Unprocessable, serving: Serving, at: str) -> Unprocessable:
    """The native request's error, with pointers into the event's session or response."""
    places = {f"/params/{MOST}": f"{at}/max_output_tokens"}
    name = instructions_of(serving)
    if name:
        places[f"/params/{name}"] = f"{at}/instructions"
    if serving.voice:
        places[f"/params/{serving.voice}"] = f"{at}/audio/output/voice"
    found: list[Fault] = []
    for fault in error.faults:
        rest = f"{at}{fault.pointer.removeprefix('/params')}" if fault.pointer.startswith("/params") else ""
        found.append(Fault(places.get(fault.pointer, rest), fault.code, fault.message))
    return Unprocessable(str(error), found)
