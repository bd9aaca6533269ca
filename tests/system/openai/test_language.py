"""A language model with the official client: conversations by every surface."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.serving import Service
from walkgraph.client.errors import ProblemError, RunError

TURNS: list[Any] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "what is the time?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "noon"},
]
PROMPT = (
    "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nwhat is the time?<|im_end|>\n"
    '<|im_start|>assistant\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\nnoon\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)
HOW: dict[str, Any] = {"model": "llm", "seed": 3, "temperature": 1.0, "max_tokens": 12}


def test_every_surface_gives_the_same_answer(client: openai.OpenAI, running: Service) -> None:
    whole = client.chat.completions.create(messages=TURNS, **HOW)
    chunks = list(client.chat.completions.create(messages=TURNS, stream=True, **HOW))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    with running.client() as native:
        chat = native.task("llm", "chat")
        assert chat(messages=TURNS, seed=3, temperature=1.0, max_tokens=12).text() == text
        assert chat(messages=TURNS[:2], seed=3, temperature=1.0, max_tokens=12).text() != text


def test_usage_counts_the_prompt_and_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=TURNS, **HOW)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT.encode()), "random weights read bytes"
    assert answer.usage.completion_tokens <= 12
    stopped = answer.usage.completion_tokens < 12
    assert answer.choices[0].finish_reason == ("stop" if stopped else "length")


@pytest.mark.parametrize("most", [1, 2])
def test_a_limit_is_a_length(client: openai.OpenAI, most: int) -> None:
    answer = client.chat.completions.create(messages=TURNS, **{**HOW, "max_tokens": most})
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (most, "length")


def test_a_part_that_is_no_text_is_refused(client: openai.OpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(messages=[{"role": "user", "content": [image]}], **HOW)


def test_log_probabilities_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"messages": TURNS[:2], "logprobs": True, "top_logprobs": 3, **HOW}
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].logprobs is not None
    content = whole.choices[0].logprobs.content or []
    assert whole.usage is not None
    assert len(content) in (whole.usage.completion_tokens, whole.usage.completion_tokens - 1), "the end has none"
    text = whole.choices[0].message.content or ""
    assert b"".join(bytes(one.bytes or []) for one in content).decode(errors="replace").startswith(text)
    for one in content:
        likeliest = [top.logprob for top in one.top_logprobs]
        assert len(likeliest) == 3
        assert likeliest == sorted(likeliest, reverse=True)
        assert one.logprob <= likeliest[0] <= 0
    chunks = list(client.chat.completions.create(stream=True, **asked))
    told = [c.logprobs.content or [] for chunk in chunks for c in chunk.choices if c.logprobs is not None]
    assert [one.token for entries in told for one in entries] == [one.token for one in content]


def test_a_bias_decides_and_a_stop_cuts(client: openai.OpenAI, running: Service) -> None:
    biased = client.chat.completions.create(messages=TURNS[:2], logit_bias={"120": 100}, **HOW)
    assert biased.choices[0].message.content == "x" * 12
    stopped = client.chat.completions.create(messages=TURNS[:2], logit_bias={"120": 100}, stop="xxx", **HOW)
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("", "stop")
    with running.client() as native:
        complete = native.task("llm", "complete")
        bias = [[120.0, 100.0]]
        answer = complete(prompt="a", logit_bias=bias, max_tokens=12, stop=["zz", "xxxxx"], logprobs=True)
        assert answer.text("text") == ""
        assert len(answer.text("logprobs").splitlines()) == 5
        with pytest.raises(RunError, match="tokens from 0 to 263"):
            complete(prompt="a", logit_bias=[[264.0, 1.0]])


def test_tools_are_part_of_the_prompt(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    plain = client.chat.completions.create(messages=TURNS[:2], **HOW)
    told = client.chat.completions.create(messages=TURNS[:2], tools=tools, extra_body={"max_prompt": 1024}, **HOW)
    assert plain.usage is not None
    assert told.usage is not None
    assert told.usage.prompt_tokens > plain.usage.prompt_tokens + 100
    asked: dict[str, Any] = {"messages": TURNS[:2], "tools": tools, "extra_body": {"max_prompt": 1024}, **HOW}
    # Random weights write no call, which the answer says, whole and streamed.
    with pytest.raises(openai.BadRequestError, match="cut at `max_tokens`") as found:
        client.chat.completions.create(**asked, tool_choice="required")
    assert found.value.code == "no_call"
    look: Any = {"type": "function", "function": {"name": "look"}}
    with pytest.raises(openai.APIError, match="wrote none that can be used"):
        list(client.chat.completions.create(**asked, tool_choice=look, stream=True))
    assert client.chat.completions.create(**asked, tool_choice="auto").choices[0].finish_reason == "length"


def test_a_native_request_may_ask_for_a_call_too(running: Service) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    with running.client() as native:
        chat = native.task("llm", "chat")
        turns = {"turns": TURNS[:2], "tools": tools}
        read = [
            chat(messages=given, max_tokens=4, max_prompt=1024, seed=1).usage["read"]
            for given in (turns, {**turns, "call": True}, {**turns, "call": "look"})
        ]
        assert read == sorted(set(read))
        with pytest.raises(ProblemError, match="one of `tools`"):
            chat(messages={**turns, "call": "go"}, max_tokens=4)
