"""The end of the service, as all of its parts know of it."""

import asyncio

from walkgraph.service.http.problems import Unavailable


class Shutdown:
    def __init__(self) -> None:
        self.begun = False
        """Nothing new is taken."""
        self.closing = asyncio.Event()
        """Set once sockets that wait for requests are to tell their clients, and end."""

    def begin(self) -> None:
        """May be called from a signal's handler."""
        self.begun = True

    def refuse_new(self) -> None:
        """Raises Unavailable once the service takes nothing new."""
        if self.begun:
            raise Unavailable("the service is shutting down", "shutting_down")
