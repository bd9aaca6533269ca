"""A component's declaration as JSON; port types as they are written in graphs."""

from dataclasses import asdict
from typing import Any

from walkgraph.graph.catalogue import Component


def shown(component: Component) -> dict[str, Any]:
    """A declaration as JSON; port types as they are written in graphs."""
    ports = {
        side: [
            {
                "name": p.name,
                "type": str(p.type),
                "optional": p.optional,
                "description": p.description,
                "of": p.of,
                "like": p.like,
            }
            for p in group
        ]
        for side, group in (("inputs", component.inputs), ("outputs", component.outputs))
    }
    return {
        "name": component.name,
        "former": list(component.former),
        "category": component.category,
        "description": component.description,
        **ports,
        "params": {key: asdict(param) for key, param in component.params.items()},
        "states": [asdict(state) for state in component.states],
        "cost": component.cost,
        "weights": component.weights,
        "families": list(component.fitting),
        "host": component.host,
        "deterministic": component.deterministic,
        "task": component.task,
        "outside": component.outside,
        "served": component.served,
        "available": component.available,
        "examples": [
            {"note": one.note, "params": one.params, "inputs": one.inputs, "outputs": one.outputs}
            for one in component.examples
        ],
    }
