"""Builds JSON of values, reads it, and picks values out of it."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, boolean, choice

PICKED = ("text", "scalar", "flag", "list of text")

_component = Declarations("json", category="Text", cost="launch", host=True, deterministic=True)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "json.build",
        "Writes values as a JSON object, a key for each port.",
        inputs=(port("value", "text", of="ports"),),
        outputs=(port("text", "text: str", description="without line ends; absent values are left out"),),
        params={
            "ports": Param(
                type="string",
                default="value",
                gives="ports",
                description="The keys and the types of their values: `title, size: scalar, tags?: list of text`.",
            ),
            "nested": Param(
                type="string",
                default="",
                description="Keys whose texts are JSON themselves, with commas between.",
            ),
        },
        examples=(
            Example(
                params={"ports": "name, age: scalar, tags: list of text"},
                inputs={"name": "Ada", "age": 36, "tags": ["a", "b"]},
                outputs={"text": '{"name":"Ada","age":36,"tags":["a","b"]}'},
            ),
            Example(
                params={"ports": "person", "nested": "person"},
                inputs={"person": '{"name": "Ada"}'},
                outputs={"text": '{"person":{"name":"Ada"}}'},
            ),
        ),
    ),
    _component(
        "json.read",
        "Reads a text as JSON. If it isn't, the run ends and says where it is wrong.",
        inputs=(port("text", "text: str"),),
        outputs=(port("text", "text: str", description="the JSON in its shortest form"),),
        params={
            "search": boolean(
                "Take the first object or array in the text and leave out the words around it, as a language model "
                "writes them.",
                default=False,
            ),
        },
        examples=(
            Example(inputs={"text": '{ "a": [1, 2] }'}, outputs={"text": '{"a":[1,2]}'}),
            Example(
                params={"search": True},
                inputs={"text": 'Here it is: {"a": 1}. Anything else?'},
                outputs={"text": '{"a":1}'},
            ),
        ),
    ),
    _component(
        "json.pick",
        "Takes one value out of JSON by its path.",
        inputs=(port("text", "text: str"),),
        outputs=(port("value", "text", of="type", optional=True),),
        params={
            "path": Param(
                type="string",
                form="path",
                default="",
                description='For example `items[0].name`; `[-1]` is the last item, `["a b"]` a key with other '
                "characters, an empty path everything. It must be a literal.",
            ),
            "type": Param(
                type="string",
                default="text",
                choices=PICKED,
                gives="type",
                description="As `text`, what isn't a text is written as JSON.",
            ),
            "missing": choice(
                ("fail", "absent"), "If nothing is there: end the run, or give no value.", default="fail"
            ),
        },
        examples=(
            Example(
                params={"path": "items[0].name"},
                inputs={"text": '{"items": [{"name": "Ada"}]}'},
                outputs={"value": "Ada"},
            ),
            Example(
                params={"path": "sizes[-1]", "type": "scalar"},
                inputs={"text": '{"sizes": [1, 2.5]}'},
                outputs={"value": 2.5},
            ),
        ),
    ),
)
