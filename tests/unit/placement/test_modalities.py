"""A plan has the modality of each port, by which a worker shows values."""

from tests.support.placing import CATALOGUE, duet, placement
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment


def test_ports_have_the_modalities_of_their_component() -> None:
    plan = assemble(Assignment(duet(), placement()), CATALOGUE)
    nodes = {node.name: node for node in plan.nodes}
    assert nodes["paint"].inputs == {"latents": "latents"}
    assert nodes["paint"].outputs == {"image": "image"}
    assert nodes["llm"].outputs["token"] == "tokens"
    for node in plan.nodes:
        component = CATALOGUE[node.component]
        assert list(node.inputs) == [port.name for port in component.inputs]
        assert list(node.outputs) == [port.name for port in component.outputs]


def test_a_node_of_an_unknown_component_has_none() -> None:
    plan = assemble(Assignment(duet(), placement()), {})
    assert all(node.inputs == node.outputs == {} for node in plan.nodes)
