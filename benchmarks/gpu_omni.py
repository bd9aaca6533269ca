"""Measures Qwen3-Omni's parts on one GPU, each loaded alone: milliseconds next to the least that the GPU could take.

    python benchmarks/gpu_omni.py [--part PART ...] [--batches 1 16 32] [--seconds 240] [--out FILE] [--check]

Weights are random, of full size, in bfloat16, and drawn on the GPU. `predictor`: the 15 passes for a frame's further
codes, and `vocoder`: 25 frames inside a stream, as one CUDA graph each. `audio`: sounds of 3 and 30 seconds, and
`vision`: square pictures of 448 and 1024 pixels, from the operator's call to its result; the encoder's layers for
short sounds are graphs of its own. These are medians of CUDA events. `talker`: a frame, which is a step of the talker
and the passes of the predictor, and `thinker`: a step of the text's loop and 500 tokens of a prompt. These two are
whole loops of the engine, captured as when it serves, and their times are the host's, from one result to the next.

`floor` is the longer of two times: of reading the weights, keys and values once at 3.9 TB/s (experts: those chosen if
all are equally likely), and of the products at 790 TFLOP/s. `times` is the measured time over it. `target` is what the
part should take. `launched` is the time without a graph. A part that fails says so, and the others go on; what
`--seconds` leaves no time for is named in the report. `--check` runs the tiny model, also on a CPU, and writes nothing.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import READ, ROOT, Budget, show, spread, write
from _runtime import RANK, Phases, bundled_graph, device_name, placed
from _timed import Work, timed
from engine_step import Case, Decoder, Model, ended, hash_of, layer_weights, only, prompt_flops, step_bytes

from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import StepBatch
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.engine import Done, Engine, LoopDone
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_PRESETS, AudioConfig
from walkgraph.models.qwen3_omni.hearing.operators import AudioEncoder
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.seeing.config import VISION_PRESETS, VisionConfig
from walkgraph.models.qwen3_omni.seeing.operators import VisionEncoder
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig
from walkgraph.models.qwen3_omni.talker.operators import CodePredictor
from walkgraph.worker.core import Core

RESULTS = ROOT / "benchmarks" / "results" / "gpu_omni.json"
FULL, TINY = "qwen3-omni-30b-a3b", "qwen3-omni-tiny"
PRODUCTS = 790e12
"""Multiplications and additions a second that large products in bfloat16 reach."""
TARGETS: dict[tuple[str, int], float] = {
    ("talker", 1): 2.4,
    ("talker", 16): 3.2,
    ("talker", 32): 4.2,
    ("vocoder", 1): 0.6,
    ("vocoder", 16): 5.0,
    ("audio", 3): 1.2,
}
"""Milliseconds, by part and batch, or seconds of sound."""
HEARD = 500
"""Tokens that the talker has read before a frame, and the thinker before a step."""
RATE = 16_000
Row = dict[str, Any]


def main() -> None:
    given = options()
    device, tiny = device_name(), given.check
    bench = Bench(device, [1, 2] if tiny else given.batches, Budget(given.seconds), tiny=tiny)
    parts = {
        "predictor": bench.predictor,
        "talker": bench.talker,
        "vocoder": bench.vocoder,
        "audio": bench.audio,
        "vision": bench.vision,
        "thinker": bench.thinker,
    }
    report: dict[str, Any] = {"config": bench.name}
    failed: dict[str, str] = {}
    for name, part in parts.items():
        if (given.part and name not in given.part) or not bench.budget.allows(name):
            continue
        rows: list[Row] = []
        began = time.perf_counter()
        try:
            # Rows that were measured before a failure are kept.
            with torch.inference_mode():
                part(rows)
        except Exception as error:  # noqa: BLE001  one part's failure must not cost the others
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            traceback.print_exc()
        show(f"{name}, {bench.name} on {device}, ms ({time.perf_counter() - began:.0f} s in all)", rows)
        report[name] = rows
        _freed()
        out = None if tiny else given.out
        write(out, device, report | {"failed": failed, "left out": bench.budget.left_out})
    for name, why in failed.items():
        print(f"{name} failed: {why}", flush=True)
    if failed:
        sys.exit(1)


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("predictor", "talker", "vocoder", "audio", "vision", "thinker")
    arguments.add_argument("--part", nargs="*", choices=names, default=[], help="default: all")
    arguments.add_argument("--batches", type=int, nargs="+", default=[1, 16, 32])
    arguments.add_argument("--seconds", type=float, default=240.0, help="what begins later is left out")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the tiny model and write nothing")
    return arguments.parse_args()


class Bench:
    def __init__(self, device: str, batches: Sequence[int], budget: Budget, *, tiny: bool) -> None:
        self.device, self.batches, self.budget, self.tiny = torch.device(device), batches, budget, tiny
        self.cuda, self.name = self.device.type == "cuda", TINY if tiny else FULL
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.config = omni_config(self.name)

    @property
    def speaking(self) -> TalkerConfig:
        if self.config.talker is None:
            raise ValueError(f"`{self.name}` has no talker")
        return self.config.talker

    # ── what is measured: each part adds its rows ──

    def predictor(self, rows: list[Row]) -> None:
        network = CodePredictor.load(self.context())
        for batch in self.allowed("predictor"):
            work = partial(network.step, self.frames(batch))
            least = self.floor(predictor_bytes(self.speaking, batch), predictor_flops(self.speaking, batch))
            rows.append({"batch": batch, "launched": timed(work, captured=False)} | least(timed(work)))

    def talker(self, rows: list[Row]) -> None:
        frames = 6 if self.tiny else 150
        spoken = Speech(self.name, str(self.device), self.speaking, max(self.batches), frames, tiny=self.tiny)
        print(f"talker: ready after {spoken.start:.1f} s", flush=True)
        for batch in self.allowed("talker"):
            found = spoken.measure(batch)
            nbytes, flops = frame_work(self.speaking, batch)
            rows.append({"batch": batch} | found | self.floor(nbytes, flops, "talker", batch)(found["mean"]))
        spoken.close()

    def vocoder(self, rows: list[Row]) -> None:
        from gpu_code2wav import Bench as Vocoder

        bench = Vocoder([1, 2] if self.tiny else [1, 16], tiny=self.tiny)
        for batch in bench.batches:
            if self.budget.allows(f"vocoder {batch}"):
                work = bench.step(bench.model, batch, bench.frames, first=False)
                read = numbers(bench.model) * self.dtype.itemsize
                least = self.floor(read, bench.flops(batch, bench.frames), "vocoder", batch)
                row = {"streams": batch, "frames": bench.frames, "launched": timed(work, captured=False)}
                rows.append(row | least(timed(work)))

    def audio(self, rows: list[Row]) -> None:
        config = AUDIO_PRESETS[self.name]
        network = AudioEncoder.load(self.context())
        for seconds in (1, 3) if self.tiny else (3, 30):
            if not self.budget.allows(f"audio {seconds} s"):
                continue
            call = self.call("audio_encoder", {"waveform": self.random(seconds * RATE)})
            nbytes, flops = audio_work(config, seconds, self.dtype.itemsize)
            row = {"seconds": seconds, "embeddings": network.rows(call)}
            rows.append(row | self.floor(nbytes, flops, "audio", seconds)(self.called(network, call)))

    def vision(self, rows: list[Row]) -> None:
        config = VISION_PRESETS[self.name]
        network = VisionEncoder.load(self.context())
        for side in (64, 128) if self.tiny else (448, 1024):
            if not self.budget.allows(f"vision {side}"):
                continue
            call = self.call("vision_encoder", {"pixels": self.random(3, side, side).clamp(-1, 1)})
            nbytes, flops = vision_work(config, network.rows(call), self.dtype.itemsize)
            row = {"side": side, "patches": network.rows(call)}
            rows.append(row | self.floor(nbytes, flops)(self.called(network, call)))

    def thinker(self, rows: list[Row]) -> None:
        params = {"temperature": 0.0, "top_p": 0.8, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.0}
        params |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "logits": False}
        sources, llm = {"omni": f"random:{self.name}:0"}, self.config.thinker.llm
        model = Model("qwen3_omni", self.name, llm, sources, "answer", params, {}, 1, node="thinker")
        prompt, tokens = (8, 24) if self.tiny else (HEARD, 120)
        cases, device = [Case(batch, prompt) for batch in self.batches], str(self.device)
        decoder = Decoder(model, device, cases, tokens, threads=1 if self.tiny else None)
        print(f"thinker: ready after {decoder.start['all']:.1f} s", flush=True)
        for case in cases:
            if self.budget.allows(f"thinker {case.name}"):
                found = decoder.measure(case, tokens)
                flops = case.batch * 2.0 * (layer_weights(llm, 1) + llm.vocab * llm.width)
                row = {"what": "step", "batch": case.batch, "host": found["host"]}
                rows.append(row | self.floor(step_bytes(model, device, case, tokens), flops)(found["median ms"]))
        if self.budget.allows("thinker's prompt"):
            case = Case(1, prompt)
            nbytes = self.dtype.itemsize * (layer_weights(llm, prompt) + llm.vocab * llm.width)
            found = decoder.prefill(case)
            row = {"what": f"{prompt} tokens", "batch": 1}
            rows.append(row | self.floor(nbytes, prompt_flops(llm, case))(found["median ms"]))
        decoder.close()

    # ── what it needs ──

    def context(self) -> LoadContext:
        return LoadContext(
            device=self.device,
            dtype=self.dtype,
            folder=None,
            shared={},
            options={},
            random=(self.name, 0),
            family="qwen3_omni",
            capture=Capturer(self.device) if self.cuda else None,
        )

    def allowed(self, part: str) -> list[int]:
        return [batch for batch in self.batches if self.budget.allows(f"{part} {batch}")]

    def floor(self, nbytes: float, flops: float, part: str = "", size: int = 0) -> Any:
        """Time -> the cells of a row that compare it."""

        def row(ms: float) -> Row:
            least = 1e3 * max(nbytes / READ, flops / PRODUCTS)
            cells: Row = {"ms": ms, "floor": least, "times": ms / least}
            if not self.tiny and (part, size) in TARGETS:
                cells["target"] = TARGETS[part, size]
            return cells | {"GB": nbytes / 1e9, "GFLOP": flops / 1e9}

        return row

    def frames(self, batch: int) -> StepBatch:
        """Shaped as the predictor reads them."""
        zeros = torch.zeros(batch, dtype=torch.int64, device=self.device)
        given = {"temperature": (1.0, torch.float32), "top_k": (50, torch.int64), "top_p": (0.8, torch.float32)}
        return StepBatch(
            rows=torch.arange(batch, dtype=torch.int32, device=self.device),
            inputs={"code": zeros[:, None], "hidden": self.random(batch, 1, self.speaking.stack.width).to(self.dtype)},
            params={
                name: torch.full((batch,), value, dtype=dtype, device=self.device)
                for name, (value, dtype) in given.items()
            },
            seed=zeros + torch.arange(batch, device=self.device),
            iteration=zeros,
        )

    def called(self, network: Operator, call: Call) -> float:
        """Milliseconds of a call; it keeps no state."""
        none: Any = None
        states: States = none
        work: Work = lambda: network.forward([call], states)  # noqa: E731  its result is not wanted
        return timed(work, captured=False)

    def call(self, node: str, inputs: dict[str, Any]) -> Call:
        return Call(
            run="run",
            node=node,
            walk="walk",
            step=0,
            use=0,
            iteration=(),
            inputs=inputs,
            params={},
            states={},
            seed=0,
        )

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator(self.device).manual_seed(1), device=self.device)


class Speech:
    """The engine with talker and predictor, and the loop of frames as the worker hands it over."""

    def __init__(self, name: str, device: str, config: TalkerConfig, batch: int, frames: int, *, tiny: bool) -> None:
        began = time.perf_counter()
        self._device, self._config, self._times, self._runs = device, config, frames, 0
        self._heard = 8 if tiny else HEARD
        stack, item = config.stack, 2 if device.startswith("cuda") else 4
        page = PAGE * 2 * stack.layers * stack.kv_heads * stack.head_dim * item
        pages = batch * pages_for(self._heard + frames + 16) + 64
        graph = bundled_graph("qwen3_omni", {"omni": f"random:{name}:0"})
        plan = only(placed(graph, device, kv_bytes=pages * page), ("talker", "code_predictor"))
        self.engine = Engine(plan, RANK, threads=1 if tiny else None, prefix_cache=False)
        self.engine.load()
        self._template = next(loop for loop in Core(plan, RANK).loops() if loop.loop == "frames")
        self.engine.prepare(self._template, Phases())
        self.start = time.perf_counter() - began

    def close(self) -> None:
        del self.engine

    def measure(self, batch: int) -> Row:
        """Milliseconds of a frame, and the host's share of them."""
        self._spoken(batch, 4)
        at, worked, frames, early = self._spoken(batch, self._times)
        between = [later - before for before, later in pairwise(at)]
        # The first frames wait for the runs to enter, the last ones for them to leave.
        inner = between[4:-4] or between
        row: Row = {f"{key}": value for key, value in spread(inner, 1e3).items()}
        # Speech may end by chance, so the frames are counted.
        row |= {"mean": 1e3 * (at[-1] - at[0]) / frames, "frames": frames, "host": worked / (at[-1] - at[0])}
        return row | ({"ended early": early} if early else {})

    def _spoken(self, batch: int, times: int) -> tuple[list[float], float, int, int]:
        """When frames came back, seconds that the thread was at work, frames of the longest run, and runs that ended
        early."""
        names = [f"run{self._runs + number}" for number in range(batch)]
        self._runs += batch
        begins = self._listened(names)
        for name in names:
            call = self._loop(name, begins[name], times)
            self.engine.add_loop(call)
            words = torch.arange(times) % 200
            items = [StreamItems((0, "text"), 0, words)]
            self.engine.loops.allow(call.run, call.step, call.use, call.iteration, times, items)
        at, done, frames = [time.perf_counter()], list[LoopDone](), 1
        worked = time.thread_time()
        while not self.engine.idle:
            events = self.engine.step()
            if events:
                at.append(time.perf_counter())
            frames = max([frames, *(one.first + one.count for one in events if isinstance(one, Items))])
            done += [event for event in events if isinstance(event, LoopDone) and ended(event) is not None]
        worked = time.thread_time() - worked
        for name in names:
            self.engine.drop(name)
        return at, worked, frames, sum(1 for one in done if one.stopped)

    def _listened(self, names: Sequence[str]) -> dict[str, Any]:
        """Run -> what its first frame begins with."""
        params, talker = dict(self._template.uses[0].params), self._template.spec.uses[0]
        for name in names:
            states = self._states(name)
            self.engine.add(
                Call(
                    run=name,
                    node="talker",
                    walk="listen",
                    step=0,
                    use=0,
                    iteration=(),
                    inputs={"ids": torch.arange(self._heard) % 200},
                    params=params,
                    states={slot: states[state] for slot, state in talker.states.items()},
                    seed=hash_of(name),
                )
            )
        found: dict[str, Any] = {}
        while not self.engine.idle:
            for event in self.engine.step():
                if isinstance(event, Done):
                    found[event.call.run] = ended(event)["begin"]
        return found

    def _loop(self, run: str, begin: Any, times: int) -> LoopCall:
        uses = tuple(use._replace(seed=hash_of(run) + number) for number, use in enumerate(self._template.uses))
        return replace(
            self._template,
            run=run,
            uses=uses,
            values={**self._template.values, "talker.frame": begin},
            states=self._states(run),
            times=times,
            allowed=0,
        )

    def _states(self, run: str) -> dict[str, StateKey]:
        return {name: StateKey(run, key.state) for name, key in self._template.states.items()}


