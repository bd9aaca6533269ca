"""SNAC: the decoder that makes sound at 24 kHz of Orpheus' audio codes."""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.models.snac.config import read_snac
from walkgraph.placement.sizes import FamilySizes, Part, Shape

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="snac.decoder",
        category="Sound",
        description="Sounds a window of frames, 2048 samples each: what is final inside it, and its ends.",
        inputs=(
            port(
                "codes", "codes: int[n]", description="whole frames of seven codes: one coarse, two middle, four fine"
            ),
        ),
        outputs=(
            port("waveform", "waveform: float[s]", description="the samples that this window settles, at 24 kHz"),
        ),
        params={
            "flush": Param(
                type="boolean",
                default=True,
                description="Sound the first frame and the last two, which no window has inside.",
            ),
            "tf32": Param(
                type="boolean",
                default=False,
                description="Convolve in TF32 on a GPU: faster, and less exact.",
            ),
        },
        weights="snac",
        network="walkgraph.models.snac.operators:Decoder",
    ),
)


def _no_caches(folder: Path) -> Mapping[str, int]:
    """SNAC keeps none, but its config has to be one."""
    read_snac(folder)
    return {}


_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "snac": FamilySizes(
        parts={"decoder": Part(stem="model", exact=True)},
        components={"snac.decoder": ("decoder",)},
        shapes={
            "snac-24khz": Shape(parts={"decoder": 13_121_025}, workspace={"snac.decoder": 200 * _M}),
            "snac-tiny": Shape(parts={"decoder": 4_929}),
        },
        caches_of=_no_caches,
    ),
}
