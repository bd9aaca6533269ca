"""Flow matching without weights: the noise, and one step of guided Euler integration."""

from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.declaring import LATENTS, Declarations, choice, integer, number

_component = Declarations("flow", category="Flow matching", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "flow.noise",
        "Draws a grid of latent cells of normal noise from the run's seed.",
        inputs=(
            port("like", "latents: float[rows, columns, d]", optional=True, description="the grid whose size to use"),
        ),
        outputs=(port("latents", LATENTS),),
        params={
            "height": integer("Height in latent cells; 0 uses the height of `like`.", default=0, min=0, max=4096),
            "width": integer("Width in latent cells; 0 uses the width of `like`.", default=0, min=0, max=4096),
            "channels": integer("Numbers per cell.", min=1, max=4096),
        },
    ),
    _component(
        "flow.guided_euler",
        "Combines the velocities of all contexts and steps the latents from `time` to `next_time`.",
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
                "Strength of picture guidance, added to text guidance; 1 or less turns it off.",
                default=1.0,
                min=0,
                max=100,
            ),
            "renorm": choice(
                ("global", "channel", "text_channel", "none"),
                "Where the guided velocity keeps its norm: over the whole grid, in each cell, or in each cell after "
                "text guidance.",
                default="global",
            ),
            "renorm_min": number("Lower bound of the factor that scales the norm down.", default=0.0, min=0, max=1),
        },
        resident=True,
    ),
)
