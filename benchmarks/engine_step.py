"""Measures decoding by the engine alone, in this process: milliseconds per step, next to the time to read the bytes.

    python benchmarks/engine_step.py [--model bagel] [--cases 1:128 16:128 16:2000] [--plain-cases 1:128] [--tokens 400]
        [--context 6000 --batch 1 16] [--prefill 16:2000] [--budget 140] [--profile 1:128 64:128] [--invariant]
        [--baseline 1 16] [--compile] [--out FILE] [--check]

The models are Orpheus, BAGEL and plain language models of the graph `llm`: `qwen3-8b`, and `qwen3-30b-a3b`, whose
layers have experts (in eight bits with `-fp8`). A case is BATCH:PROMPT; `--context` and `--batch` set cases with one
prompt length. All runs of a case are prefilled by ordinary calls with token ids alone, and then decode together,
sampled with temperature 0.6, top-p 0.8 and, for Orpheus, repetition penalty 1.3 (`plain`: without the penalty). `ms`
is the time between the results of consecutive steps on the host's clock, from the second step of all runs; `mean` is
the time of the whole decode divided by its steps. `host` is the share of that time in which this process's thread was
awake: launching, reading and delivering. `--profile` traces a case again and prints the GPU time of a step by kernel.
`--prefill` reads the prompts of these cases alone, several times: `TFLOP/s` counts the products and the attention that
these tokens need. `--invariant` repeats every case with an engine whose results don't depend on the batch; `cost` is
the factor by which its steps are slower. `--baseline` decodes Orpheus with `transformers` at these batches. `--check`
runs the tiny model for a moment.
"""

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _common import ROOT, Budget, Row, roofline, show, spread, write
from _runtime import RANK, Phases, bundled_graph, device_name, placed

from walkgraph.abi.calls import Call, StateKey
from walkgraph.checkpoints.decoder import DecoderSizes
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig
from walkgraph.engine.engine import Done, Engine, LoopDone
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank
from walkgraph.models.bagel.presets import bagel_config
from walkgraph.models.llm.presets import llm_config
from walkgraph.models.orpheus.presets import orpheus_config
from walkgraph.placement.tables import Plan
from walkgraph.worker.core import Core

