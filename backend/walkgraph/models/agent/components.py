"""Agents: conversations with a model that calls tools, turn by turn. The loop around them is the graph's."""

from walkgraph.graph.catalogue import Component, Example, Param, StateUse, port
from walkgraph.graph.conversation import ROLES
from walkgraph.graph.declaring import Declarations, choice, integer

MOST_TURNS = 1024
MOST_CHARACTERS = 1024 * 1024
"""The most characters of a conversation's texts, and of its tools."""
MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of its pictures and sounds."""
NO_CALL, BAD_CALL = "none", "invalid"
"""Stand for a tool's name."""

_component = Declarations("agent", category="Agent", cost="launch", host=True, deterministic=True)
_memory = _component.in_module("memory_operators")
_CONVERSATION = port("messages", "messages", description="the conversation")
_LONGER = port("messages", "messages", description="the conversation with the new turn")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "agent.instruct",
        "Begins a conversation with instructions and the tools that the model may call.",
        inputs=(
            port("messages", "messages", optional=True, description="turns so far"),
            port("text", "text: str", optional=True, description="what the user says, as the last turn"),
        ),
        outputs=(port("messages", "messages"),),
        params={
            "system": Param(type="string", default="", long=True, description="Instructions, as the first turn."),
            "tools": Param(
                type="string",
                default="[]",
                long=True,
                description='A JSON list: `[{"name": "draw", "description": "Draws.", "parameters": SCHEMA}]`. '
                "`parameters` is a JSON Schema of an object.",
            ),
        },
        examples=(
            Example(
                params={"system": "Be brief.", "tools": '[{"name": "clock"}]'},
                inputs={"text": "What is the time?"},
                outputs={"messages": "system: Be brief. user: What is the time?"},
                runs=False,
            ),
        ),
    ),
    _component(
        "agent.read_calls",
        "Finds the call of a tool in a model's answer, checks it, and adds the answer to the conversation.",
        inputs=(_CONVERSATION, port("text", "text: str", description="the model's answer")),
        outputs=(
            _LONGER,
            port(
                "name", "text: str", description=f"the tool; `{NO_CALL}`, or `{BAD_CALL}` for a call that can't be used"
            ),
            port("arguments", "text: str", description="of the call, as a JSON object"),
            port("text", "text: str", description="the answer without calls"),
            port("problem", "text: str", description="what is wrong with the call, for the model to read; else empty"),
            port("done", "flag", description="true if the model calls no tool"),
        ),
        examples=(
            Example(
                inputs={
                    "messages": "a conversation with the tool `clock`",
                    "text": '<tool_call>{"name": "clock", "arguments": {}}</tool_call>',
                },
                outputs={"name": "clock", "arguments": "{}", "text": "", "problem": "", "done": False},
                runs=False,
            ),
        ),
    ),
    _component(
        "agent.append",
        "Adds a turn to a conversation. Without a text or a picture, the conversation stays as it is.",
        inputs=(
            _CONVERSATION,
            port("text", "text: str", optional=True),
            port("image", "image: bytes", optional=True),
        ),
        outputs=(_LONGER,),
        params={
            "role": choice(ROLES, "Who says it; `tool` answers the latest call.", default="tool"),
        },
        examples=(
            Example(
                inputs={"messages": "a conversation that ends with a call of `clock`", "text": "noon"},
                outputs={"messages": "the same, and the tool's answer"},
                runs=False,
            ),
        ),
    ),
    _component(
        "agent.latest_picture",
        "Outputs the latest picture in a conversation.",
        inputs=(_CONVERSATION,),
        outputs=(port("image", "image: bytes"),),
        examples=(
            Example(
                inputs={"messages": "a conversation with two pictures"}, outputs={"image": "the second"}, runs=False
            ),
        ),
    ),
    _component(
        "agent.script",
        "Stands in for a model, to try an agent without one: it says the lines of a script, one a turn.",
        inputs=(_CONVERSATION,),
        outputs=(port("text", "text: str"),),
        params={
            "lines": Param(
                type="string",
                long=True,
                description="The answers, a line each; `{last}` stands for the text of the latest turn. Behind the "
                "last line it is said again.",
            ),
        },
        examples=(
            Example(
                params={"lines": "Hello.\nYou said: {last}"},
                inputs={"messages": "a conversation in which the model has said `Hello.`, and the user `Hi!`"},
                outputs={"text": "You said: Hi!"},
                runs=False,
            ),
        ),
    ),
    _memory(
        "agent.recall",
        "Puts the conversation that a session remembers before the new turns.",
        deterministic=False,
        inputs=(port("messages", "messages", description="the new turns"),),
        outputs=(port("messages", "messages", description="the remembered turns, then the new ones"),),
        params={"turns": integer("The latest turns that are recalled.", default=64, min=1, max=MOST_TURNS)},
        states=(StateUse(slot="memory", kind="tensor", access="read"),),
        examples=(
            Example(
                inputs={"messages": "user: And in Lisbon?"},
                outputs={"messages": "user: Is it sunny here? assistant: Yes. user: And in Lisbon?"},
                note="The state of the session has the first two turns.",
                runs=False,
            ),
        ),
    ),
    _memory(
        "agent.remember",
        "Keeps a conversation in a session's state, without its instructions, pictures and sounds.",
        deterministic=False,
        inputs=(_CONVERSATION,),
        outputs=(port("turns", "scalar: int", description="how many turns are kept"),),
        params={"turns": integer("The latest turns that are kept.", default=64, min=1, max=MOST_TURNS)},
        states=(StateUse(slot="memory", kind="tensor"),),
        examples=(
            Example(inputs={"messages": "user: Is it sunny here? assistant: Yes."}, outputs={"turns": 2}, runs=False),
        ),
    ),
)
