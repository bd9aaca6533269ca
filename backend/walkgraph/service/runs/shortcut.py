"""Passes requests that start runs straight to their route's function: FastAPI's routing and dependency injection would
take as long as all the rest of such a request.

The route itself exists too: for the OpenAPI document, and for names that no deployment or task can have.
"""

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from walkgraph.errors import WalkgraphError
from walkgraph.service.deps import Services
from walkgraph.service.http import problems
from walkgraph.service.routes.tasks import run_task

_PATH = re.compile(r"/v1/tasks/([A-Za-z][A-Za-z0-9_\-]{0,63})/([A-Za-z][A-Za-z0-9_\-]{0,63})")


class Shortcut:
    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app, self._services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        post = scope["type"] == "http" and scope["method"] == "POST"
        found = _PATH.fullmatch(scope["path"]) if post else None
        if found is None:
            await self._app(scope, receive, send)
            return
        try:
            answer = await run_task(self._services, Request(scope, receive, send), *found.groups())
        except WalkgraphError as error:
            answer = problems.of_error(error, scope["path"])
        await answer(scope, receive, send)
