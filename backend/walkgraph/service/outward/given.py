"""Parameters and inputs of one call of a component whose calls the service serves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkgraph.errors import InvalidInput, Refused
from walkgraph.placement.tables import Scalar
from walkgraph.servers import SECRET
from walkgraph.wire import messages as m


@dataclass(frozen=True)
class Given:
    place: str
    """The node in its deployment: `pictures/fetch`."""
    params: Mapping[str, Scalar]
    seed: int
    inputs: Mapping[str, m.Value]
    outputs: Sequence[str]
    """Those that edges take; all, if this and `pieces` are empty."""
    pieces: Sequence[str]
    """Those whose values leave as they come."""
    literal: Mapping[str, Any]
    """The node's parameters, as the document has them."""
    send: Callable[[str, m.Value], None]
    """Sends a piece of an output."""

    def wanted(self, outputs: Sequence[str]) -> list[str]:
        asked = {*self.outputs, *self.pieces} or set(outputs)
        return [name for name in outputs if name in asked]

    def text(self, port: str) -> str | None:
        match self.inputs.get(port):
            case None | m.Absent():
                return None
            case m.Small(value=str() as text):
                return text
            case _:
                raise InvalidInput(f"the input `{port}` is text")

    def data(self, port: str) -> bytes | None:
        match self.inputs.get(port):
            case None | m.Absent():
                return None
            case m.Blob(data=data):
                return data
            case _:
                raise InvalidInput(f"the input `{port}` is an encoded picture or sound")

    def check_secrets(self, param: str) -> None:
        """Raises Refused if a parameter names secrets and isn't a literal of the document: which secret goes where is
        its author's choice, not a client's."""
        value = str(self.params[param])
        if SECRET.search(value) and self.literal.get(param) != value:
            raise Refused(f"secrets can't be named by an expression; write the parameter `{param}` as plain text")
