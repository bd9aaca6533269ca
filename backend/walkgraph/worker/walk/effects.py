"""What follows from an event of a run."""

from walkgraph.errors import ErrorInfo
from walkgraph.worker.events import Command


class Effects:
    """Gathered by all that work for the run, taken once for each event."""

    __slots__ = ("commands", "failure")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        """In their order."""
        self.failure: ErrorInfo | None = None
        """That ends the run."""

    def take(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands
