"""The interface of operators, under the name by which plug-ins import it: `walkgraph.abi` has the parts."""

from walkgraph.abi.calls import FINITE, Call, CallFailed, ChunkInfo, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import Attention, CacheShape, CausalRows, Placed, Segment, States, reused
from walkgraph.abi.step import Block, PagedRows, PagedSlot, Row, StepBatch, StepOutputs, StepSpec

__all__ = [
    "FINITE",
    "Attention",
    "Block",
    "CacheShape",
    "Call",
    "CallFailed",
    "Capture",
    "CausalRows",
    "ChunkInfo",
    "Example",
    "LoadContext",
    "Operator",
    "Outputs",
    "PagedRows",
    "PagedSlot",
    "Placed",
    "Row",
    "Scalar",
    "Segment",
    "StateKey",
    "States",
    "StepBatch",
    "StepOutputs",
    "StepSpec",
    "reused",
]
