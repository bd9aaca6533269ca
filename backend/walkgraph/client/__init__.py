"""The client of the control service, used by programs, notebooks, the command line and the studio's pages.

with Client.local() as client:
    draw = client.task("shapes", "text_to_image")
    draw(prompt="a red circle on white", steps=12, seed=7).picture().save("circle.png")

`Client` blocks; `AsyncClient` has the same methods as coroutines. `task` returns tasks as functions with Python values;
`run`, `stream`, `start_run` and `result` use the service's JSON format. `shown` has the types of the answers.
"""

from walkgraph.client.aio import AsyncClient
from walkgraph.client.connection.address import Address, read_address
from walkgraph.client.errors import ClientError, Fault, Lost, ProblemError, RunError, Unreachable
from walkgraph.client.events import Event
from walkgraph.client.results import Output, Result
from walkgraph.client.shown import Kind, Level
from walkgraph.client.sync import Client
from walkgraph.client.tasks import AsyncStream, AsyncTask, Stream, Task
from walkgraph.client.values import Binary, File, Picture, Sound, Tensor, Text, Turn, Value, Video

__all__ = [
    "Address",
    "AsyncClient",
    "AsyncStream",
    "AsyncTask",
    "Binary",
    "Client",
    "ClientError",
    "Event",
    "Fault",
    "File",
    "Kind",
    "Level",
    "Lost",
    "Output",
    "Picture",
    "ProblemError",
    "Result",
    "RunError",
    "Sound",
    "Stream",
    "Task",
    "Tensor",
    "Text",
    "Turn",
    "Unreachable",
    "Value",
    "Video",
    "read_address",
]
