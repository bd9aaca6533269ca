"""Measures conversations that are sent whole with each question, as chat clients do: the time until the first token at
turn 2 and at turn 20, by what was found of the turns before.

    python benchmarks/turns.py [--models llm shapes] [--conversations 3] [--pairs 7] [--turns 20]
        [--source random:qwen3-tiny:0] [--out FILE] [--check]

The script starts a service with the plain command in its own home. It asks the task `chat` of the graph `llm`, with
random weights, and that of the starter, whose first question has a picture, over OpenAI's streaming route. Times are
measured by the client, in milliseconds from just before it sends the request until the first text.

    found        tokens of the prompt that were found
    ratio        first token over that at turn 2 of the short conversation beside it: the median of all pairs
    anew         the last turn of a history whose first words nobody has sent before

The last question is asked in several ways, each just after another conversation has come to its turn 2, so that
whatever else the machine does falls on both. `--check`: three turns of one conversation, without a results file.
"""

import argparse
import base64
import io
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from _common import ROOT, Row, show, write
from _runtime import device_name
from _service import deployed, home, service
from PIL import Image

from walkgraph.resources import bundled

RESULTS = ROOT / "benchmarks" / "results" / "turns.json"
ANSWER = 12
"""The most tokens of an answer."""


class Model(NamedTuple):
    name: str
    question: str
    picture: bool
    """The first question shows one."""


MODELS = {
    "llm": Model("llm/chat", "and what about number {}, the one that was mentioned a moment ago?", picture=False),
    "shapes": Model("shapes/chat", "and {}?", picture=True),
}


class Told(NamedTuple):
    seconds: float
    text: str
    read: int
    found: int


def main() -> None:
    given = options()
    device, rows = device_name(), list[Row]()
    turns, conversations, pairs = (3, 1, 1) if given.check else (given.turns, given.conversations, given.pairs)
    with home() as folder, service(folder, starter="shapes" in given.models) as server:
        if "llm" in given.models:
            deployed(server.client, language_model(given.source), None if device == "cpu" else "llm_one_gpu", "llm")
        headers = {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
        with httpx.Client(base_url=server.client.url, headers=headers, timeout=600, trust_env=False) as http:
            for name in given.models:
                rows += measured(http, MODELS[name], turns, conversations, pairs)
                show(f"first token on {device}", rows)
    write(None if given.check else given.out, device, {"turns": turns, "cases": rows})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    arguments.add_argument("--conversations", type=int, default=3)
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--turns", type=int, default=20)
    arguments.add_argument("--source", default="random:qwen3-tiny:0")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run three turns and write nothing")
    return arguments.parse_args()


def language_model(source: str) -> dict[str, Any]:
    graph = json.loads(bundled("graphs")["llm"].read_text())
    graph["weights"]["llm"]["source"] = source
    return graph


def measured(http: httpx.Client, model: Model, turns: int, conversations: int, pairs: int) -> list[Row]:
    cases: dict[tuple[str, int], list[Told]] = {}
    for number in range(conversations + 1):
        for case, told in conversed(http, model, 100 * number, turns, pairs).items():
            cases.setdefault(case, []).extend(told if number else ())  # the first meets what is made once
    second = cases["short", 2]
    rows: list[Row] = []
    for (case, turn), found in cases.items():
        row: dict[str, Any] = {
            "model": model.name,
            "case": case,
            "turn": turn,
            "read": round(statistics.mean(one.read for one in found)),
            "found": round(statistics.mean(one.found for one in found)),
            "first token ms": 1e3 * statistics.median(one.seconds for one in found),
        }
        if len(found) == len(second):
            row["ratio"] = statistics.median(a.seconds / b.seconds for a, b in zip(found, second, strict=True))
        rows += [row] if turn in (1, 2, turns) or turn % 5 == 0 else []
    return rows


def conversed(
    http: httpx.Client, model: Model, number: int, turns: int, pairs: int
) -> dict[tuple[str, int], list[Told]]:
    """One conversation, and a short one beside each of its last questions."""
    history, told = History(model, number), defaultdict[tuple[str, int], list[Told]](list)
    for turn in range(1, turns):
        told["long", turn].append(history.ask(http, turn))
    for pair in range(pairs):
        short, last = History(model, number + pair + 1), history.copy()
        for turn in (1, 2):
            told["short", turn].append(short.ask(http, turn))
        told["long", turns].append(last.ask(http, turns + pair))
        told["anew", turns].append(last.asked_anew(http, number + pair))
    return told


class History:
    """One conversation."""

    def __init__(self, model: Model, number: int) -> None:
        self._model, self._number = model, number
        self._messages: list[dict[str, Any]] = []

    def ask(self, http: httpx.Client, turn: int) -> Told:
        text = self._model.question.format(turn)
        content: Any = f"({self._number}) {text}" if turn == 1 else text
        if self._model.picture and turn == 1:
            content = [_picture(self._number), {"type": "text", "text": content}]
        self._messages.append({"role": "user", "content": content})
        told = self._told(http, self._messages)
        self._messages.append({"role": "assistant", "content": told.text or "so"})
        return told

    def copy(self) -> "History":
        made = History(self._model, self._number)
        made._messages = [*self._messages]
        return made

    def asked_anew(self, http: httpx.Client, number: int) -> Told:
        """The same history, up to the last question, behind words or a picture that nobody has sent."""
        first = self._messages[0]["content"]
        content = [_picture(number + 50), *first[1:]] if isinstance(first, list) else f"{number} again {first}"
        return self._told(http, [{"role": "user", "content": content}, *self._messages[1:-1]])

    def _told(self, http: httpx.Client, messages: Sequence[Mapping[str, Any]]) -> Told:
        body = {
            "model": self._model.name,
            "messages": messages,
            "max_tokens": ANSWER,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began, first, text, usage = time.perf_counter(), 0.0, "", dict[str, Any]()
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.is_error:
                answer.read()
                raise RuntimeError(answer.text)
            for line in answer.iter_lines():
                data = line.removeprefix("data: ")
                if not line.startswith("data: ") or data == "[DONE]":
                    continue
                event = json.loads(data)
                usage = event.get("usage") or usage
                said = "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))
                if said and not first:
                    first = time.perf_counter() - began
                text += said
        seconds = first or time.perf_counter() - began
        return Told(seconds, text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def _picture(number: int) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), (number * 37 % 256, number * 91 % 256, number // 256)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


if __name__ == "__main__":
    main()
