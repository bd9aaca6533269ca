"""Clients who ask by sound and hear spoken answers: a script for `_clients.together`, which `omni.py` runs."""

import asyncio
import base64
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import numpy as np
import soundfile
from _heard import RATE, WAV_HEAD, Heard

SECONDS, QUESTION_RATE = 3.0, 16_000
"""Seconds of sound in a question, and its samples a second."""
DATA, EVENT = b"data: ", b"event: "


@dataclass
class Answer(Heard):
    tokens: list[float] = field(default_factory=list[float])
    times: Sequence[Mapping[str, Any]] = ()
    """Times of its nodes, by the workers."""
    read: int = 0
    """Tokens of the question."""
    run: str = ""

    def take(self, name: bytes, text: bytes, at: float) -> None:
        data = json.loads(text)
        if name == b"error":
            raise RuntimeError(f"a request failed: {text.decode(errors='replace')}")
        if name == b"output" and data["name"] == "token":
            self.tokens.append(at)
        if name == b"output" and data["name"] == "audio":
            samples = (len(base64.b64decode(data["value"]["data"])) - WAV_HEAD) // 2
            if samples > 0:
                self.at.append(at)
                self.audio.append(samples / RATE)
        if name == b"done":
            self.seconds, self.times, self.read, self.run = at, data["times"], data["usage"]["read"], data["run"]


class Speakers:
    """Clients of one process: a connection each, made before the clock runs."""

    def __init__(self, orders: Mapping[str, Any]) -> None:
        self._orders = orders
        self._headers = {"Authorization": f"Bearer {orders['token']}"}
        self._bodies = [[body_of(number, orders["params"]) for number in mine] for mine in orders["numbers"]]
        """The requests of each client."""

    async def all(self) -> dict[str, Any]:
        """Raises what a request raised, and TimeoutError."""
        answers: list[Answer] = []
        loop, begin = asyncio.get_running_loop(), asyncio.Event()
        connected = asyncio.Barrier(len(self._bodies) + 1)

        async def one(mine: Sequence[bytes]) -> None:
            async with httpx.AsyncClient(
                base_url=self._orders["url"], headers=self._headers, timeout=self._orders["limit"], trust_env=False
            ) as client:
                (await client.get("/health/live")).raise_for_status()
                await connected.wait()
                await begin.wait()
                for body in mine:
                    answers.append(await self._asked(client, body))

        async with asyncio.timeout(self._orders["limit"]), asyncio.TaskGroup() as group:
            for mine in self._bodies:
                group.create_task(one(mine))
            await connected.wait()
            print("ready", flush=True)
            await loop.run_in_executor(None, sys.stdin.readline)
            began = time.monotonic()
            begin.set()
        return {"began": began, "ended": time.monotonic(), "answers": [asdict(one) for one in answers]}

    async def _asked(self, client: httpx.AsyncClient, body: bytes) -> Answer:
        found, rest, name = Answer(), b"", b""
        began = time.perf_counter()
        headers = {"content-type": "application/json"}
        async with client.stream("POST", self._orders["path"], content=body, headers=headers) as answer:
            if answer.status_code != httpx.codes.OK:
                raise RuntimeError(f"{answer.status_code}: {(await answer.aread()).decode(errors='replace')}")
            async for piece in answer.aiter_bytes():
                at = time.perf_counter() - began
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(EVENT):
                        name = line.removeprefix(EVENT).rstrip()
                    elif line.startswith(DATA):
                        found.take(name, line.removeprefix(DATA), at)
        if not found.at or not found.tokens:
            raise RuntimeError(f"a request gave {len(found.tokens)} tokens and {len(found.at)} pieces of sound")
        return found


def body_of(number: int, params: Mapping[str, Any]) -> bytes:
    audio = {"type": "audio", "data": base64.b64encode(sound(number)).decode()}
    inputs = {"audio": [audio]}
    return json.dumps({"inputs": inputs, "params": {**params, "seed": number}, "stream": True}).encode()


def sound(number: int) -> bytes:
    """WAV of a tone in noise, unlike that of any other number."""
    dice, at = np.random.default_rng(number), np.arange(int(SECONDS * QUESTION_RATE)) / QUESTION_RATE
    wave = 0.3 * np.sin(2 * np.pi * (200 + number % 400) * at) + 0.05 * dice.standard_normal(len(at))
    file = io.BytesIO()
    soundfile.write(file, wave.astype(np.float32), QUESTION_RATE, "PCM_16", format="WAV")
    return file.getvalue()


def main() -> None:
    try:
        found = asyncio.run(Speakers(json.loads(sys.stdin.readline())).all())
    except* Exception as errors:  # noqa: BLE001  the parent tells what failed
        found = {"failed": [repr(one) for one in errors.exceptions]}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
