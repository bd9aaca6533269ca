"""The agent of `examples/`: a sound graph beside the starter's."""

from __future__ import annotations

import json
from pathlib import Path

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.checks.called import WithTasks
from walkgraph.graph.conversation import Conversation
from walkgraph.models.agent.conversing import tools_of
from walkgraph.resources import bundled


def test_the_example_has_no_problem(repository: Path) -> None:
    text = (repository / "examples" / "agent.json").read_text()
    shapes = json.loads(bundled("graphs")["shapes"].read_bytes())
    assert check(json.loads(text), WithTasks(catalogue(), {"shapes": shapes})).problems == ()
    assert codec.dumps(codec.load(text.encode())) == text, "as the editor saves it"


def test_its_tools_are_the_cases_of_its_choice(repository: Path) -> None:
    document = json.loads((repository / "examples" / "agent.json").read_text())
    tools = json.loads(document["nodes"]["begin"]["params"]["tools"])
    names = [tool.name for tool in tools_of(Conversation((), tuple(map(json.dumps, tools))))]
    loop = next(step["loop"] for step in document["tasks"]["ask"]["steps"] if "loop" in step)
    assert names == [*next(step["cases"] for step in loop if "choose" in step)]
