"""Sound cut, mixed, made louder, split and drawn. A waveform is one channel in [-1, 1]."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, choice, integer, number

MOST_LISTED = 1024
"""The most waveforms of a list."""
WAVEFORM = "waveform: float[n]"
_WAVES = "list of waveform: float[n]"

_component = Declarations("sound", category="Sound", cost="launch", deterministic=True)
_host = Declarations("sound", category="Sound", cost="launch", host=True, deterministic=True)

_IN = port("waveform", WAVEFORM, description="one channel in [-1, 1]")
_OUT = port("waveform", WAVEFORM, description="one channel in [-1, 1]")
_CHANGED = port("waveform", "waveform: float[m]", description="one channel in [-1, 1]")


def _rate(what: str = "Sample rate of the sound in Hz.") -> Param:
    return integer(what, default=24000, min=8000, max=192000)


COMPONENTS: tuple[Component, ...] = (
    _host(
        "sound.resample",
        "Converts sound to another sample rate.",
        inputs=(_IN,),
        outputs=(_CHANGED,),
        params={"sample_rate": _rate("Sample rate it has in Hz."), "wanted": _rate("Sample rate it gets in Hz.")},
        cost="compute",
        examples=(
            Example(
                params={"sample_rate": 48000, "wanted": 16000},
                inputs={"waveform": "a second of speech, 48000 samples"},
                outputs={"waveform": "the same second, 16000 samples"},
            ),
        ),
    ),
    _component(
        "sound.mix",
        "Adds a second sound to a sound, such as music to speech. The result is as long as the longer one.",
        inputs=(_IN, port("other", "waveform: float[k]", description="the sound that is added")),
        outputs=(_CHANGED,),
        params={
            "gain": number("Gain of the second sound in dB.", default=0.0, min=-120, max=60),
            "start": number("Seconds after which the second sound begins.", default=0.0, min=0, max=7200),
            "sample_rate": _rate("Sample rate of both in Hz."),
        },
        examples=(
            Example(
                params={"gain": -20, "start": 0.000125, "sample_rate": 16000},
                inputs={"waveform": [0.5, 0.5, 0.5], "other": [1.0, 1.0]},
                outputs={"waveform": [0.5, 0.5, 0.6, 0.1]},
                note="The second sound begins two samples later, at a tenth of its size.",
            ),
        ),
    ),
    _component(
        "sound.cut",
        "Cuts a part out of a sound.",
        inputs=(_IN,),
        outputs=(_CHANGED,),
        params={
            "start": number("Seconds before the part.", default=0.0, min=0, max=7200),
            "length": number("Seconds of the part; 0 goes on to the end.", default=0.0, min=0, max=7200),
            "sample_rate": _rate(),
        },
        examples=(
            Example(
                params={"start": 0.000125, "sample_rate": 8000},
                inputs={"waveform": [0.1, 0.2, 0.3]},
                outputs={"waveform": [0.2, 0.3]},
            ),
        ),
    ),
    _component(
        "sound.concat",
        "Puts a list of sounds one after another.",
        inputs=(port("waveforms", _WAVES, description="they may differ in length"),),
        outputs=(_CHANGED,),
        params={
            "gap": number("Seconds of silence between two sounds.", default=0.0, min=0, max=60),
            "sample_rate": _rate("Sample rate of all in Hz."),
        },
        examples=(
            Example(
                params={"gap": 0.000125, "sample_rate": 8000},
                inputs={"waveforms": [[0.1, 0.2], [0.3]]},
                outputs={"waveform": [0.1, 0.2, 0.0, 0.3]},
            ),
        ),
    ),
    _component(
        "sound.gain",
        "Makes a sound louder or quieter. Values beyond [-1, 1] are kept; encoding clamps them.",
        inputs=(_IN,),
        outputs=(_OUT,),
        params={"gain": number("Gain in dB; 6 doubles, -6 halves.", default=0.0, min=-120, max=60)},
        examples=(
            Example(
                params={"gain": 20},
                inputs={"waveform": [0.05, -0.02]},
                outputs={"waveform": [0.5, -0.2]},
            ),
        ),
    ),
    _component(
        "sound.normalise",
        "Brings a sound to a level, by its peak or by its mean power. Silence stays silent.",
        inputs=(_IN,),
        outputs=(_OUT,),
        params={
            "by": choice(
                ("peak", "power"), "`peak`: the largest value. `power`: the root mean square.", default="peak"
            ),
            "level": number("The level in dB; 0 is the full range.", default=-1.0, min=-60, max=0),
        },
        examples=(
            Example(
                params={"level": 0},
                inputs={"waveform": [0.1, -0.5, 0.25]},
                outputs={"waveform": [0.2, -1.0, 0.5]},
            ),
        ),
    ),
    _component(
        "sound.silence_split",
        f"Splits a sound where it is silent, into at most {MOST_LISTED:,} parts without the silence.",
        inputs=(_IN,),
        outputs=(port("waveforms", _WAVES, description="the parts; one without samples if all is silent"),),
        params={
            "threshold": number(
                "Quieter than this is silence, in dB of the full range.", default=-40.0, min=-100, max=0
            ),
            "silence": number("Seconds of silence that end a part.", default=0.3, min=0.01, max=60),
            "margin": number("Seconds of silence kept at both ends of a part.", default=0.05, min=0, max=10),
            "sample_rate": _rate(),
        },
        examples=(
            Example(
                inputs={"waveform": "two words with half a second between them"},
                outputs={"waveforms": "two waveforms, each a word"},
            ),
        ),
    ),
    _component(
        "sound.spectrogram",
        "Draws a sound: time goes right, frequency up, and louder is lighter.",
        inputs=(_IN,),
        outputs=(port("pixels", "pixels: float[3, height, width]", description="RGB in [-1, 1]"),),
        params={
            "width": integer("Width in pixels.", default=512, min=16, max=4096),
            "height": integer("Height in pixels.", default=256, min=16, max=2048),
            "window": choice(
                ("512", "1024", "2048", "4096"),
                "Samples of a window: more show pitch finer and time coarser.",
                default="1024",
            ),
            "range": number("Drawn black: this many dB below the loudest.", default=80.0, min=10, max=200),
        },
        cost="compute",
        examples=(
            Example(
                inputs={"waveform": "a rising whistle of two seconds"},
                outputs={"pixels": "a light line that goes up, on black, at 512x256"},
            ),
        ),
    ),
)
