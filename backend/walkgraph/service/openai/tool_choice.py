"""Reads which functions an answer may call, and whether it must, from OpenAI's `tools`, `tool_choice` and
`parallel_tool_calls`. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from walkgraph.errors import ErrorInfo, RunFailed
from walkgraph.graph.reading.fitting import problems
from walkgraph.service.openai.serving import Serving, unsupported

FIELDS = ("tools", "tool_choice", "parallel_tool_calls")
_MOST_FAULTS = 3


@dataclass(frozen=True)
class Tools:
    given: Any
    """As the client sent them; faults are left to the task."""
    schemas: Mapping[str, Any]
    """Function -> JSON Schema of its arguments."""
    call: str | None = None
    """The function that the answer must call; empty for any, None for an answer that may do without."""
    single: bool = False
    """Only the first call counts."""

    def judge(self, name: str, arguments: str) -> None:
        """Raises RunFailed if a call that must come has arguments that don't fit its function."""
        if self.call is None:
            return
        schema = self.schemas[name]
        rules = {"type": "object", **cast(dict[str, Any], schema)} if isinstance(schema, dict) else {}
        faults = "; ".join(islice(problems(json.loads(arguments), rules), _MOST_FAULTS))
        if faults:
            raise lacking(f"its arguments don't fit `{name}`: {faults}")


def lacking(why: str) -> RunFailed:
    """The error of an answer without the call that it must make."""
    message = f"`tool_choice` asks for a call, and the model wrote none that can be used: {why}; ask again or otherwise"
    return RunFailed(ErrorInfo(code="no_call", message=message))


def tools_of(extra: Mapping[str, Any], serving: Serving) -> Tools | None:
    """None if the request has no tools, wants none called, or its task can't have any: fields that are in vain are
    refused elsewhere. Raises Unprocessable for a choice that can't be kept."""
    given: Any = extra.get("tools")
    choice: Any = extra.get("tool_choice")
    if not given or serving.calls is None or serving.conversation is None or choice == "none":
        return None
    schemas = _schemas(given)
    parallel: Any = extra.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise unsupported("/parallel_tool_calls", "invalid_value", "`parallel_tool_calls` is true or false")
    return Tools(given, schemas, _call(choice, schemas, serving), single=parallel is False)


def _call(choice: Any, schemas: Mapping[str, Any], serving: Serving) -> str | None:
    if choice in (None, "auto"):
        return None
    if serving.template is None or not serving.template.opening:
        message = "the model's chat template begins no calls; send `auto` or `none`"
        raise unsupported("/tool_choice", "unsupported_value", message)
    if choice == "required":
        return next(iter(schemas)) if len(schemas) == 1 else ""
    fields = cast(dict[str, Any], choice) if isinstance(choice, dict) else {}
    function: Any = fields.get("function")
    name: Any = cast(dict[str, Any], function).get("name") if isinstance(function, dict) else None
    if fields.get("type") != "function" or not isinstance(name, str):
        known = '`{"type": "function", "function": {"name": "..."}}`'
        message = f"`tool_choice` is `none`, `auto`, `required` or {known}"
        raise unsupported("/tool_choice", "unsupported_value", message)
    if name not in schemas:
        have = ", ".join(f"`{one}`" for one in schemas) or "none"
        message = f"`tools` has no function `{name[:80]}`; there are {have}"
        raise unsupported("/tool_choice/function/name", "invalid_value", message)
    return name


def _schemas(tools: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in cast(list[Any], tools) if isinstance(tools, list) else ():
        function = cast(dict[str, Any], tool).get("function") if isinstance(tool, dict) else None
        fields = cast(dict[str, Any], function) if isinstance(function, dict) else {}
        name = fields.get("name")
        if isinstance(name, str):
            found[name] = fields.get("parameters")
    return found
