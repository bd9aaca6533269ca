"""The Open Inference Protocol (KServe v2): a deployment is a model, its tasks are the model's versions.

Texts and media are BYTES tensors (media in base64 inside JSON), and a conversation is one with its JSON; everything
else is a tensor of numbers. The request's parameters are the task's. A request is converted to the body of a native
one, so that one reader validates both.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
import pybase64
from pydantic import BaseModel, ConfigDict, Field

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import MESSAGES
from walkgraph.graph.document import Graph, Task
from walkgraph.media_types import mime_of
from walkgraph.placement import selection
from walkgraph.placement.request import declared_params
from walkgraph.placement.tables import Plan
from walkgraph.service.http import limits
from walkgraph.service.http.pieces import Bytes
from walkgraph.service.kserve.binary import elements, joined
from walkgraph.service.openai.serving import servings
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import tensors, values
from walkgraph.wire import messages as m

DATATYPES: dict[str, str] = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}
_NAMES = {dtype: datatype for datatype, dtype in DATATYPES.items()}
_PORT_DTYPES = {"float": "FP32", "int": "INT64", "bool": "BOOL"}
Datatype = Literal["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"]
OF_REQUEST = ("session", "priority", "deadline")
"""Parameters that belong to the request itself, unless the task has one of that name."""
BINARY_SIZE, BINARY, ALL_BINARY = "binary_data_size", "binary_data", "binary_data_output"

Text = Annotated[str, Field(max_length=200)]
Parameters = Annotated[dict[Text, bool | int | float | str], Field(max_length=100)]
Side = Annotated[int, Field(ge=0, le=2**31)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class InputTensor(Asked):
    name: Text
    shape: list[Side] = Field(max_length=limits.TENSOR_DIMENSIONS)
    datatype: Datatype
    parameters: Parameters = {}
    data: list[Any] | None = None
    """Flat or nested; absent if the bytes follow the JSON."""


class WantedOutput(Asked):
    name: Text
    parameters: Parameters = {}


class InferRequest(Asked):
    id: Text = ""
    parameters: Parameters = {}
    inputs: list[InputTensor] = Field(default=[], max_length=limits.PARTS)
    outputs: list[WantedOutput] = Field(default=[], max_length=limits.PARTS)


class TensorMeta(BaseModel):
    name: str
    datatype: Datatype
    shape: list[int]
    """-1 for a side of any length."""


class ModelMeta(BaseModel):
    name: str
    versions: list[str]
    """The tasks; the first is the default."""
    platform: Literal["walkgraph"] = "walkgraph"
    inputs: list[TensorMeta]
    outputs: list[TensorMeta]


class OutputTensor(TensorMeta):
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class InferAnswer(BaseModel):
    model_name: str
    model_version: str
    id: str = ""
    parameters: dict[str, Any]
    """`run`, `seed`, the tokens read and found in caches, and `reason.NAME`: why each loop ended, by `WALK.LOOP`, or by
    the name of a loop of steps."""
    outputs: list[OutputTensor]


# ── metadata ────────────────────────────────────────────────────────────────────────────────────


def described(name: str, graph: Graph, plan: Plan | None, task: str) -> ModelMeta:
    declared = graph.tasks[task]
    outputs = {output.name: output.modality for output in servings(graph, plan)[task].outputs}
    return ModelMeta(
        name=name,
        versions=list(graph.tasks),
        inputs=[_input_meta(graph, task, key) for key in declared.inputs],
        outputs=[_output_meta(key, outputs.get(key, "tensor")) for key in declared.outputs],
    )


def _input_meta(graph: Graph, task: str, name: str) -> TensorMeta:
    modality = graph.tasks[task].inputs[name].modality
    if modality in (values.TEXT, MESSAGES, *values.MEDIA):
        return TensorMeta(name=name, datatype="BYTES", shape=[-1])
    found = tensors.type_of(graph, task, name)
    shape = [side if isinstance(side, int) else -1 for side in (found.shape if found and found.shape else ("n",))]
    return TensorMeta(name=name, datatype=cast(Datatype, _PORT_DTYPES[(found and found.dtype) or "float"]), shape=shape)


def _output_meta(name: str, modality: str) -> TensorMeta:
    kinds: dict[str, Datatype] = {"flag": "BOOL", **dict.fromkeys((values.TEXT, *values.MEDIA), "BYTES")}
    return TensorMeta(name=name, datatype=kinds.get(modality, "FP32"), shape=[-1])


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def native(task: Task, asked: InferRequest, binary: memoryview) -> dict[str, Any]:
    """The body of a native request, with bytes in it. Raises InvalidInput if a tensor doesn't match its bytes."""
    inputs: dict[str, Any] = {}
    taken = 0
    for number, tensor in enumerate(asked.inputs):
        at = f"/inputs/{number}"
        if tensor.name not in task.inputs or tensor.name in inputs:
            known = ", ".join(f"`{name}`" for name in task.inputs) or "none"
            raise InvalidInput(f"the task takes each of these once: {known}", f"{at}/name")
        data = None
        if BINARY_SIZE in tensor.parameters:
            size = tensor.parameters[BINARY_SIZE]
            if type(size) is not int or not 0 <= size <= len(binary) - taken or tensor.data is not None:
                raise InvalidInput(
                    "these bytes must follow the JSON, and `data` be absent", f"{at}/parameters/{BINARY_SIZE}"
                )
            data = bytes(binary[taken : taken + size])
            taken += size
        inputs[tensor.name] = _given(tensor, data, task.inputs[tensor.name].modality, at)
    if taken != len(binary):
        raise InvalidInput(f"{len(binary) - taken} bytes follow the JSON that belong to no tensor")
    params = declared_params(task)
    own = {key: value for key, value in asked.parameters.items() if key in OF_REQUEST and key not in params}
    rest = {key: value for key, value in asked.parameters.items() if key not in own and key != ALL_BINARY}
    wanted = {"outputs": {output.name: _selected(output) for output in asked.outputs}} if asked.outputs else {}
    return {"inputs": inputs, "params": rest, **own, **wanted}