RESULTS = ROOT / "benchmarks" / "results" / "engine_step.json"
CASES = ("1:128", "8:128", "16:128", "32:128", "64:128", "1:2000", "16:2000")
PLAIN = ("1:128", "16:128", "64:128")
SAMPLED: dict[str, Any] = {
    "temperature": 0.6,
    "top_p": 0.8,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
PLAINLY = {"repetition_penalty": 1.0}
FRAME = 7
"""Codes that leave together, as the stream to the vocoder wants them."""


class Model(NamedTuple):
    graph: str
    config: str
    llm: DecoderSizes
    sources: dict[str, str]
    loop: str
    params: dict[str, Any]
    plain: dict[str, Any]
    """Parameters of a `plain` case, in addition to these."""
    grain: int
    precision: str = "bf16"
    """The precision of experts."""
    node: str = "llm"
    """The backbone's in the graph."""


def orpheus(config: str) -> Model:
    sources = {"orpheus": f"random:{config}:0", "snac": "random:snac-tiny:0"}
    return Model("orpheus", config, orpheus_config(config).llm, sources, "tokens", SAMPLED, PLAINLY, FRAME)


def bagel(config: str) -> Model:
    params = {"temperature": 0.6, "top_p": 0.8, "top_k": 0, "time": 0.0}
    return Model("bagel", config, bagel_config(config).llm, {"bagel": f"random:{config}:0"}, "tokens", params, {}, 1)


def llm(config: str) -> Model:
    params = SAMPLED | PLAINLY
    return Model("llm", config, llm_config(config).llm, {"llm": f"random:{config}:0"}, "tokens", params, {}, 1)


def llm_fp8(config: str) -> Model:
    return llm(config)._replace(precision="fp8")


MODELS = {
    "orpheus": (orpheus, "orpheus-3b", "orpheus-tiny"),
    "bagel": (bagel, "bagel-7b-mot", "bagel-tiny"),
    "qwen3-8b": (llm, "qwen3-8b", "qwen3-tiny"),
    "qwen3-30b-a3b": (llm, "qwen3-30b-a3b", "qwen3-moe-tiny"),
    "qwen3-30b-a3b-fp8": (llm_fp8, "qwen3-30b-a3b", "qwen3-moe-tiny"),
}
"""Full and tiny."""


class Case(NamedTuple):
    batch: int
    prompt: int
    penalty: bool = True

    @property
    def name(self) -> str:
        return f"{self.batch}:{self.prompt}{'' if self.penalty else ' plain'}"


def main() -> None:
    given = options()
    make, full, tiny = MODELS[given.model]
    model, tokens, cases, batches = make(tiny if given.check else full), given.tokens, list(cases_of(given)), []
    if given.model == "orpheus":
        batches = [1] if given.check else given.baseline
    if given.check:
        tokens, cases = 24, [Case(1, 8), Case(3, 20), *([Case(2, 8, penalty=False)] if model.plain else [])]
    device, budget = device_name(), Budget(given.budget)
    prompts = [Case(*map(int, one.split(":"))) for one in given.prefill]
    here = Decoder(model, device, [*cases, *prompts], tokens, threads=1 if given.check else None)
    show("start, s", [here.start])
    rows: list[Row] = []
    for case in cases:
        if budget.allows(case.name):
            floor = roofline(step_bytes(model, device, case, tokens))
            rows.append(here.measure(case, tokens) | floor | distinct(model.llm, case.batch))
    show(f"{model.config} on {device}: a step, ms", rows)
    prefills = [here.prefill(Case(*map(int, one.split(":")))) for one in given.prefill if budget.allows(one)]
    if prefills:
        show("prompts alone", prefills)
    profiles = {one: here.profile(Case(*map(int, one.split(":")))) for one in given.profile if budget.allows(one)}
    for one, kernels in profiles.items():
        show(f"the GPU's time of a step at {one}, us", kernels)
    here.close()
    report = {"config": model.config, "start": here.start, "steps": rows, "prefills": prefills, "profiles": profiles}
    if given.invariant:
        report["invariant"] = invariant(model, device, cases, tokens, rows, budget, threads=1 if given.check else None)
        show("where runs' numbers don't depend on their batch: a step, ms", report["invariant"])
    if isinstance(model.llm, LanguageConfig) and model.graph == "orpheus":
        report["baseline"] = baselines(model.llm, device, batches, budget, compiled=given.compile)
        show("transformers", report["baseline"])
    write(None if given.check else given.out, device, report | {"left out": budget.left_out})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--model", "--graph", choices=MODELS, default="orpheus")
    arguments.add_argument("--cases", nargs="*", default=CASES)
    arguments.add_argument("--plain-cases", nargs="*", default=PLAIN, help="plain cases of Orpheus")
    arguments.add_argument("--context", type=int, help="tokens per prompt, instead of `--cases`")
    arguments.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    arguments.add_argument("--prefill", nargs="*", default=[], help="cases whose prompts are read alone, repeatedly")
    arguments.add_argument("--tokens", type=int, default=400)
    arguments.add_argument("--budget", type=float, default=140.0, help="seconds; later cases are skipped")
    arguments.add_argument("--profile", nargs="*", default=[])
    arguments.add_argument("--invariant", action="store_true", help="also measure with `batch_invariant`, and its cost")
    arguments.add_argument("--baseline", type=int, nargs="*", default=[1, 16])
    arguments.add_argument("--compile", action="store_true", help="also compile the baseline, with a static cache")
    arguments.add_argument("--out", type=Path, default=None, help="default: the results file of Orpheus's cases")
    arguments.add_argument("--check", action="store_true", help="run the tiny model and write nothing")
    given = arguments.parse_args()
    if given.out is None and given.model == "orpheus" and given.context is None:
        given.out = RESULTS
    return given


def cases_of(given: argparse.Namespace) -> Iterator[Case]:
    if given.context is not None:
        yield from (Case(batch, given.context) for batch in given.batch)
        return
    for text in given.cases:
        yield Case(*map(int, text.split(":")))
    for text in given.plain_cases if given.model == "orpheus" else ():
        yield Case(*map(int, text.split(":")), penalty=False)


def invariant(
    model: Model, device: str, cases: Sequence[Case], tokens: int, plain: Sequence[Row], budget: Budget, **options: Any
) -> list[Row]:
    """The cases with `batch_invariant`; `cost`: a step's time over that of the plain one."""
    here = Decoder(model, device, cases, tokens, batch_invariant=True, **options)
    known = {(row["batch"], row["prompt"], row["penalty"]): row for row in plain}
    rows: list[Row] = []
    for case in cases:
        if tuple(case) in known and budget.allows(f"{case.name} invariant"):
            row = here.measure(case, tokens)
            rows.append(row | {"cost": row["median ms"] / known[tuple(case)]["median ms"]})
    here.close()
    return rows


def step_bytes(model: Model, device: str, case: Case, tokens: int) -> float:
    """The bytes that a step must read halfway through the decode: every weight once (only one row of the embeddings if
    the head is a separate matrix, and the experts that are chosen if all are equally likely), and the keys and values
    of every run."""
    config, item = model.llm, 2 if device.startswith("cuda") else 4
    weights = config.vocab * config.width + layer_weights(config, case.batch)
    if model.precision == "fp8":
        weights -= expert_weights(config, case.batch) * (item - 1) / item
    token = 2 * config.layers * config.kv_heads * config.head_dim
    return item * (weights + case.batch * (case.prompt + tokens / 2) * token)


def prompt_flops(config: DecoderSizes, case: Case) -> float:
    """Multiplications and additions for reading the prompts: the products of every token, attention up to itself, and
    the logits of the last one."""
    each = 2 * layer_weights(config, 1) + 2 * config.layers * config.heads * config.head_dim * case.prompt
    return case.batch * (case.prompt * each + 2 * config.vocab * config.width)


def layer_weights(config: DecoderSizes, batch: int) -> float:
    """Numbers of all layers' weights that a step with this batch reads."""
    heads, moe = config.heads + 2 * config.kv_heads, moe_of(config)
    total = config.layers * config.width * config.head_dim * (heads + config.heads) + expert_weights(config, batch)
    for layer in range(config.layers):
        sparse = moe is not None and moe.has(layer)
        total += config.width * (moe.experts if moe is not None and sparse else 3 * config.hidden)
    return total


def expert_weights(config: DecoderSizes, batch: int) -> float:
    """Numbers of all experts' weights that a step with this batch reads."""
    moe = moe_of(config)
    if moe is None:
        return 0.0
    sparse = sum(moe.has(layer) for layer in range(config.layers))
    return sparse * 3 * config.width * moe.hidden * distinct(config, batch)["experts"]


def distinct(config: DecoderSizes, batch: int) -> Row:
    """The experts of a layer that a step reads if all are equally likely; nothing for a model without experts."""
    moe = moe_of(config)
    return {} if moe is None else {"experts": moe.experts * (1 - (1 - moe.chosen / moe.experts) ** batch)}


def moe_of(config: DecoderSizes) -> ExpertSizes | None:
    return config.moe if isinstance(config, LanguageConfig) else None


# ── ours ──


class Decoder:
    """The engine with a model's backbone, and the loop of its decode as the worker hands it over."""

    def __init__(
        self,
        model: Model,
        device: str,
        cases: Sequence[Case],
        tokens: int,
        *,
        threads: int | None = None,
        batch_invariant: bool = False,
    ) -> None:
        began = time.perf_counter()
        self._model, config = model, model.llm
        pages = max((case.batch * pages_for(case.prompt + tokens) for case in cases), default=1) + 64
        item = 2 if device.startswith("cuda") else 4
        page = 16 * 2 * config.layers * config.kv_heads * config.head_dim * item
        literals = {model.node: {"precision": model.precision}} if model.precision != "bf16" else {}
        graph = bundled_graph(model.graph, model.sources, literals)
        plan = only(placed(graph, device, kv_bytes=pages * page), (model.node,))
        self._vocab, self._runs = config.vocab, 0
        phases = Phases()
        # Prompts are the same every time, and their prefill is measured.
        self.engine = Engine(plan, RANK, threads=threads, prefix_cache=False, batch_invariant=batch_invariant)
        self.engine.load(phases)
        self._template = backbone(next(loop for loop in Core(plan, RANK).loops() if loop.loop == model.loop))
        self.engine.prepare(self._template, phases)
        self.start = {**phases.seconds, "all": time.perf_counter() - began}

    def close(self) -> None:
        """Give the device's memory back to what is measured next."""
        del self.engine
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def measure(self, case: Case, tokens: int) -> Row:
        self._decode(case, 3 * FRAME)
        at, busy, done, prefill = self._decode(case, tokens)
        early = sum(1 for one in done if one.stopped)
        between = [later - before for before, later in pairwise(at)]
        steps = tokens - 1
        row: dict[str, Any] = {"batch": case.batch, "prompt": case.prompt, "penalty": case.penalty}
        # The first ones wait for the runs to enter, the last ones for them to leave.
        row |= {f"{key} ms": value for key, value in spread(between[4:-4] or between, 1e3).items()}
        mean = (at[-1] - at[0]) / steps
        row |= {"mean ms": 1e3 * mean, "host": busy / (at[-1] - at[0]), "tokens/s": case.batch / mean}
        row |= {"prefill ms": 1e3 * prefill, "step calls": len(at) / steps}
        return row | ({"ended early": early} if early else {})

    def prefill(self, case: Case, rounds: int = 5) -> Row:
        """The prompts of a case, read together."""
        took: list[float] = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            firsts = self._prefilled(case)
            took.append(time.perf_counter() - began)
            for name, _ in firsts:
                self.engine.drop(name)
        row: Row = {"batch": case.batch, "prompt": case.prompt}
        row |= {f"{key} ms": value for key, value in spread(took[1:], 1e3).items()}
        return row | {"TFLOP/s": prompt_flops(self._model.llm, case) / sorted(took[1:])[rounds // 2] / 1e12}

    def profile(self, case: Case, tokens: int = 40) -> list[Row]:
        """Kernels by their time in a step, and all of them together."""
        from torch.profiler import ProfilerActivity, profile

        cuda = torch.cuda.is_available()
        firsts = self._prefilled(case)
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as trace:
            self._looped(case, firsts, tokens)
            if cuda:
                torch.cuda.synchronize()
        took = "self_device_time_total" if cuda else "self_cpu_time_total"
        found = [(getattr(one, took) / (tokens - 1), one.count / (tokens - 1), one.key) for one in trace.key_averages()]
        rows = [{"us": us, "calls": calls, "kernel": key[:90]} for us, calls, key in sorted(found, reverse=True) if us]
        return [{"us": sum(us for us, _, _ in found), "kernel": "all"}, *rows[:25]]

    def _decode(self, case: Case, tokens: int) -> tuple[list[float], float, list[LoopDone], float]:
        """When each step came back, seconds the thread was at work, the ends, and seconds of the prefill."""
        began = time.perf_counter()
        firsts = self._prefilled(case)
        prefill = time.perf_counter() - began
        return (*self._looped(case, firsts, tokens), prefill)

    def _prefilled(self, case: Case) -> list[tuple[str, Any]]:
        """Runs and their first tokens."""
        dice = torch.Generator().manual_seed(case.prompt)
        names = [f"run{self._runs + number}" for number in range(case.batch)]
        self._runs += case.batch
        for name in names:
            ids = torch.randint(0, self._vocab, (case.prompt,), generator=dice)
            self.engine.add(self._call(name, {"ids": ids}, case))
        found: dict[str, Any] = {}
        while not self.engine.idle:
            for event in self.engine.step():
                if isinstance(event, Done):
                    found[event.call.run] = ended(event)["token"]
        return [(name, found[name]) for name in names]

    def _looped(
        self, case: Case, firsts: Sequence[tuple[str, Any]], tokens: int
    ) -> tuple[list[float], float, list[LoopDone]]:
        for name, token in firsts:
            self.engine.add_loop(self._loop(name, token, case, tokens - 1))
        at, done = [time.perf_counter()], []
        worked = time.thread_time()
        while not self.engine.idle:
            events = self.engine.step()
            at.append(time.perf_counter())
            done += [event for event in events if isinstance(event, LoopDone) and ended(event) is not None]
        worked = time.thread_time() - worked
        for name, _ in firsts:
            self.engine.drop(name)
        return at, worked, done

    def _call(self, run: str, inputs: dict[str, Any], case: Case) -> Call:
        return Call(
            run=run,
            node=self._model.node,
            walk="prefill",
            step=0,
            use=0,
            iteration=(),
            inputs=inputs,
            params=self._params(case),
            states={slot: self._states(run)[name] for slot, name in self._template.spec.uses[0].states.items()},
            seed=hash_of(run),
        )

    def _loop(self, run: str, token: Any, case: Case, times: int) -> LoopCall:
        source = self._template.spec.uses[0].sources["token"]
        (use,) = self._template.uses
        return replace(
            self._template,
            run=run,
            uses=(use._replace(params=self._params(case), seed=hash_of(run)),),
            values={**self._template.values, source.entry: token},
            states=self._states(run),
            times=times,
            grain=self._model.grain,
        )

    def _states(self, run: str) -> dict[str, StateKey]:
        return {name: StateKey(run, key.state) for name, key in self._template.states.items()}

    def _params(self, case: Case) -> dict[str, Any]:
        return self._model.params | ({} if case.penalty else self._model.plain)


def only(plan: Plan, names: Sequence[str]) -> Plan:
    """The plan, of which the rank loads these nodes alone."""
    from msgspec.structs import replace as changed

    kept = tuple(node.index for node in plan.nodes if node.name in names)
    return changed(plan, ranks=tuple(changed(one, nodes=kept) for one in plan.ranks if one.rank == Rank(0)))


def backbone(loop: LoopCall) -> LoopCall:
    """The loop with its first use and the tokens alone, as it runs where nothing optional is asked for."""
    first = loop.spec.uses[0]
    use = replace(first, sources={"token": first.sources["token"]})
    outputs = tuple(one for one in loop.spec.outputs if one.use == 0)
    return replace(loop, spec=replace(loop.spec, uses=(use,), outputs=outputs), uses=loop.uses[:1])


def hash_of(run: str) -> int:
    return int(run.removeprefix("run")) * 1_000_003 + 17


def ended(event: Done | LoopDone) -> dict[str, Any]:
    """Its outputs. Raises RuntimeError for one that failed."""
    if event.error is not None or event.outputs is None:
        raise RuntimeError(str(event.error))
    return event.outputs


# ── theirs ──


def baselines(
    config: LanguageConfig, device: str, batches: Sequence[int], budget: Budget, *, compiled: bool
) -> list[Row]:
    from importlib.util import find_spec

    wanted = [(batch, mode) for batch in batches for mode in ("eager", *(["compiled"] if compiled else []))]
    wanted = [(batch, mode) for batch, mode in wanted if budget.allows(f"transformers {mode} at batch {batch}")]
    if not wanted:
        return []
    if find_spec("transformers") is None:
        print("transformers is not installed: no baseline")
        return []
    from parity_orpheus import transformers_config
    from transformers import LlamaForCausalLM  # pyright: ignore[reportMissingImports]

    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16 if device.startswith("cuda") else torch.float32)
        model = LlamaForCausalLM(transformers_config(config)).eval()
        torch.set_default_dtype(torch.float32)
    return [_generated(model, config, device, batch, mode) for batch, mode in wanted]


def _generated(model: Any, config: LanguageConfig, device: str, batch: int, mode: str, tokens: int = 100) -> Row:
    """Their own `generate`; each token's time is when its stopping rules are asked."""
    at: list[float] = []

    def asked(ids: torch.Tensor, _scores: Any, **_: Any) -> torch.Tensor:
        ids[0, -1].item()  # waits for it
        at.append(time.perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

    ids = torch.randint(0, config.vocab, (batch, 128), device=device)
    how = {"do_sample": True, "temperature": 0.6, "top_p": 0.8, "top_k": 0, "repetition_penalty": 1.3}
    more = {"cache_implementation": "static"} if mode == "compiled" else {}
    for count in (10, tokens):
        at.clear()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                pad_token_id=0,
                stopping_criteria=[asked],
                **how,
                **more,
            )
    steps = [later - before for before, later in pairwise(at)]
    return {"mode": mode, "batch": batch, **{f"{key} ms": value for key, value in spread(steps[2:], 1e3).items()}}


if __name__ == "__main__":
    main()
