"""SNAC: the decoder that turns Orpheus's audio codes into sound at 24 kHz."""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.declaring import boolean, literal
from walkgraph.models.snac.config import read_snac
from walkgraph.placement.sizes import MIB, FamilySizes, Part, Shape

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="snac.decoder",
        category="Sound",
        description="Decodes a window of frames to sound, 2048 samples per frame: "
        "the frames that are final within the window, and the ends of the stream.",
        inputs=(
            port(
                "codes", "codes: int[n]", description="whole frames of seven codes: one coarse, two middle, four fine"
            ),
        ),
        outputs=(
            port(
                "waveform", "waveform: float[s]", description="the samples that are final after this window, at 24 kHz"
            ),
        ),
        params={
            "flush": boolean(
                "Also decode the first frame and the last two, which are never inside a window.", default=True
            ),
            "tf32": literal(boolean("Convolve in TF32 on a GPU: faster, and less exact.", default=False)),
        },
        weights="snac",
        network="walkgraph.models.snac.operators:Decoder",
    ),
)


def _no_caches(folder: Path) -> Mapping[str, int]:
    """SNAC keeps no caches, but its config must be valid."""
    read_snac(folder)
    return {}


SIZES: Mapping[str, FamilySizes] = {
    "snac": FamilySizes(
        parts={"decoder": Part(stem="model", exact=True)},
        components={"snac.decoder": ("decoder",)},
        shapes={
            "snac-24khz": Shape(parts={"decoder": 13_121_025}, workspace={"snac.decoder": 200 * MIB}),
            "snac-tiny": Shape(parts={"decoder": 4_929}),
        },
        caches_of=_no_caches,
    ),
}
