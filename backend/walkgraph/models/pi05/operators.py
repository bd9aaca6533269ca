"""pi0.5's operators: cameras and prompt, the prefix made of them, and the flow that draws actions after it."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.on_device import OnDevice
from walkgraph.architectures.pictures import decode, levels_of
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.layers.flow.flow_head import FlowInterval
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.pi05.config import Pi05Config, read_pi05
from walkgraph.models.pi05.expert import ExpertRows
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.prefix import Prefixes, PrefixRows, embedded
from walkgraph.models.pi05.presets import pi05_config
from walkgraph.models.pi05.weights import Scaling, Scalings, exact, load_pi05, read_scalings

_CAMERAS = ("base", "left_wrist", "right_wrist")
_ROBOT = "robot"
_LEVELS = 256
_SEED_BITS = 63
_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Batch sizes in cameras: one to three per robot."""
_ROBOTS = (1, 2, 4, 8, 16)
_TABLES = 4
"""The most step counts whose tables are kept."""


_FORMS: Mapping[str, Callable[[Tensor], Tensor]] = {"pixels": normalise, "levels": lambda levels: levels}
"""The forms of a camera's picture, each made of levels."""


class Camera(Operator):
    """Scaled to fit, keeping its aspect ratio, and centred in a black square; a picture of that size stays
    unchanged."""

    threaded: ClassVar[bool] = True

    def __init__(self, side: int) -> None:
        self._side = side

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_config(context).picture)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._seen(call) for call in calls]

    def _seen(self, call: Call) -> Outputs:
        if call.inputs.get("image") is None:
            return {}
        found = levels_of(call, lambda width, height: width == height == self._side)
        levels = torch.from_numpy(self._fitted(decode(call)) if found is None else found)
        # Where only levels are read, the thread is done: each further operation hands the interpreter lock around.
        return {port: made(levels) for port, made in _FORMS.items() if call.read is None or port in call.read}

    def _fitted(self, picture: Image.Image) -> NDArray[np.uint8]:
        """uint8 `[side, side, 3]`"""
        side, (width, height) = self._side, picture.size
        if (width, height) != (side, side):
            ratio = max(width, height) / side
            size = max(1, int(width / ratio)), max(1, int(height / ratio))
            small = picture.resize(size, Image.Resampling.BILINEAR)
            picture = Image.new("RGB", (side, side))
            picture.paste(small, ((side - size[0]) // 2, (side - size[1]) // 2))
        return np.array(picture)


class Prompt(Operator):
    """The task's text and the state, each number as one of 256 levels between the robot's quantiles."""

    options: ClassVar[tuple[str, ...]] = (_ROBOT,)

    def __init__(self, vocabulary: Vocabulary, bos: int, scaling: Scaling) -> None:
        self._vocabulary, self._bos, self._scaling = vocabulary, bos, scaling
        self._edges = torch.linspace(-1, 1, _LEVELS + 1, dtype=torch.float64).numpy()[:-1]

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        bos = _config(context).bos
        vocabulary = Bytes(bos, bos) if context.random else trained(context, plain=True)
        return cls(vocabulary, bos, _scalings(context).state)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        text, state = call.text("text"), call.inputs["state"]
        numbers = state.double().numpy() if isinstance(state, Tensor) else None
        if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise CallFailed(f"`{call.node}` takes a state of finite numbers `[s]`", "state", code="invalid_input")
        try:
            inside = self._scaling.inside(numbers)
        except ValueError as error:
            raise CallFailed(f"`{call.node}`: {error}", "state", code="invalid_input") from None
        padded = np.zeros(max(len(inside), int(call.params["state_width"])))
        padded[: len(inside)] = inside
        levels = self._edges.searchsorted(padded, "right") - 1
        task = text.strip().replace("_", " ").replace("\n", " ")
        said = f"Task: {task}, State: {' '.join(map(str, levels.tolist()))};\nAction: "
        return [self._bos, *self._vocabulary.encode(said)]


class Vision(Operator):
    """A picture comes as `levels` or as `pixels`: the device makes one of the other."""

    def __init__(self, model: Pi05) -> None:
        self._model, side = model, model.config.picture
        self._rows = {
            "levels": Row((side, side, 3), torch.uint8),
            "pixels": Row((3, side, side), torch.float32),
        }
        self._embeddings = Row((model.config.patches, model.config.prefix.width), model.projector.weight.dtype)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_pi05(context))

    def bucket(self, call: Call) -> Hashable:
        return _given(call.inputs)

    def rows(self, call: Call) -> int:
        return self._model.config.patches

    def examples(self) -> Sequence[Example]:
        return [Example(inputs=inputs) for inputs in self.step_examples()]

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        port = _given(call.inputs)
        return None if port is None or not self._fits(port, call.inputs[port]) else {port: call.inputs[port]}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        port = _given(inputs)
        if port is None or not self._fits(port, inputs[port]):
            return None
        return StepSpec(
            inputs={port: self._rows[port]}, outputs={"embeddings": self._embeddings}, sizes=_BATCHES, pure=True
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return [{port: torch.zeros(row.shape, dtype=row.dtype)} for port, row in self._rows.items()]

    def step(self, batch: StepBatch) -> StepOutputs:
        ((port, pictures),) = batch.inputs.items()
        return StepOutputs({"embeddings": self._see(port, pictures)})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        port = _given(calls[0].inputs)
        if port is None:
            return [{} for _ in calls]
        for call in calls:
            value = call.inputs[port]
            if not self._fits(port, value):
                wanted, got = list(self._rows[port].shape), list(value.shape)
                of = "bytes" if port == "levels" else "floats"
                raise CallFailed(f"`{call.node}.{port}` takes {of} {wanted}, and got {value.dtype} {got}", port)
        pictures = torch.stack([call.inputs[port] for call in calls])
        return [{"embeddings": one} for one in self._see(port, pictures)]

    def _fits(self, port: str, value: Any) -> bool:
        shape, dtype = self._rows[port]
        alike = isinstance(value, Tensor) and value.shape == shape
        return alike and (value.is_floating_point() if dtype.is_floating_point else value.dtype == dtype)

    def _see(self, port: str, pictures: Tensor) -> Tensor:
        return self._model.see(normalise(pictures).contiguous() if port == "levels" else pictures)


class Prefill(Operator):
    """The cameras present, in order, then the prompt: one block with full attention."""

    def __init__(self, model: Pi05, device: torch.device, dtype: torch.dtype, capture: Capture | None = None) -> None:
        self._model, self._device, self._dtype = model, device, dtype
        self._rows = PrefixRows(model)
        self._captured = Prefixes(self._rows, capture)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_pi05(context), context.device, context.dtype, context.capture)

    def caches(self) -> Mapping[str, CacheShape]:
        return _caches(self._model.config, self._dtype)

    def rows(self, call: Call) -> int:
        return sum(len(part) for part in self._parts(call))

    def examples(self) -> Sequence[Example]:
        seen = torch.zeros(self._model.config.patches, self._model.config.prefix.width)
        return (Example(inputs={"base": seen, "ids": torch.tensor([self._model.config.bos])}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        parts = [self._parts(call) for call in calls]
        self._refuse_outside(calls)
        counts = [sum(map(len, mine)) for mine in parts]
        rows = torch.arange(sum(counts), device=self._device).split(counts)
        attend = states.attend(
            [
                Segment(state=call.states["kv"], rows=mine, mode="block", advance=len(mine))
                for call, mine in zip(calls, rows, strict=True)
            ]
        )
        x = embedded(self._model, [[*mine[:-1]] for mine in parts], [mine[-1] for mine in parts])
        if not self._captured.read(x, attend.begun()):
            first = [states.position(call.states["kv"]) for call in calls]
            positions = [torch.arange(at, at + n, device=self._device) for at, n in zip(first, counts, strict=True)]
            self._rows.read(x, torch.cat(positions), attend.placed())
        states.commit(attend)
        return [{} for _ in calls]

    def _parts(self, call: Call) -> Sequence[Tensor]:
        """Embeddings `[p, W]` of the cameras present, and ids `[n]`."""
        width, ids = self._model.config.prefix.width, call.inputs["ids"]
        seen = {port: call.inputs[port] for port in _CAMERAS if call.inputs.get(port) is not None}
        for port, value in seen.items():
            if value.dim() != 2 or value.shape[1] != width:
                raise CallFailed(f"`{call.node}.{port}` takes [p, {width}], and got {list(value.shape)}", port)
        if ids.dim() != 1 or not len(ids):
            raise CallFailed(f"`{call.node}.ids` takes token ids `[n]`, at least one, and got {list(ids.shape)}", "ids")
        return [*seen.values(), ids]

    def _refuse_outside(self, calls: Sequence[Call]) -> None:
        """Raise CallFailed for tokens outside the vocabulary. Waits for the device only if the host doesn't know
        them."""
        vocab = self._model.config.vocab
        for call in calls:
            known = call.numbers("ids")
            numbers = known or call.inputs["ids"].tolist()
            if min(numbers) < 0 or max(numbers) >= vocab:
                raise CallFailed(f"`{call.node}` got a token outside its vocabulary of {vocab}", "ids")


class TimestepConditioning(Operator):
    def __init__(self, rows: ExpertRows, device: torch.device) -> None:
        self._rows, self._device = rows, device
        self._kept: OrderedDict[int, Tensor] = OrderedDict()

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(ExpertRows(_pi05(context)), context.device)

    def examples(self) -> Sequence[Example]:
        return (Example(params={"steps": 10}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"modulations": self._of(int(call.params["steps"]))} for call in calls]

    def _of(self, steps: int) -> Tensor:
        """The table for `steps` steps, float32 `[steps, T]`; shared, so never written to."""
        if steps not in self._kept:
            self._kept[steps] = self._rows.tables(1 - torch.arange(steps, device=self._device) / steps)
        self._kept.move_to_end(steps)
        while len(self._kept) > _TABLES:
            self._kept.popitem(last=False)
        return self._kept[steps]


class Noise(OnDevice):
    """Drawn on the CPU for every device, so a seed gives the same noise everywhere."""

    def examples(self) -> Sequence[Example]:
        return (Example(params={"horizon": 2, "width": 2, "seed": 0}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        # From pinned memory; any other copy would make the host wait for the device.
        pinned = self._device.type == "cuda"
        return [{"actions": _noise(call, pinned=pinned).to(self._device, non_blocking=True)} for call in calls]


class ActionExpert(Operator):
    """One Euler step of the flow. One batch holds chunks of one length, at any times."""

    def __init__(self, model: Pi05, device: torch.device, dtype: torch.dtype) -> None:
        self._model, self._device, self._dtype = model, device, dtype
        self._rows = ExpertRows(model)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_pi05(context), context.device, context.dtype)

    def caches(self) -> Mapping[str, CacheShape]:
        return _caches(self._model.config, self._dtype)

    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["actions"].shape)

    def rows(self, call: Call) -> int:
        return call.inputs["actions"].shape[0]

    def examples(self) -> Sequence[Example]:
        return (Example(inputs=self._example(2), params={"time": 1.0, "next_time": 0.5}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            self._refuse_misfits(call)
        actions, table = (torch.stack([call.inputs[port] for call in calls]) for port in ("actions", "modulation"))
        count = actions.shape[1]
        rows = torch.arange(len(calls) * count, device=self._device).split(count)
        attend = states.attend(
            [
                Segment(state=call.states["kv"], rows=mine, mode="block", keep=False)
                for call, mine in zip(calls, rows, strict=True)
            ]
        )
        first = torch.tensor([states.position(call.states["kv"]) for call in calls], device=self._device)
        positions = (first[:, None] + torch.arange(count, device=self._device)).flatten()
        times = torch.tensor([[float(call.params[name]) for name in ("time", "next_time")] for call in calls])
        way = FlowInterval(*times.to(self._device).unbind(1))
        moved = self._rows.forward(actions.float(), table, way, positions, attend)
        states.commit(attend)
        return [{"actions": one} for one in moved]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        actions, width = inputs.get("actions"), self._model.config.action_width
        if not isinstance(actions, Tensor) or actions.dim() != 2 or actions.shape[1] != width or not len(actions):
            return None
        row = Row(tuple(actions.shape), torch.float32)
        return StepSpec(
            inputs={"actions": row, "modulation": Row((self._rows.numbers,), torch.float32)},
            outputs={"actions": row},
            params={"time": torch.float32, "next_time": torch.float32},
            appends={"kv": 0},
            scratch={"kv": len(actions)},
            contexts={"kv": self._model.config.cameras * self._model.config.patches},
            sizes=_ROBOTS,
            pure=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return [self._example(horizon) for horizon in self._model.config.horizons]

    def step(self, batch: StepBatch) -> StepOutputs:
        block, actions = batch.paged["kv"].block, batch.inputs["actions"]
        if block is None:
            raise RuntimeError("a flow step's actions are attended in a block, and the batch has none")
        way = FlowInterval(batch.params["time"], batch.params["next_time"])
        return StepOutputs({"actions": self._rows.step(actions, batch.inputs["modulation"], way, block)})

    def _example(self, horizon: int) -> Mapping[str, Tensor]:
        numbers = {"actions": (horizon, self._model.config.action_width), "modulation": (self._rows.numbers,)}
        return {port: torch.zeros(shape) for port, shape in numbers.items()}

    def _refuse_misfits(self, call: Call) -> None:
        actions, table = call.inputs["actions"], call.inputs["modulation"]
        if actions.dim() != 2 or actions.shape[1] != self._model.config.action_width or not len(actions):
            wanted = f"actions `[t, {self._model.config.action_width}]`, at least one"
            raise CallFailed(f"`{call.node}.actions` takes {wanted}, and got {list(actions.shape)}", "actions")
        if table.shape != (self._rows.numbers,):
            wanted = f"`[{self._rows.numbers}]`, a step of `pi05.timestep_conditioning`"
            raise CallFailed(f"`{call.node}.modulation` takes {wanted}, and got {list(table.shape)}", "modulation")


class Unnormalise(Operator):
    options: ClassVar[tuple[str, ...]] = (_ROBOT,)

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_scalings(context).actions)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"actions": self._robot(call)} for call in calls]

    def _robot(self, call: Call) -> Tensor:
        """float32 `[t, b]`"""
        actions: Tensor = call.inputs["actions"][:, : int(call.params["width"])]
        return torch.from_numpy(self._scaling.outside(actions.double().numpy())).float()


def _given(inputs: Mapping[str, Any]) -> str | None:
    """The port at which a picture came; None if there is no picture."""
    return next((port for port in ("levels", "pixels") if inputs.get(port) is not None), None)


def _noise(call: Call, *, pinned: bool = False) -> Tensor:
    """float32 `[t, a]`; the run's seed is always among the parameters."""
    seed = int(call.params["seed"]) & ((1 << _SEED_BITS) - 1)
    shape = int(call.params["horizon"]), int(call.params["width"])
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed), pin_memory=pinned)


def _caches(config: Pi05Config, dtype: torch.dtype) -> Mapping[str, CacheShape]:
    shape = CacheShape(layers=config.layers, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=dtype)
    return {"kv": shape}


def _scalings(context: LoadContext) -> Scalings:
    if context.random is not None or context.folder is None:
        return Scalings(Scaling.none(), Scaling.none())
    return read_scalings(context.folder, str(context.options.get(_ROBOT, "")))


def _config(context: LoadContext) -> Pi05Config:
    return context.once(Pi05Config, lambda name, seed: pi05_config(name), read_pi05)


def _pi05(context: LoadContext) -> Pi05:
    config = _config(context)
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        Pi05,
        lambda name, seed: random_pi05(config, seed, **on),
        lambda folder: load_pi05(folder, config, **on, progress=context.progress),
    )


def random_pi05(config: Pi05Config, seed: int, *, device: torch.device, dtype: torch.dtype) -> Pi05:
    """A packed model with random weights; the parameters that loading keeps in float32 stay in float32."""
    model = drawn(lambda: Pi05(config), seed, device=device, dtype=dtype)
    for name, tensor in model.named_parameters():
        if exact(name):
            tensor.data = tensor.data.float()
    return model.pack()