def _selected(output: WantedOutput) -> dict[str, Any]:
    return {key: value for key, value in output.parameters.items() if key in selection.KEYS}


def _given(tensor: InputTensor, data: bytes | None, modality: str, at: str) -> Any:
    count = prod(tensor.shape)
    if modality in (values.TEXT, MESSAGES, *values.MEDIA):
        if tensor.datatype != "BYTES":
            raise InvalidInput("texts and media are of the datatype `BYTES`", f"{at}/datatype")
        found: list[Any] = elements(data, at) if data is not None else _flat(tensor.data, at)
        if len(found) != count:
            raise InvalidInput(f"this shape is of {count} elements, and {len(found)} came", f"{at}/shape")
        if modality == MESSAGES:
            return _conversation(found[0] if len(found) == 1 else None, at)
        items = [_element(item, modality, at) for item in found]
        return items[0] if len(items) == 1 else items
    if tensor.datatype == "BYTES":
        raise InvalidInput("this is a tensor of numbers; name their datatype", f"{at}/datatype")
    dtype = DATATYPES[tensor.datatype]
    if data is None:
        data = _numbers(_flat(tensor.data, at), dtype, count, at)
    return {"dtype": dtype, "shape": list(tensor.shape), "base64": data}


def _element(item: Any, modality: str, at: str) -> Any:
    if modality in values.MEDIA:
        return {"data": item}
    if isinstance(item, bytes):
        try:
            return item.decode()
        except UnicodeDecodeError:
            raise InvalidInput("a text must be UTF-8", at) from None
    return item


def _conversation(text: Any, at: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError):
        raise InvalidInput("a conversation is one JSON text: a list of turns", f"{at}/data") from None


def _flat(data: list[Any] | None, at: str) -> list[Any]:
    """The values of nested lists in row-major order. The depth of JSON is limited, so the loop ends."""
    if data is None:
        raise InvalidInput(f"`data` is missing; add it, or `parameters.{BINARY_SIZE}`", f"{at}/data")
    while data and isinstance(data[0], list):
        if not all(isinstance(row, list) for row in data):
            raise InvalidInput("this must be numbers or texts, flat or in rows of one shape", f"{at}/data")
        data = [item for row in cast(list[list[Any]], data) for item in row]
    return data


def _numbers(data: list[Any], dtype: str, count: int, at: str) -> bytes:
    if dtype == "bfloat16":
        raise InvalidInput("JSON has no BF16; send FP32, or the bytes after the JSON", f"{at}/datatype")
    if (
        not all(isinstance(number, bool | int | float) for number in data)
        or not 0 < len(data) <= values.MAX_TENSOR_VALUES
    ):
        raise InvalidInput(f"this must have 1 to {values.MAX_TENSOR_VALUES} numbers", f"{at}/data")
    if len(data) != count:
        raise InvalidInput(f"this shape is of {count} numbers, and {len(data)} came", f"{at}/shape")
    array = np.asarray(data)
    if "float" in dtype:
        with np.errstate(all="ignore"):
            return array.astype(dtype).tobytes()
    return tensors.exactly(array, dtype, "", f"{at}/data").tobytes()


# ── the answer ──────────────────────────────────────────────────────────────────────────────────


