"""A small speaker: a tokenizer of words, a network that speaks them as codes, and a vocoder for these."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import Declarations, kv_cache, number, sampling_params
from walkgraph.models.voice.config import read_voice
from walkgraph.placement.sizes import MIB, FamilySizes, Part, Shape, token_numbers, token_numbers_of

_component = Declarations("voice", weights="voice")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "voice.tokenizer",
        "Splits a text into the units that the speaker knows: its words, the letters of other words, digits and "
        "pauses.",
        category="Text",
        deterministic=True,
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        cost="launch",
        host=True,
    ),
    _component(
        "voice.speaker",
        "Takes the units of a text, then speaks one frame per step, as a code; each unit until its last frame.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="the units of a text, kept for the frames"),
            port("token", "tokens: int[1]", optional=True, description="the last frame, or the one given for `ids`"),
        ),
        outputs=(
            port("token", "tokens: int[1]", description="the frame as a token, which also says whether its unit ends"),
            port("code", "codes: int[1]", optional=True, description="the code of the frame, sampled"),
            port("stop", "flag: bool", optional=True, description="this is the last frame"),
        ),
        params=sampling_params(temperature=0.0, top_p=1.0),
        states=(kv_cache("token"), StateUse(slot="heard", kind="tensor")),
        cost="memory",
        resident=True,
    ),
    _component(
        "voice.vocoder",
        "Turns codes into sound: harmonics of a pitch, and noise.",
        category="Sound",
        inputs=(
            port(
                "codes",
                "codes: int[n]",
                description="a stream's next frames, in chunks of any size; its sound is the same however it is cut",
            ),
        ),
        outputs=(port("waveform", "waveform: float[s]", description="the sound of these frames"),),
        params={"shift": number("Raises the pitch by so many semitones.", default=0.0, min=-12, max=12)},
        states=(StateUse(slot="past", kind="tensor"),),
        cost="launch",
        host=True,
    ),
)

SIZES: Mapping[str, FamilySizes] = {
    "voice": FamilySizes(
        parts={"speaker": Part(stem="speaker"), "codec": Part(stem="codec", exact=True)},
        components={"voice.speaker": ("speaker",), "voice.vocoder": ("codec",)},
        shapes={
            "voice-tiny": Shape(
                parts={"speaker": 57_984, "codec": 1_088},
                caches={"voice.speaker": token_numbers(2, 2, 16)},
                workspace={"voice.speaker": MIB, "voice.vocoder": MIB},
            )
        },
        caches_of=lambda folder: {"voice.speaker": token_numbers_of(read_voice(folder))},
    ),
}
