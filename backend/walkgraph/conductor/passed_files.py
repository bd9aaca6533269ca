"""Large values of requests: the service posts their files here, and each goes on to the ranks that read it.

Nothing reads them here, unless a file can't be sent on, or the run waits for a person: the service keeps its inputs
meanwhile. Only their ends are read where replicas are chosen by what they have read.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from walkgraph.conductor.replicas.beginnings import LOOKED_AT, told
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.processes import posting
from walkgraph.wire.processes.posting import Letter, Lost, PostOffice, PostSender
from walkgraph.wire.values import any_posted, leaves_changed


class PassedFiles:
    def __init__(self, directory: Path, replicated: Callable[[], bool] = lambda: False) -> None:
        """`directory`: the deployment's. `replicated`: true if its ranks have replicas. Raises OSError if there can be
        no socket."""
        self._directory, self._replicated = directory, replicated
        self._office = PostOffice(directory / posting.CONDUCTOR)
        self._senders: dict[Rank, PostSender] = {}
        self._runs: set[RunId] = set()
        """Unfinished runs with such values."""

    def heard(self, message: m.ToConductor) -> m.ToConductor:
        """The service's message as the core gets it. The files of its values have come before it."""
        if not isinstance(message, m.Submit):
            return message
        given = (value for several in message.inputs.values() for value in several)
        if not (any_posted(given) or any_posted(part.value for part in message.parts)):
            return message
        self._runs.add(message.run)
        if not self._replicated():
            return message
        inputs = {
            name: tuple(leaves_changed(value, self._with_ends) for value in several)
            for name, several in message.inputs.items()
        }
        parts = tuple(replace(part, value=leaves_changed(part.value, self._with_ends)) for part in message.parts)
        return replace(message, inputs=inputs, parts=parts)

    def to_rank(self, rank: Rank, message: m.ToWorker) -> m.ToWorker:
        """The message as the rank gets it: the files of its values have been sent there, or they are inside it."""
        if not isinstance(message, m.Start) or message.run not in self._runs:
            return message

        sent: dict[int, m.Value] = {}

        def passed(leaf: m.Value) -> m.Value:
            if not isinstance(leaf, m.Posted):
                return leaf
            # A part of a conversation has a name of its own too.
            if leaf.number not in sent:
                sent[leaf.number] = self._passed(rank, message.run, leaf)
            return sent[leaf.number]

        inputs = {name: leaves_changed(value, passed) for name, value in message.inputs.items()}
        return replace(message, inputs=inputs)

    def to_service(self, message: m.FromConductor) -> m.FromConductor:
        """The message as the service gets it. A run that is over has no files any more."""
        if not isinstance(message, m.Finished | m.Rejected | m.Waits) or message.run not in self._runs:
            return message
        if isinstance(message, m.Waits):
            kept = {name: leaves_changed(value, self._shown) for name, value in message.rest.kept.items()}
            asked = tuple(replace(one, value=leaves_changed(one.value, self._shown)) for one in message.approval.shown)
            approval = replace(message.approval, shown=asked)
            message = replace(message, approval=approval, rest=replace(message.rest, kept=kept))
        self._runs.discard(message.run)
        self._office.forget_all_but(message.run, self._runs)
        return message

    def close(self) -> None:
        for one in (self._office, *self._senders.values()):
            one.close()

    def _passed(self, rank: Rank, run: RunId, value: m.Posted) -> m.Value:
        if rank not in self._senders:
            self._senders[rank] = PostSender(self._directory / posting.rank_office(rank), "conductor")
        letter = Letter(run=run, sender=value.sender, number=value.number)
        # The rank says so if a file has been lost.
        with contextlib.suppress(Lost):
            if not self._senders[rank].pass_on(letter, self._office.file(value)):
                return self._office.shown(value)
        return value

    def _with_ends(self, leaf: m.Value) -> m.Value:
        if isinstance(leaf, m.Posted):
            with contextlib.suppress(Lost):
                file, size = self._office.file(leaf), min(leaf.nbytes, LOOKED_AT)
                first, last = os.pread(file, size, 0), os.pread(file, size, leaf.nbytes - size)
                return replace(leaf, ends=told(first, last, leaf.nbytes))
        return leaf

    def _shown(self, leaf: m.Value) -> m.Value:
        with contextlib.suppress(Lost):
            return self._office.shown(leaf) if isinstance(leaf, m.Posted) else leaf
        return leaf
