"""Components of a family served one call at a time, with their defaults, as a graph's nodes would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue


class Served:
    """The components of a family that have an operator and no weights, on one engine."""

    def __init__(self, family: str) -> None:
        self._components = {
            name: component
            for name, component in catalogue().items()
            if name.startswith(f"{family}.") and component.network and not component.weights
        }
        self._engine = engine_of(plan_of({name: (str(c.network), {}) for name, c in self._components.items()}))

    def call(self, name: str, inputs: Mapping[str, Any], *, run: str = "r", **params: Any) -> Call:
        component = self._components[name]
        assert set(inputs) <= {port.name for port in component.inputs}
        assert set(params) <= set(component.params)
        defaults = {name: param.default for name, param in component.params.items()}
        return call(name, inputs, run=run, **defaults | params)

    def give(self, name: str, inputs: Mapping[str, Any], **params: Any) -> Any:
        """The only output of a call, or all of them by name."""
        [made] = outputs(self._engine, self.call(name, inputs, **params))
        assert set(made) <= {port.name for port in self._components[name].outputs}
        return next(iter(made.values())) if len(self._components[name].outputs) == 1 and made else made

    def together(self, *calls: Call) -> list[dict[str, Any]]:
        """The outputs of calls that wait at once."""
        return outputs(self._engine, *calls)

    def refusal(self, name: str, inputs: Mapping[str, Any], **params: Any) -> str:
        """The message for a call that is refused as the client's fault; others of its batch are served."""
        [done] = serve(self._engine, self.call(name, inputs, **params))
        assert done.error is not None
        assert done.error.code == "invalid_input", done.error
        return done.error.message
