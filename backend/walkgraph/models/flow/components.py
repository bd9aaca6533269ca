"""Flow matching without weights: the noise, and one step of guided Euler integration."""

from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.declaring import LATENTS, Declarations, choice, integer, number

_component = Declarations("flow", category="Flow matching", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "flow.noise",
        "Normal noise drawn from the run's seed, a grid of latent cells.",
        inputs=(port("like", "latents: float[rows, columns, d]", optional=True, description="whose size is taken"),),
        outputs=(port("latents", LATENTS),),
        params={
            "height": integer("Latent cells, top to bottom; 0: as `like`.", default=0, min=0, max=4096),
            "width": integer("Latent cells, left to right; 0: as `like`.", default=0, min=0, max=4096),
            "channels": integer("Numbers in one cell.", min=1, max=4096),
        },
    ),
    _component(
        "flow.guided_euler",
        "Combines the velocities of the contexts and steps the latents from `time` to `next_time`.",
        inputs=(
            port("latents", LATENTS),
            port("velocity", LATENTS, description="with the full context"),
            port("velocity_text", LATENTS, optional=True, description="with the context before the last text"),
            port(
                "velocity_img",
                LATENTS,
                optional=True,
                description="with the context without pictures; needs `velocity_text`",
            ),
        ),
        outputs=(
            port("latents", LATENTS),
            port("estimate", LATENTS, description="the latents at time 0 if the velocity were constant"),
        ),
        params={
            "time": number("Flow time of the latents; 1 is noise.", default=1.0, min=0, max=1),
            "next_time": number("Flow time to step to; 0 is data.", default=0.0, min=0, max=1),
            "text_scale": number(
                "Strength of text guidance; 1 or less turns all guidance off.", default=1.0, min=0, max=100
            ),
            "img_scale": number(
                "Strength of picture guidance, on top of the text's; 1 or less: none.", default=1.0, min=0, max=100
            ),
            "renorm": choice(
                ("global", "channel", "text_channel", "none"),
                "What keeps the velocity's norm: the whole grid, each cell, or each cell after the text.",
                default="global",
            ),
            "renorm_min": number("The norm is never scaled down below this share.", default=0.0, min=0, max=1),
        },
        resident=True,
    ),
)
