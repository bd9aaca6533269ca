"""The outputs of the bundled graphs' picture nodes, with the parameters from the graphs."""

import io
import json
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.components import catalogue
from walkgraph.resources import bundled


def png(levels: np.ndarray) -> bytes:
    """uint8 `[h, w, 3]` as a file, without loss."""
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    return buffer.getvalue()


def seen(graph: str, node: str, given: bytes | Tensor, **changed: Any) -> Tensor:
    """float32 `[3, h, w]` in [-1, 1]: an encoded picture, or pixels, through a node without weights; `changed`: its
    parameters."""
    written = json.loads(bundled("graphs")[graph].read_text())["nodes"][node]
    component = catalogue()[written["component"]]
    defaults = {name: param.default for name, param in component.params.items()}
    engine = engine_of(plan_of({node: (str(component.network), {})}))
    inputs = {"image" if isinstance(given, bytes) else "pixels": given}
    [out] = outputs(engine, call(node, inputs, **{**defaults, **written.get("params", {}), **changed}))
    return out["pixels"]