# ── the least that the parts must read and multiply: bytes in 16 bits on a GPU ──


def frame_work(config: TalkerConfig, batch: int) -> tuple[float, float]:
    """Bytes and FLOPs of a frame: the talker's step after `HEARD` tokens, and the predictor's passes."""
    stack = config.stack
    shared = 0 if stack.moe is None else 3 * stack.layers * stack.width * stack.moe.shared
    rest = shared + stack.vocab * stack.width
    context = batch * HEARD * 2 * stack.layers * stack.kv_heads * stack.head_dim
    nbytes = 2.0 * (layer_weights(stack, batch) + rest + context)
    flops = 2.0 * batch * (layer_weights(stack, 1) + rest)
    return nbytes + predictor_bytes(config, batch), flops + predictor_flops(config, batch)


def predictor_bytes(config: TalkerConfig, batch: int) -> float:
    """The layers stay too large for a GPU's cache, so each pass reads them again."""
    one = config.predictor
    return 2.0 * (config.groups - 1) * (layer_weights(one, batch) + one.vocab * one.width)


def predictor_flops(config: TalkerConfig, batch: int) -> float:
    one = config.predictor
    heads = (config.groups - 1) * one.vocab * one.width
    # The first pass has two rows.
    return 2.0 * batch * (config.groups * layer_weights(one, 1) + heads)


def audio_work(config: AudioConfig, seconds: float, item: int) -> tuple[float, float]:
    rows = config.tokens(int(100 * seconds))
    layer = 4 * config.width**2 + 2 * config.width * config.hidden
    ends = config.channels * config.bands * config.width + config.width * (config.width + config.out)
    # Outputs of the second and third convolution: four and one for each of the last one's places.
    kernel = 9 * config.channels**2
    places = rows * config.bands
    weights = config.layers * layer + ends + 2 * kernel
    attended = 2 * config.layers * config.width * min(rows, config.reach)
    return float(item * weights), 2.0 * (rows * (config.layers * layer + ends + attended) + 5 * places * kernel)


def vision_work(config: VisionConfig, patches: int, item: int) -> tuple[float, float]:
    layers = config.layers * (4 * config.width**2 + 2 * config.width * config.hidden)
    wide = config.width * config.merge**2
    mergers = (1 + len(config.deepstack)) * wide * (wide + config.out)
    first = 3 * config.frames * config.patch**2 * config.width
    attended = 2 * config.layers * config.width * patches
    flops = 2.0 * (patches * (layers + first + attended) + patches / config.merge**2 * mergers)
    return float(item * (layers + mergers + first)), flops


def numbers(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def _freed() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
