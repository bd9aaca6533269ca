"""Video as clients send and get it: encoded bytes outside, a list of pictures and a frame rate inside."""

from walkgraph.graph.catalogue import Component, Example, port
from walkgraph.graph.declaring import Declarations, boolean, choice, integer, number

MOST_FRAMES = 2048
"""The most pictures of a list."""
_FRAMES = "list of pixels: float[3, h, w]"

_host = Declarations("video", category="Video", host=True, deterministic=True)
_list = Declarations("video", category="Video", cost="launch", deterministic=True)

COMPONENTS: tuple[Component, ...] = (
    _host(
        "video.frames_in",
        "Decodes a video to pictures, fitted into a square: every frame, or every n-th one.",
        inputs=(port("video", "video: bytes", description="MP4 or WebM"),),
        outputs=(
            port("frames", _FRAMES, description="RGB in [-1, 1], upright"),
            port("rate", "scalar: float", description="how many of these frames a second has"),
        ),
        params={
            "every": integer("Take every n-th frame; 1 takes all.", default=1, min=1, max=1000),
            "most": integer("Take at most this many frames.", default=256, min=1, max=MOST_FRAMES),
            "spread": boolean(
                "If there are more than `most`, take them evenly from the whole video instead of its beginning.",
                default=False,
            ),
            "start": number("Seconds of the video before the first frame.", default=0.0, min=0, max=86400),
            "max_side": integer("Maximum length of the longer side in pixels.", default=512, min=16, max=4096),
        },
        examples=(
            Example(
                params={"every": 5},
                inputs={"video": "two seconds of video of 1920x1080, 30 frames a second"},
                outputs={"frames": "12 pictures of 512x288", "rate": 6.0},
            ),
        ),
    ),
    _host(
        "video.frames_out",
        "Encodes pictures of one size as a video, with a sound track if there is sound.",
        inputs=(
            port("frames", _FRAMES, description=f"at most {MOST_FRAMES:,}"),
            port("rate", "scalar: float", optional=True, description="frames per second, instead of the parameter"),
            port("waveform", "waveform: float[n]", optional=True, description="one channel in [-1, 1]"),
        ),
        outputs=(port("video", "video: bytes"),),
        params={
            "format": choice(("mp4", "webm"), "`mp4`: H.264 and AAC. `webm`: VP9 and Opus, slower.", default="mp4"),
            "rate": number("Frames per second.", default=24.0, min=0.1, max=240),
            "quality": integer("0 is smallest, 100 is best.", default=60, min=0, max=100),
            "sample_rate": integer("Sample rate of the sound in Hz.", default=24000, min=8000, max=192000),
        },
        examples=(
            Example(
                params={"rate": 8},
                inputs={"frames": "16 pictures of 512x512"},
                outputs={"video": "an MP4 of two seconds"},
            ),
        ),
    ),
    _host(
        "video.audio_in",
        "Decodes the sound track of a video to one channel at a sample rate.",
        inputs=(port("video", "video: bytes", description="MP4 or WebM"),),
        outputs=(
            port("waveform", "waveform: float[n]", description="one channel in [-1, 1]; no samples without a track"),
        ),
        params={"sample_rate": integer("Sample rate in Hz.", default=24000, min=8000, max=192000)},
        examples=(
            Example(
                inputs={"video": "a video of two seconds with sound"},
                outputs={"waveform": "48000 samples"},
            ),
        ),
    ),
    _list(
        "video.sample",
        "Takes every n-th picture of a list.",
        inputs=(port("frames", _FRAMES),),
        outputs=(port("frames", _FRAMES),),
        params={
            "every": integer("Take every n-th picture.", default=2, min=1, max=MOST_FRAMES),
            "first": integer("Pictures left out at the beginning.", default=0, min=0, max=MOST_FRAMES),
            "most": integer("Stop after this many pictures; 0 takes all.", default=0, min=0, max=MOST_FRAMES),
        },
        examples=(
            Example(
                inputs={"frames": [[[[0.1]]] * 3, [[[0.2]]] * 3, [[[0.3]]] * 3]},
                outputs={"frames": [[[[0.1]]] * 3, [[[0.3]]] * 3]},
            ),
        ),
    ),
    _list(
        "video.concat",
        "Puts the pictures of one list after those of another.",
        inputs=(port("frames", _FRAMES), port("more", "list of pixels: float[3, more_h, more_w]")),
        outputs=(port("frames", _FRAMES),),
        examples=(
            Example(
                inputs={"frames": [[[[0.1]]] * 3], "more": [[[[0.2]]] * 3]},
                outputs={"frames": [[[[0.1]]] * 3, [[[0.2]]] * 3]},
            ),
        ),
    ),
)