def answered(run: LiveRun, task: Task, asked: InferRequest) -> tuple[dict[str, Any], list[Bytes]]:
    """(JSON, bytes that follow it) of a finished run."""
    everything = asked.parameters.get(ALL_BINARY) is True
    binary = {output.name: output.parameters.get(BINARY, everything) is True for output in asked.outputs}
    names = list(dict.fromkeys(output.name for output in asked.outputs)) or list(task.outputs)
    pieces: dict[str, list[m.Output]] = {name: [] for name in names}
    for output in run.outputs:
        if output.name in pieces:
            pieces[output.name].append(output)
    told: list[dict[str, Any]] = []
    chunks: list[Bytes] = []
    for name, made in pieces.items():
        for one in _entries(name, values.joined(made)):
            if binary.get(name, everything):
                chunks.append(one.content)
                said = {**one.head["parameters"], BINARY_SIZE: len(one.content)}
                told.append({**one.head, "parameters": said})
            else:
                told.append({**one.head, "data": one.listed()})
    head = {"model_name": run.deployment, "model_version": run.task, "id": asked.id}
    end = run.finished
    counts: dict[str, Any] = {}
    if end is not None:
        reasons = {f"reason.{loop.name}": loop.reason for loop in end.loops}
        counts = {"read": end.read, "cached_tokens": end.found, **reasons}
    return {**head, "parameters": {"run": run.id, "seed": run.seed, **counts}, "outputs": told}, chunks


class _Entry(NamedTuple):
    """A tensor of an answer, without its elements."""

    head: dict[str, Any]
    content: Bytes
    """Its elements as bytes, and as JSON:"""
    listed: Callable[[], list[Any]]


def _entries(name: str, made: Sequence[m.Value]) -> list[_Entry]:
    """One tensor for all values of an output if they have one kind and shape; else one each, with numbered names."""
    if not made:
        return []
    if all(isinstance(value, m.Small) and isinstance(value.value, str) for value in made):
        texts = [str(value.value) for value in made if isinstance(value, m.Small)]
        return [_bytes(name, [text.encode() for text in texts], {}, lambda: texts)]
    if all(isinstance(value, m.Blob) for value in made):
        data = [value.data for value in made if isinstance(value, m.Blob)]
        said = {"content_type": "base64", "mime": mime_of(data[0])}
        return [_bytes(name, data, said, lambda: [pybase64.b64encode(one).decode() for one in data])]
    arrays = [_tensor(value) for value in made]
    first = arrays[0]
    if first is not None and all(a is not None and (a.dtype, a.shape) == (first.dtype, first.shape) for a in arrays):
        if len(made) == 1:
            return [_dense(name, first.dtype, first.shape, first.data)]
        together = b"".join(array.data for array in arrays if array is not None)
        return [_dense(name, first.dtype, (len(made), *first.shape), together)]
    if len(made) == 1:
        text = msgspec.json.encode(values.write(made[0], ""))
        return [_bytes(name, [text], {"content_type": "json"}, lambda: [text.decode()])]
    return [entry for k, value in enumerate(made) for entry in _entries(f"{name}.{k}", [value])]


def _bytes(name: str, data: list[bytes], said: dict[str, Any], listed: Callable[[], list[str]]) -> _Entry:
    head = {"name": name, "datatype": "BYTES", "shape": [len(data)], "parameters": said}
    return _Entry(head, joined(data), listed)


def _dense(name: str, dtype: str, shape: tuple[int, ...], data: Bytes) -> _Entry:
    if dtype == "bfloat16":
        data, dtype = tensors.widened(np.frombuffer(data, "<u2")).tobytes(), "float32"
    head: dict[str, Any] = {"name": name, "datatype": _NAMES[dtype], "shape": list(shape), "parameters": {}}
    return _Entry(head, data, lambda: _numbers_of(np.frombuffer(data, np.dtype(dtype))))


def _numbers_of(array: tensors.Numbers) -> list[Any]:
    """The numbers as JSON has them: null for those that aren't finite."""
    listed: list[Any] = array.tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return [number if np.isfinite(number) else None for number in listed]
    return listed


def _tensor(value: m.Value) -> m.InlineTensor | None:
    """Numbers as tensors of one element."""
    match value:
        case m.InlineTensor():
            return value
        case m.Small(value=bool() as flag):
            return m.InlineTensor(dtype="bool", shape=(1,), data=bytes([flag]))
        case m.Small(value=int() as number) if -(2**63) <= number < 2**63:
            return m.InlineTensor(dtype="int64", shape=(1,), data=np.int64(number).tobytes())
        case m.Small(value=float() as number):
            return m.InlineTensor(dtype="float64", shape=(1,), data=np.float64(number).tobytes())
        case _:
            return None
