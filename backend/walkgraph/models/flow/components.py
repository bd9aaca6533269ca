"""Flow matching without weights: where the noise comes from, and one step of guided Euler integration."""

from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.graph.declaring import Declarations

_LATENTS = "latents: float[h, w, c]"

_component = Declarations("flow", category="Flow matching", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "flow.noise",
        "operators:Noise",
        "Normal noise drawn from the run's seed, a grid of latent cells.",
        inputs=(port("like", "latents: float[rows, columns, d]", optional=True, description="whose size is taken"),),
        outputs=(port("latents", _LATENTS),),
        params={
            "height": Param(
                type="integer", default=0, min=0, max=4096, description="Latent cells, top to bottom; 0: as `like`."
            ),
            "width": Param(
                type="integer", default=0, min=0, max=4096, description="Latent cells, left to right; 0: as `like`."
            ),
            "channels": Param(type="integer", min=1, max=4096, description="Numbers in one cell."),
        },
    ),
    _component(
        "flow.guided_euler",
        "operators:GuidedEuler",
        "Combines the velocities of the contexts and steps the latents from `time` to `next_time`.",
        inputs=(
            port("latents", _LATENTS),
            port("velocity", _LATENTS, description="with the full context"),
            port("velocity_text", _LATENTS, optional=True, description="with the context before the last text"),
            port(
                "velocity_img",
                _LATENTS,
                optional=True,
                description="with the context without pictures; needs `velocity_text`",
            ),
        ),
        outputs=(
            port("latents", _LATENTS),
            port("estimate", _LATENTS, description="what the latents would be at time 0, were the velocity constant"),
        ),
        params={
            "time": Param(
                type="number", default=1.0, min=0, max=1, description="Flow time of the latents; 1 is noise."
            ),
            "next_time": Param(
                type="number", default=0.0, min=0, max=1, description="Flow time to step to; 0 is data."
            ),
            "text_scale": Param(
                type="number",
                default=1.0,
                min=0,
                max=100,
                description="Strength of text guidance; 1 or less turns all guidance off.",
            ),
            "img_scale": Param(
                type="number",
                default=1.0,
                min=0,
                max=100,
                description="Strength of picture guidance, on top of the text's; 1 or less: none.",
            ),
            "renorm": Param(
                type="string",
                default="global",
                choices=("global", "channel", "text_channel", "none"),
                description="What keeps the velocity's norm: the whole grid, each cell, or each cell after the text.",
            ),
            "renorm_min": Param(
                type="number", default=0.0, min=0, max=1, description="The norm is scaled down to this share at most."
            ),
        },
        resident=True,
    ),
)
