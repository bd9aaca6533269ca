"""The vocoder's component."""

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import Declarations

_component = Declarations("qwen3_omni", module="vocoder.operators", category="Sound", weights="qwen3_omni")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "qwen3_omni.code2wav",
        "Turns code frames into sound at 24 kHz, 1920 samples each, of which the last 555 of a stream are never made.",
        inputs=(
            port(
                "codes",
                "codes: int[n, 16]",
                description="a stream's next frames, in chunks of any size; its sound is the same however it is cut",
                seconds=1920 / 24000,
            ),
        ),
        outputs=(port("waveform", "waveform: float[s]", description="the samples that these frames settle"),),
        states=(StateUse(slot="window", kind="tensor"), StateUse(slot="tails", kind="tensor")),
    ),
)
NUMBERS = {"qwen3-omni-30b-a3b": 215_998_145, "qwen3-omni-tiny": 95_637}
"""Weights of each shape, without the scales that loading multiplies into others."""
