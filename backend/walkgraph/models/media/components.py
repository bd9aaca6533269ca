"""Pictures and sound as clients send and get them: encoded bytes outside, tensors inside."""

from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.graph.declaring import Declarations

_FIT = {
    "min_side": Param(type="integer", default=0, min=0, max=8192, description="Pixels of the shorter side at least."),
    "max_side": Param(
        type="integer", default=0, min=0, max=8192, description="Pixels of the longer side at most; 0: any."
    ),
    "stride": Param(type="integer", default=1, min=1, max=512, description="Both sides become multiples of it."),
    "size": Param(type="integer", default=0, min=0, max=8192, description="Force a square of this side; 0: keep."),
    "crop": Param(type="boolean", default=False, description="Take the largest square in the middle first."),
    "resample": Param(
        type="string",
        default="bicubic",
        choices=("bicubic", "bilinear"),
        description="`bicubic`: antialiased, rounded to whole levels. `bilinear`: from the four nearest pixels, "
        "neither antialiased nor rounded.",
    ),
    "max_pixels": Param(
        type="integer", default=64_000_000, min=1, max=64_000_000, description="A picture of more is scaled down first."
    ),
}

_component = Declarations("media", category="Picture", host=True)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "media.picture_in",
        "operators:PictureIn",
        "Decodes a picture, fits its sides between two bounds and rounds them to a stride.",
        inputs=(port("image", "image: bytes"),),
        outputs=(port("pixels", "pixels: float[3, h, w]", description="RGB in [-1, 1]; alpha is laid on white"),),
        params=_FIT,
    ),
    _component(
        "media.picture_resize",
        "operators:PictureResize",
        "Resizes pixels of a picture that was read, by the rules of `media.picture_in`.",
        former=("media.picture_fit",),
        inputs=(port("pixels", "pixels: float[3, h, w]"),),
        outputs=(port("pixels", "pixels: float[3, h, w]", description="RGB in [-1, 1]"),),
        params=_FIT,
    ),
    _component(
        "media.picture_out",
        "operators:PictureOut",
        "Encodes pixels as PNG.",
        inputs=(port("pixels", "pixels: float[3, h, w]", description="RGB in [-1, 1]; clamped"),),
        outputs=(port("image", "image: bytes"),),
    ),
    _component(
        "media.audio_in",
        None,
        "Decodes sound to one channel at a sample rate.",
        category="Sound",
        inputs=(port("audio", "audio: bytes"),),
        outputs=(port("waveform", "waveform: float[n]", description="one channel in [-1, 1]"),),
        params={
            "sample_rate": Param(type="integer", default=16000, min=8000, max=192000, description="Samples a second.")
        },
    ),
    _component(
        "media.audio_out",
        "operators:AudioOut",
        "Encodes a waveform as 16-bit WAV; one without samples gives nothing.",
        category="Sound",
        inputs=(port("waveform", "waveform: float[n]", description="one channel in [-1, 1]"),),
        outputs=(port("audio", "audio: bytes"),),
        params={
            "sample_rate": Param(type="integer", default=24000, min=8000, max=192000, description="Samples a second.")
        },
        cost="launch",
    ),
)
