"""The README's blocks run as they stand, against a service that was started as the README says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from PIL import Image

from walkgraph.client import Client
from walkgraph.resources import bundled
from walkgraph.settings import Settings

ADDRESS = "127.0.0.1:8421"
START_SECONDS = 300
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Running:
    """A service with a home folder of its own."""

    home: Path
    address: str
    environment: dict[str, str]

    def block(self, text: str, folder: Path) -> str:
        """Run one block, bash or Python, in `folder`; answer with what it printed."""
        language, code = text.split("\n", 1)
        code = code.replace(ADDRESS, self.address).replace(".venv/bin/", f"{BIN}/")
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        answer = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert answer.returncode == 0, f"{code}\n{answer.stdout}\n{answer.stderr}"
        return answer.stdout


@pytest.fixture(scope="module")
def blocks(repository: Path) -> list[str]:
    """The README's code, each with its language in the first line."""
    return re.findall(
        r"^```((?:bash|python)\n.*?)^```", (repository / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def running(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("WALKGRAPH_")}
    environment = {**plain, "HOME": str(home), "WALKGRAPH_PORT": "0", "PATH": f"{BIN}:{os.environ['PATH']}"}
    log = (home / "up.log").open("w+")
    process = subprocess.Popen(
        [BIN / "walkgraph", "up"],
        cwd=repository,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield Running(home, ready(process, home), environment)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            log.close()


def ready(process: subprocess.Popen[bytes], home: Path) -> str:
    """Wait until the deployment `shapes` is ready; answer with the service's host and port."""
    tick = threading.Event()
    for _ in range(START_SECONDS * 2):
        assert process.poll() is None, (home / "up.log").read_text()
        written = home / ".walkgraph" / "service.json"
        if written.exists():
            address = re.search(r"127\.0\.0\.1:\d+", written.read_text())
            if address is not None and is_ready(address.group(), home):
                return address.group()
        tick.wait(0.5)
    raise AssertionError(f"not ready in {START_SECONDS} s\n{(home / 'up.log').read_text()}")


def is_ready(address: str, home: Path) -> bool:
    token = (home / ".walkgraph" / "token").read_text().strip()
    try:
        answer = httpx.get(
            f"http://{address}/api/v1/deployments/shapes", headers={"Authorization": f"Bearer {token}"}, timeout=10
        )
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json()["state"] == "ready"


def test_the_first_block_starts_everything(blocks: list[str]) -> None:
    assert blocks[0] == "bash\n./dev up\n"


def speaking(running: Running) -> None:
    """Deploy `orpheus` of the tiny models."""
    graph = json.loads(bundled("graphs")["orpheus"].read_text())
    graph["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
    graph["weights"]["snac"]["source"] = "random:snac-tiny:0"
    graph["tasks"]["speak"]["params"]["max_tokens"]["default"] = 140
    with Client.local(Settings(home=running.home / ".walkgraph")) as client:
        client.deploy(graph, None, "orpheus")
        states = (found["state"] for found in client.follow_deployment("orpheus"))
        assert next(state for state in states if state in ("ready", "failed")) == "ready"


def test_every_block_runs(running: Running, blocks: list[str], tmp_path: Path) -> None:
    speaking(running)
    printed = [running.block(text, tmp_path) for text in blocks[1:]]
    assert len(printed) == 10
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.size[0] >= 16
        assert len(picture.convert("RGB").getcolors(64 * 64) or ()) > 1
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert [value["type"] for value in answer["outputs"]["image"]] == ["image"]
    assert list(tmp_path.glob("image_*.png"))
    assert list(tmp_path.glob("preview_*.png"))
    assert printed[3].startswith("done ")
    assert "plan of `shapes`" in printed[5]
    acted(printed[1], printed[4], tmp_path)
    watched(printed[7:], tmp_path)
    with wave.open(str(tmp_path / "speech.wav")) as speech:
        frames, rest = divmod(speech.getnframes(), 2048)
        assert speech.getframerate() == 24_000
        assert 1 <= frames <= 140 // 7
        assert rest == 0


def acted(films: str, session: str, folder: Path) -> None:
    """Two films, and chunks of actions for what was seen, the last included."""
    assert "reached: yes" in films
    for name, most in (("reach", 1 + 24), ("world", 16)):
        with Image.open(folder / f"{name}.png") as film:
            assert 3 <= getattr(film, "n_frames", 1) <= most
    answered = re.findall(r"^what was seen at (\d+) asks for \[-?[\d.e-]+, -?[\d.e-]+\]$", session, re.MULTILINE)
    assert answered[-1] == "19"
    assert len(answered) == len(session.splitlines())


def watched(printed: list[str], folder: Path) -> None:
    """What the blocks about watching have shown and written."""
    traces, stopped, _ = printed
    assert "text_to_image on shapes: done" in traces
    assert "RANK" in traces
    assert "identical: " in traces
    assert json.loads((folder / "run.perfetto.json").read_text())["traceEvents"]
    assert json.loads((folder / "run.otlp.json").read_text())["resourceSpans"]
    held, why = stopped.splitlines()
    assert held == "held before vae_decoder"
    assert why.startswith("Of its ")
    metrics = (folder / "metrics.txt").read_text()
    for name in ("walkgraph_time_to_first_token_seconds_count", "walkgraph_kv_cache_usage_perc"):
        assert f'{name}{{deployment="shapes"' in metrics


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    nowhere = Running(tmp_path, "127.0.0.1:9", dict(os.environ))
    with pytest.raises(AssertionError, match="exit 3"):
        nowhere.block("bash\nexit 3\n", tmp_path)
