"""Requests to servers outside. The service makes them: it knows which servers may be called, and the secrets."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, boolean, choice, integer, number

MOST_ANSWER_BYTES = 20 * 1024 * 1024

_component = Declarations("http", module=None, category="Calls", cost="launch", host=True, outside=True)

COMPONENTS: tuple[Component, ...] = (
    _component(
        "http.request",
        "Sends an HTTP request to a server that the operator allows, and outputs its answer.",
        inputs=(
            port("url", "text: str", optional=True, description="used as `url_input` says"),
            port("text", "text: str", optional=True, description="the body, as text or JSON"),
            port("image", "image: bytes", optional=True, description="the body, as a picture"),
            port("audio", "audio: bytes", optional=True, description="the body, as sound"),
        ),
        outputs=(
            port("text", "text: str", description="the answer, which must be text"),
            port("image", "image: bytes", description="the answer, which must be a picture"),
            port("audio", "audio: bytes", description="the answer, which must be sound"),
            port("status", "scalar: int", description="200, for example"),
            port("content_type", "text: str", description="of the answer"),
        ),
        params={
            "method": choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"), "The request's method.", default="GET"),
            "url": Param(type="string", description="`https://api.example/v1/items?limit=3`."),
            "url_input": choice(
                ("refused", "path", "whole"),
                "What the input `url` may replace: nothing, path and query of `url`, or all of it.",
                default="refused",
            ),
            "headers": Param(
                type="string",
                default="",
                long=True,
                description="A header a line: `Name: value`. `secret:NAME` stands for a secret of the service.",
            ),
            "body": choice(
                ("text", "json"),
                "How the input `text` is sent; `json` must be valid, and answers are asked for as JSON.",
                default="text",
            ),
            "fail": boolean("Fail the run when the status is 400 or more.", default=True),
            "seconds": number("The longest time for the whole request.", default=30.0, min=0.1, max=300),
            "max_bytes": integer("The largest answer, decompressed.", default=1_000_000, min=1, max=MOST_ANSWER_BYTES),
        },
        examples=(
            Example(
                params={"url": "https://api.weather.example/v1/now", "url_input": "path"},
                inputs={"url": "?city=Lisbon"},
                outputs={"text": "sunny, 24 degrees", "status": 200, "content_type": "text/plain"},
                runs=False,
            ),
        ),
    ),
)
