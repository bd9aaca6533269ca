"""The commands and the failure that follow from one event of a run."""

from walkgraph.errors import ErrorInfo
from walkgraph.worker.events import Command


class Effects:
    """Everything that works for the run adds to these; they are taken once per event."""

    __slots__ = ("commands", "failure")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        """Commands, in order."""
        self.failure: ErrorInfo | None = None
        """The error that ends the run."""

    def take(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands
