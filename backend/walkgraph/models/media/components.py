"""Pictures and sound as clients send and get them: encoded bytes outside, tensors inside."""

from walkgraph.graph.catalogue import Component, Example, port
from walkgraph.graph.declaring import PIXELS, Declarations, boolean, choice, integer

_FIT = {
    "min_side": integer("Minimum length of the shorter side in pixels.", default=0, min=0, max=8192),
    "max_side": integer("Maximum length of the longer side in pixels; 0 sets no maximum.", default=0, min=0, max=8192),
    "stride": integer("Both sides become multiples of this.", default=1, min=1, max=512),
    "size": integer("Force a square with this side; 0 keeps the proportions.", default=0, min=0, max=8192),
    "crop": boolean("Crop to the largest centred square first.", default=False),
    "resample": choice(
        ("bicubic", "bilinear"),
        "`bicubic`: antialiased, rounded to whole levels. `bilinear`: from the four nearest pixels, "
        "neither antialiased nor rounded.",
        default="bicubic",
    ),
    "max_pixels": integer(
        "Pictures with more pixels are scaled down first.", default=64_000_000, min=1, max=64_000_000
    ),
}

_picture = Declarations("media", category="Picture", host=True, deterministic=True)
_sound = Declarations("media", category="Sound", host=True, deterministic=True)

COMPONENTS: tuple[Component, ...] = (
    _picture(
        "media.picture_in",
        "Decodes a picture, fits its sides between two bounds and rounds them to a stride.",
        inputs=(port("image", "image: bytes"),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]; transparency is blended with white"),),
        params=_FIT,
        examples=(
            Example(
                params={"max_side": 320},
                inputs={"image": "a photo of 640x480"},
                outputs={"pixels": "its pixels at 320x240, [3, 240, 320]"},
            ),
        ),
    ),
    _picture(
        "media.picture_resize",
        "Resizes a picture's pixels by the rules of `media.picture_in`.",
        former=("media.picture_fit",),
        inputs=(port("pixels", PIXELS),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]"),),
        params=_FIT,
        examples=(
            Example(
                params={"size": 1},
                inputs={"pixels": [[[1, 1], [1, 1]], [[-1, -1], [-1, -1]], [[1, 1], [1, 1]]]},
                outputs={"pixels": [[[1.0]], [[-1.0]], [[1.0]]]},
                note="Four pixels of one colour become one.",
            ),
        ),
    ),
    _picture(
        "media.picture_out",
        "Encodes pixels as PNG.",
        inputs=(port("pixels", PIXELS, description="RGB in [-1, 1]; clamped"),),
        outputs=(port("image", "image: bytes"),),
        examples=(
            Example(
                inputs={"pixels": [[[1, -1]], [[-1, -1]], [[-1, 1]]]},
                outputs={"image": "a PNG of two pixels, red and blue"},
            ),
        ),
    ),
    _sound(
        "media.audio_in",
        "Decodes sound to one channel at a sample rate. Channels are averaged.",
        inputs=(port("audio", "audio: bytes", description="WAV, FLAC, Ogg, MP3, AAC, MP4 or WebM"),),
        outputs=(port("waveform", "waveform: float[n]", description="one channel in [-1, 1]"),),
        params={"sample_rate": integer("Sample rate in Hz.", default=24000, min=8000, max=192000)},
        examples=(
            Example(
                params={"sample_rate": 16000},
                inputs={"audio": "a WAV file of one second, 44100 Hz, stereo"},
                outputs={"waveform": "16000 samples"},
            ),
        ),
    ),
    _sound(
        "media.audio_out",
        "Encodes a waveform as 16-bit WAV; no output for a waveform without samples.",
        inputs=(port("waveform", "waveform: float[n]", description="one channel in [-1, 1]"),),
        outputs=(port("audio", "audio: bytes"),),
        params={"sample_rate": integer("Sample rate in Hz.", default=24000, min=8000, max=192000)},
        cost="launch",
        examples=(
            Example(
                params={"sample_rate": 16000},
                inputs={"waveform": [0.0, 0.5, -0.5]},
                outputs={"audio": "a WAV file of 3 samples at 16000 Hz"},
            ),
        ),
    ),
)
