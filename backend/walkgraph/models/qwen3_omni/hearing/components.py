"""The component that hears."""

from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.declaring import Declarations, choice

_heard = Declarations("qwen3_omni", module="hearing.operators", weights="qwen3_omni", deterministic=True)

HEARING: tuple[Component, ...] = (
    _heard(
        "qwen3_omni.audio_encoder",
        "Encodes sound of any length as 13 embeddings per second.",
        category="Sound",
        inputs=(port("waveform", "waveform: float[s]", description="one channel at 16 kHz"),),
        outputs=(port("embeddings", "embeddings: float[n, d]"),),
        params={
            "short": choice(
                ("refuse", "skip"),
                "What happens to sound of less than 201 samples, such as that of a video without a sound track: the "
                "call fails, or gives no embeddings.",
                default="refuse",
            )
        },
    ),
)
