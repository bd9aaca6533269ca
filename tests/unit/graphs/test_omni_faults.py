"""Requests to Qwen3-Omni that can't be served fail with a typed error, beside a run that goes on as if alone, and leave
nothing behind."""

import json
from typing import Any

import pytest

from tests.golden.qwen3_omni import whole
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import ONE, on_cpus
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec

CALM: dict[str, Any] = {"temperature": 0.0, "speech_temperature": 0.0, "code_temperature": 0.0, "context": 512}
PARAMS: dict[str, Any] = {**CALM, "max_tokens": 4, "max_frames": 6}
VIDEO = bytearray(whole.VIDEO.read_bytes())
VIDEO[len(VIDEO) // 3 : len(VIDEO) // 2] = bytes(len(VIDEO) // 2 - len(VIDEO) // 3)
FAULTS: dict[str, tuple[str, dict[str, list[Any]], str]] = {
    "a prompt too long": ("chat", {"text": ["word " * 200]}, "`thinker` holds at most 512 tokens"),
    "no samples": ("chat", {"audio": [whole.sound(0)]}, "has 0; record more of it"),
    "no sound": ("chat", {"audio": [b"RIFF, but nothing else"]}, "or is damaged; encode it again"),
    "no picture": ("chat", {"image": [b"\x89PNG\r\n\x1a\n, and no more"]}, "or is damaged; encode it again"),
    "a corrupt video": ("watch", {"video": [bytes(VIDEO)], "text": ["What moves?"]}, "encode it again"),
}


@pytest.fixture(scope="module")
def local() -> LocalDeployment:
    document = json.loads(GRAPHS["qwen3_omni"].read_text())
    document["weights"]["omni"]["source"] = "random:qwen3-omni-tiny:0"
    return LocalDeployment(codec.load(document), on_cpus(ONE), threads=1)


def answered(local: LocalDeployment, run: str) -> dict[str, list[Any]]:
    local.release(run)
    return {name: list(values) for name, values in local.outputs.pop(run).items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cant_be_served_fails_alone(local: LocalDeployment, fault: str) -> None:
    task, inputs, says = FAULTS[fault]
    neighbour = {"text": ["Who are you?"], "image": [whole.picture(64, 64)]}
    local.submit(f"{fault} alone", "chat", PARAMS, neighbour)
    local.run()
    alone = answered(local, f"{fault} alone")
    assert alone["audio"]
    (engine,) = local.engines.values()
    local.submit(f"{fault} beside", "chat", PARAMS, neighbour)
    engine.states.limits.admit(fault, PARAMS)
    local.submit(fault, task, PARAMS, inputs)
    local.run()
    assert answered(local, f"{fault} beside") == alone
    error: ErrorInfo = local.failed.pop(fault)
    local.release(fault)
    assert not local.failed
    assert (error.code, error.retryable) == ("invalid_input", False)
    assert says in error.message
    engine.states.audit()
    assert not engine.states.paged
    assert not engine.states.tensors
    free, total = engine.pools.pages()
    assert free == total


def test_thirty_one_pictures_are_read_where_they_fit(local: LocalDeployment) -> None:
    pictures = [whole.picture(64, 64)] * 31
    local.submit("many", "chat", PARAMS, {"image": pictures})
    for engine in local.engines.values():
        engine.states.limits.admit("many", PARAMS)
        engine.states.limits.admit("too many", PARAMS)
    local.submit("too many", "chat", PARAMS, {"image": [whole.picture(256, 256)] * 31})
    local.run()
    assert answered(local, "many")["audio"]
    error: ErrorInfo = local.failed.pop("too many")
    local.release("too many")
    assert "raise `context`" in error.message
