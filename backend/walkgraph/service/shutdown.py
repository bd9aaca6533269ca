"""The shutdown state that all parts of the service share."""

import asyncio

from walkgraph.service.http.problems import Unavailable


class Shutdown:
    def __init__(self) -> None:
        self.begun = False
        """True once nothing new is accepted."""
        self.closing = asyncio.Event()
        """Set when sockets that wait for requests must notify their clients and close."""

    def begin(self) -> None:
        """Starts the shutdown. Can be called from a signal handler."""
        self.begun = True

    def refuse_new(self) -> None:
        """Raises Unavailable once the shutdown has begun."""
        if self.begun:
            raise Unavailable("the service is shutting down", "shutting_down")
