"""The code that README and documentation show, run against one service that was started as they say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.serving import Service
from walkgraph.client import Client
from walkgraph.resources import bundled
from walkgraph.settings import Settings

ADDRESS = "127.0.0.1:8421"
START_SECONDS = 600
MOST_SECONDS = 1800
"""Seconds after which a block or all pages are given up; some 100 on two idle cores."""
BIN = Path(sys.executable).parent
PAGES = Path(__file__).with_name("pages.py")
FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"\{code-block\} (\w+)")
CAPTION = re.compile(r":caption: (\S+)\n\n?")


@dataclass(frozen=True)
class Block:
    """Code of a page."""

    page: str
    line: int
    language: str
    """`bash`, `python`, `json`, or what else stands there."""
    code: str
    file: str | None = None
    """Its caption: the block is that file, for those after it."""


def blocks_of(page: str, text: str) -> list[Block]:
    """All blocks of a page, in their order."""
    found = []
    for match in FENCE.finditer(text):
        info, body, file = match["info"].strip(), match["body"], None
        if directive := DIRECTIVE.fullmatch(info):
            info = directive[1]
            if caption := CAPTION.match(body):
                file, body = caption[1], body[caption.end() :]
        found.append(Block(page, text[: match.start()].count("\n") + 1, info, body, file))
    return found


@dataclass(frozen=True)
class Running:
    """A service with a home folder of its own."""

    home: Path
    address: str
    environment: dict[str, str]

    def block(self, block: Block, folder: Path) -> str:
        """Run a block, bash or Python, in `folder`, or write its file there; answer with what it printed."""
        code = block.code.replace(ADDRESS, self.address).replace(".venv/bin/", f"{BIN}/")
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(code)
            return ""
        command = ["bash", "-euo", "pipefail", "-c", code]
        if block.language == "python":
            command = [sys.executable, "-c", code]
        answer = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
        where = f"{block.page}:{block.line}"
        if answer.returncode:
            raise AssertionError(f"{where}\n{code}\n{answer.stdout}\n{answer.stderr}")
        return answer.stdout

    def pages(self, pages: Mapping[str, Sequence[Block]], folder: Path) -> dict[str, list[str]]:
        """Run pages, each in a folder below `folder`, and answer with what their blocks printed."""
        told = [
            {
                "folder": str(folder / page.replace("/", "_")),
                "blocks": [
                    {
                        "where": f"{page}:{block.line}",
                        "language": block.language,
                        "code": block.code.replace(ADDRESS, self.address),
                        "file": block.file,
                    }
                    for block in blocks
                ],
            }
            for page, blocks in pages.items()
        ]
        folder.mkdir(parents=True, exist_ok=True)
        source, target = folder / "pages.json", folder / "printed.json"
        source.write_text(json.dumps(told))
        command = [sys.executable, PAGES, source, target]
        answer = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
        if answer.returncode:
            raise AssertionError(answer.stderr)
        printed = json.loads(target.read_text())
        return {page: [printed[f"{page}:{block.line}"] for block in blocks] for page, blocks in pages.items()}

    def service(self) -> Service:
        """As other tests know one: its home, and how to call it."""
        return Service(self.home / ".walkgraph", told={"url": f"http://{self.address}"})

    def deploy_speech(self) -> None:
        """`orpheus` and `qwen3_omni` of the tiny models."""
        graph = json.loads(bundled("graphs")["orpheus"].read_text())
        graph["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
        graph["weights"]["snac"]["source"] = "random:snac-tiny:0"
        graph["tasks"]["speak"]["params"]["max_tokens"]["default"] = 140
        with Client.local(Settings(home=self.home / ".walkgraph")) as client:
            client.deploy(graph, None, "orpheus")
            client.wait_ready("orpheus")
            client.deploy(self._omni(), None, "qwen3_omni")
            client.wait_ready("qwen3_omni")

    def _omni(self) -> dict[str, Any]:
        """`qwen3_omni` of the tiny models, with short answers."""
        graph: dict[str, Any] = json.loads(bundled("graphs")["qwen3_omni"].read_text())
        graph["weights"]["omni"]["source"] = "random:qwen3-omni-tiny:0"
        for task in graph["tasks"].values():
            for name, most in (("max_tokens", 4), ("max_frames", 6), ("context", 512)):
                if name in task["params"]:
                    task["params"][name]["default"] = most
        return graph


@contextmanager
def started(repository: Path, home: Path) -> Iterator[Running]:
    """`walkgraph up` in a home of its own, with `shapes`, `orpheus` and `qwen3_omni` ready."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("WALKGRAPH_")}
    environment = {
        **plain,
        "HOME": str(home),
        "WALKGRAPH_PORT": "0",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(repository / "examples" / "plugin"),
    }
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
        running = Running(home, ready(process, home), environment)
        running.deploy_speech()
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(300)
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
            f"http://{address}/api/v1/deployments/shapes", headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json()["state"] == "ready"
