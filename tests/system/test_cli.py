"""A public checkpoint on its way through the command line: imported, deployed, measured, exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel

from tests.support.serving import Service, service
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.models.snac.model import SNAC, Snac

Call = Callable[..., "subprocess.CompletedProcess[str]"]
CPU: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orpheus and SNAC, tiny, in the public layouts."""
    root = tmp_path_factory.mktemp("roots")
    for name, config in (("orpheus-tiny", published()), ("snac-tiny", vars(SNAC["snac-tiny"]))):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
    llama = drawn(lambda: LanguageModel(ORPHEUS["orpheus-tiny"].llm), 0, **CPU)
    save_file(llama.state_dict(), root / "orpheus-tiny" / "model.safetensors")
    save_file(drawn(lambda: Snac(SNAC["snac-tiny"]), 0, **CPU).state_dict(), root / "snac-tiny" / "model.safetensors")
    tokenizer = Tokenizer(models.BPE({piece: n for n, piece in enumerate(sorted(ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(root / "orpheus-tiny" / "tokenizer.json"))
    return root


def published() -> dict[str, Any]:
    config = ORPHEUS["orpheus-tiny"]
    llm = config.llm
    return {
        "model_type": "llama", "hidden_size": llm.width, "intermediate_size": llm.hidden,
        "num_hidden_layers": llm.layers, "num_attention_heads": llm.heads, "num_key_value_heads": llm.kv_heads,
        "head_dim": llm.head_dim, "vocab_size": llm.vocab, "rope_theta": llm.rope_theta, "rms_norm_eps": llm.norm_eps,
        "tie_word_embeddings": llm.tied, "speech_tokens": vars(config.tokens),
    }  # fmt: skip


@pytest.fixture(scope="module")
def running(roots: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("home") / "home"
    with service(home, checkpoint_roots=json.dumps([str(roots)]), studio="false") as found:
        found.up("--no-deploy")
        yield found


@pytest.fixture
def walkgraph(running: Service, tmp_path: Path) -> Call:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "walkgraph.cli.main", *words],
            env={**os.environ, "WALKGRAPH_HOME": str(running.home), **running.environment},
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    return call


def test_a_public_checkpoint_is_served_measured_and_exported(walkgraph: Call, roots: Path, tmp_path: Path) -> None:
    imported = walkgraph("import", str(roots / "orpheus-tiny"), "-o", "made")
    assert imported.returncode == 0, imported.stderr
    assert "`snac` is read from snac-tiny" in imported.stdout
    assert "WALKGRAPH_CHECKPOINT_ROOTS" not in imported.stdout, "the folder's parent is listed already"

    deployed = walkgraph("deploy", "made/orpheus_tiny.json", "made/orpheus_tiny_one_cpu.json")
    assert deployed.returncode == 0, deployed.stderr
    assert "rank 0 cpu: ready" in deployed.stderr

    asked = ("--text", "hello", "--max_tokens", "35")
    measured = walkgraph(
        "bench", "orpheus_tiny", "speak", *asked, "--warmup", "0", "-c", "2", "-n", "2", "-o", "report", "--json"
    )
    assert measured.returncode == 0, measured.stderr
    [row] = json.loads(measured.stdout)["rows"]
    assert (row["completed"], row["errors"]) == (2, {})
    assert 0 < row["ttft"]["p50"] <= row["e2e"]["p50"]
    assert row["tokens"]["read"] > 0
    assert "decode.tokens" in row["tokens"]["loops"]
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()

    exported = walkgraph("export", "last", "-o", "run", "--json")
    assert exported.returncode == 0, exported.stderr
    told = json.loads(exported.stdout)
    assert told["missing"] == {}
    request = json.loads((tmp_path / "run" / "request.json").read_text())["request"]
    assert request["inputs"] == {"text": "hello"}
    with wave.open(str(tmp_path / "run" / "outputs" / "audio.wav")) as sound:
        assert sound.getnframes() > 0


def test_a_bundled_placement_is_saved_in_the_service(walkgraph: Call, roots: Path, running: Service) -> None:
    saved = walkgraph("import", str(roots / "orpheus-tiny"), "--name", "speaker", "--save")
    assert saved.returncode == 0, saved.stderr
    with running.client() as client:
        assert client.graph("speaker")["weights"]["orpheus"]["source"] == "checkpoint:orpheus-tiny"
        assert client.placement("speaker_one_cpu")["graph"] == "speaker"
    again = walkgraph("import", str(roots / "orpheus-tiny"), "--name", "speaker", "--save")
    assert again.returncode == 1
    assert "Traceback" not in again.stderr


@pytest.mark.safety("S15")
def test_nothing_secret_is_printed(walkgraph: Call, running: Service) -> None:
    for words in (("doctor",), ("status", "--json")):
        answer = walkgraph(*words)
        assert running.token not in answer.stdout + answer.stderr, words
        assert "Traceback" not in answer.stderr, words
