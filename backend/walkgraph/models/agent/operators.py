"""Operators of agents' conversations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.graph.conversation import Conversation, ToolCall, Turn, TurnPart
from walkgraph.models.agent.components import BAD_CALL, NO_CALL
from walkgraph.models.agent.conversing import bounded, conversation, read_tools, text_of, text_part, tools_of
from walkgraph.models.agent.tool_calls import read_answer


class Instruct(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"messages": bounded(call, self._begun(call))} for call in calls]

    def _begun(self, call: Call) -> Conversation:
        found, system = conversation(call), str(call.params["system"])
        said = call.text("text") if call.inputs.get("text") is not None else ""
        first = (Turn("system", text_part(system)),) if system else ()
        last = (Turn("user", text_part(said)),) if said else ()
        return replace(found, turns=(*first, *found.turns, *last), tools=(*found.tools, *read_tools(call)))


class ReadCalls(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._read(call) for call in calls]

    def _read(self, call: Call) -> Outputs:
        found = conversation(call)
        read = read_answer(call.text("text"), tools_of(found))
        number = sum(len(turn.tool_calls) for turn in found.turns)
        made = (ToolCall(f"call_{number}", read.name, read.arguments),) if read.name else ()
        turn = Turn("assistant", text_part(read.text), made)
        return {
            "messages": bounded(call, replace(found, turns=(*found.turns, turn), call=None)),
            "name": read.name or (BAD_CALL if read.problem else NO_CALL),
            "arguments": read.arguments or "{}",
            "text": read.text,
            "problem": read.problem,
            "done": not read.name and not read.problem,
        }


class Append(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"messages": bounded(call, self._longer(call))} for call in calls]

    def _longer(self, call: Call) -> Conversation:
        found, role = conversation(call), call.params["role"]
        parts = text_part(call.text("text")) if call.inputs.get("text") is not None else ()
        if (image := call.inputs.get("image")) is not None:
            parts = (*parts, TurnPart("image", image))
        if not parts:
            return found
        match role:
            case "system" | "user" | "assistant":
                turn = Turn(role, parts)
            case _:
                turn = Turn("tool", parts, tool_call_id=_open_call(call, found))
        return replace(found, turns=(*found.turns, turn))


class LatestPicture(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"image": self._picture(call)} for call in calls]

    def _picture(self, call: Call) -> bytes:
        for turn in reversed(conversation(call).turns):
            for part in reversed(turn.parts):
                if part.modality == "image":
                    return part.value
        raise CallFailed(f"`{call.node}`: the conversation has no picture yet", "messages", code="invalid_input")


class Script(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._line(call)} for call in calls]

    def _line(self, call: Call) -> str:
        turns = conversation(call).turns
        lines = [line for line in str(call.params["lines"]).split("\n") if line.strip()]
        if not lines:
            raise CallFailed(f"the parameter `lines` of `{call.node}` has no line", code="invalid_input")
        said = sum(turn.role == "assistant" for turn in turns)
        return lines[min(said, len(lines) - 1)].replace("{last}", text_of(turns[-1]) if turns else "")


def _open_call(call: Call, found: Conversation) -> str:
    """The id of the latest call that no turn has answered."""
    answered = {turn.tool_call_id for turn in found.turns}
    asked = [one.id for turn in found.turns for one in turn.tool_calls if one.id not in answered]
    if not asked:
        message = (
            f"`{call.node}` answers a tool's call, and the conversation has none that is open; choose another `role`"
        )
        raise CallFailed(message, "messages", code="invalid_input")
    return asked[-1]
