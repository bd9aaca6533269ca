"""Values that pass or don't, are chosen, collected into lists, or end a run. A value may be of any type."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from walkgraph.abi.calls import Call, CallFailed, Outputs, plain_text
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.plain.values import flag, invalid, items, whole
from walkgraph.graph.language.shaping import listed_ports


class Gate(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": call.inputs["value"]} if flag(call, "flag") else {} for call in calls]


class Select(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": self._chosen(call)} for call in calls]

    def _chosen(self, call: Call) -> Any:
        port = "if_true" if flag(call, "flag") else "if_false"
        if port not in call.inputs:
            raise CallFailed(f"`{call.node}` chooses `{port}`, which has no value here", port)
        return call.inputs[port]


class Collect(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"items": self._items(call)} for call in calls]

    def _items(self, call: Call) -> list[Any]:
        names = (port.name for port in listed_ports(str(call.params["ports"])))
        return [call.inputs[name] for name in names if name in call.inputs]


class Item(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"item": self._item(call)} for call in calls]

    def _item(self, call: Call) -> Any:
        found = items(call, "items")
        index = whole(call, "index") if "index" in call.inputs else int(call.params["index"])
        if not -len(found) <= index < len(found):
            raise invalid(call, "index", f"takes item {index} of a list of {len(found)}")
        return found[index]


class Count(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"count": len(items(call, "items"))} for call in calls]


class Fail(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            if "flag" not in call.inputs or flag(call, "flag"):
                message = call.inputs.get("message", call.params["message"])
                code: Literal["node_error", "invalid_input"] = (
                    "invalid_input" if call.params["code"] == "invalid_input" else "node_error"
                )
                raise CallFailed(plain_text(str(message))[:_MOST], code=code)
        return [{"value": call.inputs["value"]} if "value" in call.inputs else {} for call in calls]


_MOST = 1000
"""Characters of a message."""
