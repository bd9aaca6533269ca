"""The chat templates that are known by name, and the published ones that they stand for.

A folder's own template (`chat_template` in `tokenizer_config.json`, or `chat_template.jinja`) is a program. It is
never run: it is recognised by its digest, and a template here renders the same prompts.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from walkgraph.checkpoints.chat_template import Calls, ChatTemplate, Field, Form, Thinking, When
from walkgraph.checkpoints.fields import read_file
from walkgraph.errors import InvalidInput
from walkgraph.graph.reading.guard import arr, obj

PUBLISHED = "published"
"""As a name: the one of the weights' folder."""


def _when(*text: str | Field | When, **conditions: Any) -> When:
    return When(text, **{name: frozenset(names) for name, names in conditions.items()})


# ── ChatML: Qwen ────────────────────────────────────────────────────────────────────────────────

_SAID: Form = ("<|im_start|>", Field("role"), "\n", Field("content"), "<|im_end|>\n")
_HERMES_CALLS = Calls(
    each=(
        _when("\n", any=("content",), all=("first_call",)),
        _when("\n", none=("first_call",)),
        '<tool_call>\n{"name": "',
        Field("name"),
        '", "arguments": ',
        Field("arguments"),
        "}\n</tool_call>",
    ),
    keep_arguments=True,
)
_TOOL: Form = (
    _when("<|im_start|>user", all=("run_begins",)),
    "\n<tool_response>\n",
    Field("content"),
    "\n</tool_response>",
    _when("<|im_end|>\n", all=("run_ends",)),
)
_SPECIAL = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_CALLED = _when(Field("calls"), all=("calls",))

_HERMES_TOOLS: Form = (
    "<|im_start|>system\n",
    _when(Field("system"), "\n\n", all=("system",)),
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    Field("tools"),
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call><|im_end|>\n",
)

CHATML = ChatTemplate(
    name="chatml",
    special=_SPECIAL,
    begin=(
        _when(*_HERMES_TOOLS, all=("tools",)),
        _when("<|im_start|>system\n", Field("system"), "<|im_end|>\n", all=("system",), none=("tools",)),
    ),
    system_apart=True,
    tools=("\n", Field("definition")),
    called="tagged",
    roles={
        "system": _SAID,
        "user": _SAID,
        "assistant": ("<|im_start|>assistant\n", Field("content"), _CALLED, "<|im_end|>\n"),
        "tool": _TOOL,
    },
    answer=("<|im_start|>assistant\n",),
    calls=_HERMES_CALLS,
    # Without a space at the end, which is part of the next token.
    opening=(
        '<tool_call>\n{"name": ',
        _when('"', none=("named",)),
        _when(Field("function", "json"), ', "arguments":', all=("named",)),
    ),
)
QWEN3 = replace(
    CHATML,
    name="qwen3",
    special=(*_SPECIAL, "<think>", "</think>"),
    roles={
        **CHATML.roles,
        "assistant": (
            "<|im_start|>assistant\n",
            # Reasoning is kept only after the last question.
            _when(
                "<think>\n",
                Field("reasoning", "strip_lines"),
                "\n</think>\n\n",
                Field("content", "lstrip_lines"),
                all=("after_query",),
                any=("last", "reasoning"),
            ),
            _when(Field("content"), none=("after_query",)),
            _when(Field("content"), all=("after_query",), none=("last", "reasoning")),
            _CALLED,
            "<|im_end|>\n",
        ),
    },
    # A call that must come is made without thinking.
    answer=(
        "<|im_start|>assistant\n",
        _when("<think>\n\n</think>\n\n", none=("thinking",)),
        _when("<think>\n\n</think>\n\n", all=("thinking", "call")),
    ),
    thinking=Thinking("<think>", "</think>", ("<tool_response>", "</tool_response>")),
)
QWEN3_THINKING = replace(
    QWEN3, name="qwen3-thinking", answer=("<|im_start|>assistant\n<think>\n", _when("\n</think>\n\n", all=("call",)))
)

# ── Llama 3.1 to 3.3 ────────────────────────────────────────────────────────────────────────────

