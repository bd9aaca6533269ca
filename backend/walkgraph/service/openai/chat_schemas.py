"""Request and answers of chat completions, with limits. Other keys are parameters of the task, or fields of OpenAI's
that no task has."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from walkgraph.service.http import limits
from walkgraph.service.values.stops import MAX_CHARACTERS, MAX_STOPS

MAX_CHOICES = 8
MAX_BIASES = 300
FORMATS = ("wav", "mp3", "flac", "opus", "pcm16")

_SEED = 2**63


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


# ── the request ─────────────────────────────────────────────────────────────────────────────────


class TextPart(_Strict):
    type: Literal["text"]
    text: str = Field(max_length=limits.TEXT_CHARACTERS)


class ImageUrl(_Strict):
    url: str = Field(min_length=1, max_length=limits.BODY_BYTES, description="A `data:` URL with base64.")
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(_Strict):
    type: Literal["image_url"]
    image_url: ImageUrl


class InputAudio(_Strict):
    data: str = Field(min_length=1, max_length=limits.BODY_BYTES, description="Base64.")
    format: Literal["wav", "mp3", "flac"]


class AudioPart(_Strict):
    type: Literal["input_audio"]
    input_audio: InputAudio


class VideoUrl(_Strict):
    url: str = Field(min_length=1, max_length=limits.BODY_BYTES, description="A `data:` URL with base64.")


class VideoPart(_Strict):
    type: Literal["video_url"]
    video_url: VideoUrl


Part = Annotated[TextPart | ImagePart | AudioPart | VideoPart, Field(discriminator="type")]


def read_part(part: Part) -> tuple[str, str, str]:
    """(modality, value, the value's place in the part)."""
    match part:
        case TextPart():
            return "text", part.text, "/text"
        case ImagePart():
            return "image", part.image_url.url, "/image_url/url"
        case AudioPart():
            return "audio", part.input_audio.data, "/input_audio/data"
        case VideoPart():
            return "video", part.video_url.url, "/video_url/url"


def _shape(value: Any) -> str:
    return "many" if isinstance(value, list) else "one"


Content = Annotated[
    Annotated[str, Field(max_length=limits.TEXT_CHARACTERS), Tag("one")]
    | Annotated[list[Part], Field(min_length=1, max_length=limits.PARTS), Tag("many")],
    Discriminator(_shape),
]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
Token = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]
Stops = Annotated[
    Annotated[Stop, Tag("one")] | Annotated[list[Stop], Field(max_length=MAX_STOPS), Tag("many")], Discriminator(_shape)
]


class Message(BaseModel):
    # Other keys belong to messages of assistants and tools: their task reads or refuses them.
    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = Field(default=None, max_length=256)


class Voice(_Strict):
    id: str = Field(min_length=1, max_length=256)


def _named(value: Any) -> str:
    return "id" if isinstance(value, dict | Voice) else "name"


class AudioOut(_Strict):
    voice: (
        Annotated[
            Annotated[str, Field(min_length=1, max_length=256), Tag("name")] | Annotated[Voice, Tag("id")],
            Discriminator(_named),
        ]
        | None
    ) = None
    format: Literal["wav", "mp3", "flac", "opus", "pcm16", "aac"]


class StreamOptions(_Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=200, description="`deployment`, or `deployment/task`.")
    messages: list[Message] = Field(min_length=1, max_length=limits.TURNS)
    modalities: list[Literal["text", "audio"]] | None = Field(default=None, min_length=1, max_length=2)
    audio: AudioOut | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-_SEED, lt=_SEED)
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: Stops | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    logit_bias: dict[Token, Bias] | None = Field(
        default=None, max_length=MAX_BIASES, description="A token's number -> what is added to its logit."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None


# ── the answers ─────────────────────────────────────────────────────────────────────────────────


class PromptDetails(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Sound(BaseModel):
    id: str
    data: str
    """Base64."""
    expires_at: int
    transcript: str


class CalledFunction(BaseModel):
    name: str
    arguments: str
    """JSON."""


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Answered(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    audio: Sound | None = None
    tool_calls: list[ToolCall] | None = None


class Likely(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class Scored(Likely):
    top_logprobs: list[Likely]


class Logprobs(BaseModel):
    content: list[Scored]
    refusal: None = None


class Choice(BaseModel):
    index: int
    message: Answered
    logprobs: Logprobs | None = None
    finish_reason: Literal["stop", "length", "tool_calls"]
    finish_reasons: dict[str, str]
    """Output -> why it ended: `stop`, `bound` (a limit) or what its component says. Not OpenAI's."""


class Completion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
