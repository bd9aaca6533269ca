"""Conversations that are sent whole each time: every surface says how much of them was found."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from typing import Any

import openai
import pytest
from PIL import Image

from tests.support.serving import Service

TURNS = 20


def picture() -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


@pytest.mark.parametrize(
    ("model", "first", "behind", "extra"),
    [
        # The end of a page, what the template writes between turns, and the question.
        ("llm/chat", "hello there", 120, {"max_prompt": 4096}),
        ("shapes/chat", [picture(), {"type": "text", "text": "what is this?"}], 40, {}),
    ],
)
def test_a_history_is_found(client: openai.OpenAI, model: str, first: Any, behind: int, extra: dict[str, Any]) -> None:
    messages: list[Any] = [{"role": "user", "content": first}]
    figures: list[tuple[int, int]] = []
    how: dict[str, Any] = {"model": model, "max_tokens": 6, "temperature": 0, "extra_body": extra}
    for turn in range(TURNS):
        answer = client.chat.completions.create(messages=messages, **how)
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        figures.append((usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0))
        messages.append({"role": "assistant", "content": answer.choices[0].message.content or "so"})
        messages.append({"role": "user", "content": f"and {turn}?"})
    for (before, _), (read, found) in pairwise(figures):
        assert before // 16 * 16 <= found <= read
        assert read - found < behind


def test_a_task_says_what_was_found(running: Service) -> None:
    text = "a question that nobody has asked before, of more than a page"
    body = {"inputs": {"messages": [{"role": "user", "content": text}]}, "params": {"max_tokens": 2}}
    with running.client() as native:
        first, again = (native.run("llm", "chat", body)["usage"] for _ in range(2))
        assert first["read"] == again["read"] > 80
        assert again["cached_tokens"] == (again["read"] - 1) // 16 * 16 > first["cached_tokens"]