_LLAMA_SAID: Form = (
    "<|start_header_id|>",
    Field("role"),
    "<|end_header_id|>\n\n",
    Field("content", "strip"),
    "<|eot_id|>",
)
_LLAMA_TOOLS: Form = (
    "<|start_header_id|>user<|end_header_id|>\n\nGiven the following functions, please respond with a JSON for a "
    "function call with its proper arguments that best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n",
    Field("tools"),
    Field("content", "strip"),
    "<|eot_id|>",
)
LLAMA3 = ChatTemplate(
    name="llama3",
    special=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    begin=(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n",
        _when("Environment: ipython\n", all=("tools",)),
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
        Field("system", "strip"),
        "<|eot_id|>",
    ),
    system_apart=True,
    roles={
        "system": _LLAMA_SAID,
        "user": (
            _when(*_LLAMA_TOOLS, all=("first", "tools")),
            _when(*_LLAMA_SAID, none=("first",)),
            _when(*_LLAMA_SAID, all=("first",), none=("tools",)),
        ),
        "assistant": (
            _when(*_LLAMA_SAID, none=("calls",)),
            _when("<|start_header_id|>assistant<|end_header_id|>\n\n", Field("calls"), "<|eot_id|>", all=("calls",)),
        ),
        "tool": ("<|start_header_id|>ipython<|end_header_id|>\n\n", Field("content", "json"), "<|eot_id|>"),
    },
    answer=("<|start_header_id|>assistant<|end_header_id|>\n\n",),
    calls=Calls(each=('{"name": "', Field("name"), '", "parameters": ', Field("arguments"), "}"), most=1),
    tools=(Field("definition", "indented"), "\n\n"),
    called="whole",
    opening=(
        '{"name": ',
        _when('"', none=("named",)),
        _when(Field("function", "json"), ', "parameters":', all=("named",)),
    ),
)

# ── Mistral, third version ──────────────────────────────────────────────────────────────────────

MISTRAL_V3 = ChatTemplate(
    name="mistral-v3",
    special=("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    begin=("<s>",),
    system_apart=True,
    alternate=True,
    roles={
        "user": ("[INST] ", _when(Field("system"), "\n\n", all=("system", "last")), Field("content"), "[/INST]"),
        "assistant": (
            _when(" ", Field("content", "strip"), "</s>", none=("calls",)),
            _when("[TOOL_CALLS] [", Field("calls"), "]</s>", all=("calls",)),
        ),
        "tool": (
            '[TOOL_RESULTS] {"content": ',
            Field("content"),
            ', "call_id": "',
            Field("id"),
            '"}[/TOOL_RESULTS]',
        ),
    },
    answer=(),
    calls=Calls(
        each=(
            '{"name": ',
            Field("name", "json"),
            ', "arguments": ',
            Field("arguments"),
            ', "id": "',
            Field("id"),
            '"}',
        ),
        between=", ",
        id_length=9,
    ),
)

TEMPLATES: Mapping[str, ChatTemplate] = {
    template.name: template for template in (CHATML, QWEN3, QWEN3_THINKING, LLAMA3, MISTRAL_V3)
}

# ── published templates ─────────────────────────────────────────────────────────────────────────

DIGESTS: Mapping[str, str] = {
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": "qwen3",
    "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7": "llama3",
    # Llama 3.2's differs in its date alone, which is the day's where the program is given a clock.
    "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f": "llama3",
    "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd": "mistral-v3",
}
"""SHA-256 of a published template, without white space around it -> the name here."""
_MOST_BYTES = 1024 * 1024


def template_of(folder: Path | None, name: str) -> ChatTemplate:
    """The template of this name. `published`: that of the folder, or ChatML for random weights, which have none.

    Raises InvalidInput for a folder whose template is missing or not known here.
    """
    if name != PUBLISHED:
        return TEMPLATES[name]
    if folder is None:
        return CHATML
    known = ", ".join(f"`{one}`" for one in TEMPLATES)
    advice = f"name the one that the model was trained with in `template`: {known}"
    text = published(folder)
    if text is None:
        raise InvalidInput(f"`{folder.name}` has no chat template; {advice}")
    found = DIGESTS.get(digest(text))
    if found is None:
        raise InvalidInput(f"the chat template of `{folder.name}` is not known here; {advice}")
    return TEMPLATES[found]


def published(folder: Path) -> str | None:
    """The text of a folder's own template; None if it has none. Raises InvalidInput for an unreadable file."""
    whole, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    path = whole if whole.is_file() else config
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES * 16:
            return None
        text = read_file(path, _MOST_BYTES * 16).decode()
        found: Any = text if path == whole else json.loads(text).get("chat_template")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"`{path.name}` is not readable; export it again") from error
    if isinstance(found, list):  # several templates by name
        listed = [obj(one) for one in arr(found)]
        found = next((one.get("template") for one in listed if one.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode(errors="replace")).hexdigest()
