"""Servers that speak OpenAI's API: any such server, also this one. The service calls them."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, boolean, choice, integer, number

MOST_TEXTS = 2048
"""The most texts of one call of `openai.embeddings`."""

_component = Declarations("openai", module=None, category="Calls", cost="launch", host=True, outside=True)
_SERVER = {
    "base_url": Param(
        type="string", description="The server and the path before `/chat`: `https://api.acme.example/v1`."
    ),
    "model": Param(type="string", description="The model's name there. This service's models are `deployment/task`."),
    "key": Param(
        type="string",
        default="",
        description="The server's key, a secret of the service: `secret:NAME`. Without one, no key is sent.",
    ),
}
_SECONDS = number("The longest time for the whole answer.", default=120.0, min=0.1, max=300)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "openai.chat",
        "Asks a language model on a server that speaks OpenAI's API.",
        inputs=(
            port("messages", "messages", optional=True, description="a conversation, with the tools that it names"),
            port("text", "text: str", optional=True, description="what the user says, behind `messages`"),
            port("image", "image: bytes", optional=True, description="a picture beside `text`"),
        ),
        outputs=(
            port("text", "text: str", description="the answer, piece by piece to a client"),
            port("finish", "text: str", description="`stop`, `length`, `tool_calls` or what else the server says"),
        ),
        params={
            **_SERVER,
            "system": Param(type="string", default="", long=True, description="Instructions, as the first turn."),
            "temperature": number("Sampling temperature.", default=1.0, min=0, max=2),
            "max_tokens": integer(
                "The longest answer in tokens; 0 leaves it to the server.", default=0, min=0, max=1_000_000
            ),
            "seeded": boolean("Send the run's seed, for servers that know it.", default=False),
            "json": boolean("Ask for an answer that is a JSON object.", default=False),
            "seconds": _SECONDS,
        },
        examples=(
            Example(
                params={"base_url": "https://api.acme.example/v1", "model": "small", "key": "secret:acme"},
                inputs={"text": "Name a colour."},
                outputs={"text": "Blue.", "finish": "stop"},
                runs=False,
            ),
        ),
    ),
    _component(
        "openai.images",
        "Has a picture drawn by a server that speaks OpenAI's API.",
        inputs=(port("prompt", "text: str"),),
        outputs=(port("image", "image: bytes"),),
        params={
            **_SERVER,
            "size": Param(
                type="string", default="", description="`1024x1024`, for example; empty leaves it to the server."
            ),
            "encoded": choice(
                ("asked", "assumed"),
                "`asked`: ask for the picture in the answer (`b64_json`). `assumed`: for models that always send it "
                "so, and refuse to be asked.",
                default="asked",
            ),
            "seconds": _SECONDS,
        },
        examples=(
            Example(
                params={"base_url": "https://api.acme.example/v1", "model": "painter", "key": "secret:acme"},
                inputs={"prompt": "a red circle"},
                outputs={"image": "the picture"},
                runs=False,
            ),
        ),
    ),
    _component(
        "openai.embeddings",
        "Has texts embedded by a server that speaks OpenAI's API.",
        inputs=(
            port("text", "text: str", optional=True),
            port("texts", "list of text: str", optional=True, description="several, behind `text`"),
        ),
        outputs=(port("embeddings", "embeddings: float[n, d]", description="one row for each text"),),
        params={
            **_SERVER,
            "dimensions": integer("Sizes to cut them to; 0 leaves it to the server.", default=0, min=0, max=65_536),
            "seconds": _SECONDS,
        },
        examples=(
            Example(
                params={"base_url": "https://api.acme.example/v1", "model": "embedder"},
                inputs={"text": "a red circle"},
                outputs={"embeddings": [[0.1, -0.2]]},
                runs=False,
            ),
        ),
    ),
)
