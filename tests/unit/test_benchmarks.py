"""The benchmarks of the runtime run: on this machine, with the least sizes, and say what they measured."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("engine_step", [], ["start, s", "a step, ms", "median ms", "floor at 3.9"]),
        ("engine_step", ["--graph", "bagel"], ["bagel-tiny", "start, s", "median ms", "floor at 3.9"]),
        ("engine_step", ["--model", "qwen3-30b-a3b-fp8", "--prefill", "2:9"], ["qwen3-moe-tiny", "experts", "TFLOP/s"]),
        ("expert_loads", [], ["busiest", "in order", "dealt, 0 redundant", "dealt, 4 redundant"]),
        ("gpu_code2wav", [], ["floor ms", "relative", "transformer"]),
        ("gpu_experts", ["--fp8"], ["distinct", "TB/s", "many rows", "TFLOP/s"]),
        ("gpu_flow", [], ["together", "in turn", "beside, 0", "GEMM", "gate_up", "heads", "relative"]),
        ("gpu_int4", [], ["errors", "weights", "change by a layer", "logits", "linears", "floor"]),
        ("gpu_fp8", [], ["products", "norm, fp8", "gates, fp8", "TFLOP/s", "small layers", "relative"]),
        (
            "gpu_omni",
            [],
            ["predictor", "talker, ", "vocoder, ", "audio, ", "vision, ", "thinker, ", "8 tokens", "floor"],
        ),
        ("gpu_pi05", [], ["as served", "vision us", "tables of ten us", "8 at once"]),
        ("gpu_vjepa2", [], ["predictor, 3 frames", "us a layer", "rounds", "propose"]),
        ("gpu_read_image", ["--rounds", "1"], ["encoder", "picture", "question", "floor", "kernel"]),
        ("noop_loop", ["--devices", "cpu", "--no-http"], ["static", "until", "stepped", "walk"]),
        ("decoding", [], ["undisturbed", "threads", "in place", "ratio", "at once", "by Pillow"]),
        ("between_hosts", [], ["bare GB/s", "four of bare", "edge CPU ms"]),
        ("control_messages", [], ["ipc us", "tcp of ipc", "CPU of ipc"]),
        ("conductor", [], ["runs a minute", "share of a core", "us a run"]),
        ("chain", ["--no-http"], ["number", "text", "tensor", "us/node", "run only"]),
        ("pacing", [], ["launches by rows", "launches flat", "first p95", "interruptions"]),
        ("prefill_apart", [], ["first of one", "two ranks, whole", "beside longest ms", "p95 of alone"]),
        ("planning", [], ["ranks", "plan CPU s", "llm", "bagel"]),
        ("replicas", [], ["conversations", "found", "busiest", "us a run", "of one"]),
        ("spoken_host", ["--operations"], ["us a token", "us a frame", "operations a frame"]),
        ("telling", [], ["launch", "forwards", "summary", "us a step"]),
    ],
)
def test_a_benchmark_can_be_run(
    name: str, words: list[str], told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--check", *words])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(word in printed for word in told), printed
