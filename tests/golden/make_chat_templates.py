"""Renders seeded random conversations with published chat templates, and writes what they give.

    python -m tests.golden.make_chat_templates FOLDER

FOLDER holds the templates as `NAME.jinja`, by the names of `known_templates`; they are not part of this repository.
Rendered as `transformers` does: jinja2 with trimmed blocks, `tojson` without HTML escapes.
"""

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from walkgraph.checkpoints.known_templates import TEMPLATES, digest

GOLDEN = Path(__file__).with_name("chat_templates.json")
COUNT = 500
"""Conversations of each template."""
SHOWN = 3
"""Prompts that the golden holds whole; of the others it has a digest."""
BOS = {"llama3": "<|begin_of_text|>", "mistral-v3": "<s>"}
EOS = {"mistral-v3": "</s>"}
_WORDS = (
    "hello", "Why?", " two  spaces ", "\n\nlines\n", "漢字 🎈", "é", "<think>\nhm\n</think>\n\nso", "{\"a\": 1}",
    "a\tb", "", "</think>", "<tool_response>x</tool_response>", "quote \" and \\ back", "1,000.5", "<b>&amp;</b>", "\n",
)  # fmt: skip


def conversation(name: str, seed: int) -> list[dict[str, Any]]:
    """A conversation in OpenAI's form that the template takes."""
    chance = random.Random(f"{name} {seed}")
    turns: list[dict[str, Any]] = []
    if chance.random() < 0.5:
        turns.append({"role": "system", "content": _text(chance)})
    for _ in range(chance.randint(1, 5)):
        turns.append({"role": "user", "content": _text(chance)})
        if name == "chatml" or chance.random() < 0.6:
            turns.append({"role": "assistant", "content": _text(chance)})
            continue
        turns += _with_tools(name, chance)
        turns.append({"role": "assistant", "content": _text(chance)})
    if chance.random() < 0.7 and turns[-1]["role"] == "assistant":
        turns.append({"role": "user", "content": _text(chance)})
    return turns


def _with_tools(name: str, chance: random.Random) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 2)):
        calls = [_call(chance) for _ in range(1 if name == "llama3" else chance.randint(1, 3))]
        found.append({"role": "assistant", "content": _text(chance), "tool_calls": calls})
        found += [{"role": "tool", "tool_call_id": call["id"], "content": _text(chance)} for call in calls]
    return found


def _call(chance: random.Random) -> dict[str, Any]:
    arguments = {chance.choice("abc"): chance.choice([1, 2.5, None, True, 'x " y', ["é", {}], {"k": "v"}])}
    function = {"name": chance.choice(["look", "find_it"]), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"{chance.randrange(10**9):09d}", "type": "function", "function": function}


def tools(name: str, seed: int) -> list[dict[str, Any]]:
    """Functions that the answer may call."""
    chance = random.Random(f"tools {name} {seed}")
    return [_tool(chance) for _ in range(chance.randint(1, 3))]


def _tool(chance: random.Random) -> dict[str, Any]:
    kinds = {chance.choice("abc"): {"type": chance.choice(["string", "number"]), "description": _text(chance)}}
    parameters: dict[str, Any] = {"type": "object", "properties": kinds, "required": [*kinds]}
    function = {"name": chance.choice(["look", "find_it"]), "description": _text(chance), "parameters": parameters}
    return {"type": "function", "function": function}


def thinks(seed: int) -> bool:
    """True if the request asks for thinking."""
    return seed % 2 == 0


def _text(chance: random.Random) -> str:
    return "".join(chance.choice(_WORDS) for _ in range(chance.randint(0, 3)))


def brief(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


def _rendered(template: Any, name: str, turns: list[dict[str, Any]], thinking: bool, **more: Any) -> str:
    given = turns
    if name in ("llama3", "mistral-v3"):  # these templates take arguments as objects
        given = json.loads(json.dumps(turns))
        for call in (call for turn in given for call in turn.get("tool_calls", ())):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return template.render(
        messages=given,
        add_generation_prompt=True,
        enable_thinking=thinking,
        bos_token=BOS.get(name, ""),
        eos_token=EOS.get(name, ""),
        **more,
    )


def _refused(message: str) -> None:
    raise ValueError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def main(folder: Path) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    jinja.filters["tojson"] = _tojson
    jinja.globals["raise_exception"] = _refused
    found: dict[str, Any] = {}
    for name in TEMPLATES:
        text = (folder / f"{name}.jinja").read_text()
        template = jinja.from_string(text)
        prompts = [_rendered(template, name, conversation(name, i), thinks(i)) for i in range(COUNT)]
        shown = prompts[:SHOWN]
        told = [_rendered(template, name, conversation(name, i), thinks(i), tools=tools(name, i)) for i in range(COUNT)]
        with_tools = {"tools": "".join(map(brief, told))} if TEMPLATES[name].tools else {}
        found[name] = {"digest": digest(text), "shown": shown, "prompts": "".join(map(brief, prompts)), **with_tools}
        print(name, digest(text))
    GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
