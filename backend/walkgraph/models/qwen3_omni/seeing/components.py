"""Components that see: pictures and videos at the sizes that the encoder reads, and the encoder."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import PIXELS, Declarations, integer

MOST_PIXELS = 12_845_056
"""Most pixels of a picture: 12,544 embeddings."""
MOST_FRAMES = 768
_FRAMES = "list of pixels: float[3, h, w]"
_host = Declarations("qwen3_omni", module="seeing.picture_operators", host=True, deterministic=True)
_seen = Declarations("qwen3_omni", module="seeing.operators", weights="qwen3_omni", deterministic=True)
_SEEN = (
    port("embeddings", "embeddings: float[n, d]"),
    port("deepstack", "features: float[k, n, d]", description="added after the thinker's first layers"),
    port("grid", "tensor: int[3]", description="frames, rows and columns of the embeddings"),
)


def _limits(least: int, most: int) -> dict[str, Param]:
    return {
        "min_pixels": integer("Smaller pictures are enlarged to at least this.", default=least, min=1, max=MOST_PIXELS),
        "max_pixels": integer(
            "Larger pictures are scaled down to at most this.", default=most, min=1024, max=MOST_PIXELS
        ),
    }


_PICTURE = _limits(3136, MOST_PIXELS)
_FRAME = _limits(131_072, 786_432)

SEEING: tuple[Component, ...] = (
    _host(
        "qwen3_omni.picture_in",
        "Decodes a picture and resizes it as Qwen3-Omni reads it: sides are multiples of 32.",
        category="Picture",
        inputs=(port("image", "image: bytes"),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]; transparency is blended with white"),),
        params=_PICTURE,
        examples=(
            Example(
                inputs={"image": "a photo of 640x475"},
                outputs={"pixels": "its pixels at 640x480, [3, 480, 640]"},
            ),
        ),
    ),
    _host(
        "qwen3_omni.picture_fit",
        "Resizes a picture's pixels by the rules of `qwen3_omni.picture_in`.",
        category="Picture",
        inputs=(port("pixels", PIXELS),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]"),),
        params=_PICTURE,
        examples=(
            Example(
                inputs={"pixels": "pixels of 20x4000, [3, 4000, 20]"},
                outputs={"pixels": "its pixels at 32x4000, [3, 4000, 32]"},
            ),
        ),
    ),
    _host(
        "qwen3_omni.frames_fit",
        "Resizes the frames of a video as Qwen3-Omni reads them: sides are multiples of 32.",
        category="Video",
        inputs=(port("frames", _FRAMES, description=f"of one size, at most {MOST_FRAMES}"),),
        outputs=(port("frames", _FRAMES, description="RGB in [-1, 1]"),),
        params=_FRAME,
        examples=(
            Example(
                inputs={"frames": "8 pictures of 1920x1080"},
                outputs={"frames": "8 pictures of 1152x640"},
            ),
        ),
    ),
    _seen(
        "qwen3_omni.vision_encoder",
        "Encodes a picture: one embedding per 32 by 32 pixels, and the features of three inner layers.",
        category="Picture",
        inputs=(port("pixels", PIXELS, description="sides are multiples of 32"),),
        outputs=_SEEN,
    ),
    _seen(
        "qwen3_omni.video_encoder",
        "Encodes a video: one embedding per 32 by 32 pixels of two frames, and the features of three inner layers.",
        category="Video",
        inputs=(
            port("frames", _FRAMES, description="of one size, whose sides are multiples of 32"),
            port("rate", "scalar: float", optional=True, description="frames per second; 1 if absent"),
        ),
        outputs=(*_SEEN, port("seconds", "scalar: float", description="how long two frames take")),
    ),
)
