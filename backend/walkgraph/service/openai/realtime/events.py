"""The events that a client of `/v1/realtime` may send: OpenAI's, with the supported fields. Other fields that clients
send by default are accepted while they are empty."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from walkgraph.service.http import limits
from walkgraph.service.http.dialects import Fault
from walkgraph.service.http.problems import Unprocessable, validation_faults
from walkgraph.service.openai.speech import bare_voice

RATE = 24_000
"""Sample rate of `audio/pcm` in both directions; one channel, 16 bits."""
PCM = {"type": "audio/pcm", "rate": RATE}
Modality = Literal["text", "audio"]

_Text = Annotated[str, Field(max_length=limits.TEXT_CHARACTERS)]
_Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")]
_Voice = Annotated[Annotated[str, Field(min_length=1, max_length=256)] | None, BeforeValidator(bare_voice)]
_Base64 = Annotated[str, Field(max_length=limits.WS_FRAME_BYTES)]
_Modalities = Annotated[list[Modality], Field(min_length=1, max_length=2)]
_Nothing = Annotated[list[Any], Field(max_length=0)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class AudioFormat(_Closed):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] | None = None


class AudioInput(_Closed):
    format: AudioFormat | None = None
    turn_detection: None = None
    noise_reduction: None = None
    transcription: None = None


class AudioOutput(_Closed):
    format: AudioFormat | None = None
    voice: _Voice = None
    speed: Annotated[float, Field(ge=1.0, le=1.0)] | None = None


class Audio(_Closed):
    input: AudioInput | None = None
    output: AudioOutput | None = None


class Asked(BaseModel):
    """The fields that a session and a response share. Other keys are parameters of the task."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    instructions: _Text | None = None
    output_modalities: _Modalities | None = None
    modalities: _Modalities | None = None
    """The name that clients of the beta use."""
    audio: Audio | None = None
    voice: _Voice = None
    input_audio_format: Literal["pcm16"] | None = None
    output_audio_format: Literal["pcm16"] | None = None
    turn_detection: None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["inf"] | None = None
    tools: _Nothing | None = None
    tool_choice: Literal["auto", "none"] | None = None
    prompt: None = None
    parallel_tool_calls: bool | None = None

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def asked_modalities(self) -> list[Modality] | None:
        return self.output_modalities or self.modalities

    @property
    def asked_voice(self) -> str | None:
        inner = self.audio.output.voice if self.audio and self.audio.output else None
        return inner or self.voice

    def says(self, name: str) -> bool:
        """True if the client sent this field."""
        return name in self.model_fields_set


class SessionAsked(Asked):
    type: Literal["realtime"] = "realtime"
    model: Annotated[str, Field(max_length=129)] | None = None
    include: _Nothing | None = None
    tracing: None = None
    truncation: Literal["auto", "disabled"] | None = None
    input_audio_transcription: None = None


class Content(_Closed):
    type: Literal["input_text", "input_audio", "input_image", "output_text", "text"]
    text: _Text | None = None
    audio: _Base64 | None = None
    image_url: _Base64 | None = None
    detail: Literal["auto", "low", "high"] | None = None
    transcript: _Text | None = None


class ItemAsked(_Closed):
    type: Literal["message"] = "message"
    id: _Id | None = None
    object: Literal["realtime.item"] | None = None
    role: Literal["user", "assistant", "system"] = "user"
    status: Literal["completed", "incomplete", "in_progress"] | None = None
    content: Annotated[list[Content], Field(min_length=1, max_length=limits.PARTS)]


class Reference(_Closed):
    type: Literal["item_reference"]
    id: _Id


Given = Annotated[Reference | ItemAsked, Field(discriminator="type")]


class ResponseAsked(Asked):
    conversation: Literal["auto", "none"] | None = None
    input: (
        Annotated[list[Annotated[Reference | ItemAsked, Field(discriminator="type")]], Field(max_length=256)] | None
    ) = None
    metadata: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None = Field(
        default=None, max_length=16
    )


class Event(_Closed):
    type: str
    event_id: Annotated[str, Field(max_length=512)] | None = None


class SessionUpdate(Event):
    session: SessionAsked


class ItemCreate(Event):
    item: ItemAsked
    previous_item_id: Annotated[str, Field(max_length=64)] | None = None


class ItemNamed(Event):
    item_id: Annotated[str, Field(max_length=64)]


class Append(Event):
    audio: _Base64


class ResponseCreate(Event):
    response: ResponseAsked | None = None


class ResponseCancel(Event):
    response_id: Annotated[str, Field(max_length=64)] | None = None


KINDS: dict[str, type[Event]] = {
    "session.update": SessionUpdate,
    "conversation.item.create": ItemCreate,
    "conversation.item.delete": ItemNamed,
    "conversation.item.retrieve": ItemNamed,
    "input_audio_buffer.append": Append,
    "input_audio_buffer.commit": Event,
    "input_audio_buffer.clear": Event,
    "response.create": ResponseCreate,
    "response.cancel": ResponseCancel,
}

_ADVICE = {
    "turn_detection": "turns are not detected here: set this to null, and send `input_audio_buffer.commit` and "
    "`response.create` at the end of each",
    "transcription": "input audio is not transcribed here; leave this out",
    "noise_reduction": "audio goes to the model as it is; leave this out",
    "tools": "tools are not supported; leave this out",
    "tool_choice": "tools are not supported; leave this out",
    "prompt": "stored prompts are not supported; send `instructions`",
    "tracing": "the service traces all runs itself; leave this out",
    "format": "audio is `audio/pcm` with 24000 Hz, one channel and 16 bits, in both directions",
    "input_audio_format": "audio is `pcm16` with 24000 Hz in both directions",
    "output_audio_format": "audio is `pcm16` with 24000 Hz in both directions",
    "speed": "only speed 1.0 is supported; let the player change it",
}


def read(message: Any) -> Event:
    """The event of a client's JSON. Raises Unprocessable, with pointers into the event."""
    if not isinstance(message, dict):
        raise wrong("", "an event must be an object with a `type`")
    given = cast(Mapping[str, Any], message)
    name = given.get("type")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise wrong("/type", f"there are {', '.join(f'`{known}`' for known in KINDS)}", "unknown_event")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        found = [_advised(fault) for fault in validation_faults(error.errors())]
        raise Unprocessable("some fields of the event are wrong", found) from None


def event_id(message: Any) -> str | None:
    """The client's id of an event, even if the rest of the event is invalid."""
    found = cast(dict[str, Any], message).get("event_id") if isinstance(message, dict) else None
    return found if isinstance(found, str) and len(found) <= 512 else None


def wrong(pointer: str, message: str, code: str = "bad_value") -> Unprocessable:
    return Unprocessable(message, [Fault(pointer, code, message)])


def _advised(fault: Fault) -> Fault:
    steps = fault.pointer.split("/")
    advice = next((_ADVICE[step] for step in reversed(steps) if step in _ADVICE), None)
    return fault if advice is None else Fault(fault.pointer, "bad_value", advice)
