"""Qwen3-Omni: a thinker that sees, hears and writes, a talker and a vocoder that speak (arXiv 2509.17765).

A frame is 16 codes at 12.5 Hz. The talker reads the tokens of the answer, one integer each, as the thinker appends
them; of sound and pictures it reads rows from inside the thinker.
"""

from walkgraph.graph.catalogue import Component
from walkgraph.models.qwen3_omni.hearing.components import HEARING
from walkgraph.models.qwen3_omni.seeing.components import SEEING
from walkgraph.models.qwen3_omni.sizes import SIZES
from walkgraph.models.qwen3_omni.talker import components as talker
from walkgraph.models.qwen3_omni.thinker.components import THINKING
from walkgraph.models.qwen3_omni.vocoder import components as vocoder

COMPONENTS: tuple[Component, ...] = (*HEARING, *SEEING, *THINKING, *talker.COMPONENTS, *vocoder.COMPONENTS)

__all__ = ["COMPONENTS", "SIZES"]
