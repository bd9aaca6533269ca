"""`Idempotency-Key`: a repeated request gets the runs of the first one, even while they are under way.

A key belongs to its caller for ten minutes, together with its first request; another request with it is refused. Runs
that are no longer a useful answer are started again: those whose clients have all left, and those that failed with a
retryable error. Entries are limited in number and in bytes; the oldest is dropped first.
"""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import msgspec
from starlette.requests import HTTPConnection

from walkgraph.errors import InvalidInput
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.runs.runs import LiveRun

NAME = "idempotency-key"
HEADER = NAME.encode()
ASKED = "asked"
"""Key in a request's state for the parts of the request that are not in its first submission, such as the response
format and stop strings. They are compared too."""

_APART_BYTES = 4096
"""Values from this size on are digested by themselves, where they lie."""
_HANDLE = "idempotent"
_KEY = re.compile(rb"[\x20-\x7e]{1,255}")


class Entry:
    """A key's first request."""

    __slots__ = ("_asked", "_digest", "began", "kept", "runs")

    def __init__(self, asked: Any, began: float) -> None:
        self._asked: Any = asked
        self._digest: bytes | None = None
        """None until the request is settled."""
        self.began = began
        self.runs: list[LiveRun] = []
        """The request's runs in the order in which it starts them."""
        self.kept = 0
        """Bytes of their outputs; 0 until all have ended and are counted."""

    def settle(self) -> None:
        """Keeps a digest instead of the request. It takes as long as all else that a large request needs here, and
        nobody waits for it unless the key comes again."""
        if self._digest is None:
            self._digest, self._asked = _digest(self._asked), None

    def asks(self, asked: Any) -> bool:
        """True if this is the same request."""
        self.settle()
        return self._digest == _digest(asked)

    @property
    def ended(self) -> bool:
        return all(run.finished is not None for run in self.runs)

    @property
    def stands(self) -> bool:
        """True if its runs are a useful answer, or will be."""
        return not any(run.abandoned or _in_vain(run) for run in self.runs)


class Handle:
    """One request with a key. It asks for its runs one after the other."""

    def __init__(self, keys: "Keys", name: bytes, entry: Entry) -> None:
        self._keys, self._name, self._entry, self._next = keys, name, entry, 0

    def run(self, begin: Callable[[], LiveRun]) -> LiveRun:
        """The next run of the first request with this key; `begin` starts it if there is none yet."""
        position, self._next = self._next, self._next + 1
        if position < len(self._entry.runs):
            return self._entry.runs[position].joined()
        run = begin()
        self._keys.keep(self._name, self._entry, run)
        return run

    def settle(self) -> None:
        """Forgets the request's values, once its run is under way."""
        self._entry.settle()


class Keys:
    """The keys of all callers."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        seconds: float = limits.IDEMPOTENCY_SECONDS,
        most: int = limits.IDEMPOTENCY_KEYS,
        most_bytes: int = limits.IDEMPOTENCY_BYTES,
    ) -> None:
        self._now, self._seconds, self._most, self._most_bytes = now, seconds, most, most_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        """By digest of caller and key, oldest first."""
        self._uncounted: set[bytes] = set()
        """Keys whose runs had not all ended at the last sweep."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def handle(self, caller: str, key: str, asked: Any) -> Handle:
        """The handle of a request. Raises Unprocessable (`idempotency_conflict`) if another request had the key."""
        name = hashlib.sha256(msgspec.msgpack.encode((caller, key))).digest()
        self._sweep()
        entry = self._entries.get(name)
        if entry is not None and not entry.stands:
            self._forget(name)
            entry = None
        if entry is not None and not entry.asks(asked):
            message = "this Idempotency-Key came with another request before; use a new one for each request"
            raise Unprocessable(message, [Fault("", "idempotency_conflict", message)])
        return Handle(self, name, entry or Entry(asked, self._now()))

    def keep(self, name: bytes, entry: Entry, run: LiveRun) -> None:
        """Adds a run to a request. The first run takes the key: a refused request takes none."""
        entry.runs.append(run)
        if len(entry.runs) == 1:
            self._entries[name] = entry
            self._uncounted.add(name)
            self._make_room()

    def _sweep(self) -> None:
        """Counts the bytes of entries whose runs have ended, and drops expired entries."""
        for name in [name for name in self._uncounted if self._entries[name].ended]:
            entry = self._entries[name]
            self._uncounted.discard(name)
            entry.kept = sum(run.bytes for run in entry.runs)
            self._bytes += entry.kept
        limit = self._now() - self._seconds
        while self._entries:
            name, oldest = next(iter(self._entries.items()))
            if oldest.began > limit:
                break
            self._forget(name)

    def _make_room(self) -> None:
        """Drops the oldest entries beyond the limits; always keeps the newest."""
        while len(self._entries) > self._most or (self._bytes > self._most_bytes and len(self._entries) > 1):
            self._forget(next(iter(self._entries)))

    def _forget(self, name: bytes) -> None:
        self._bytes -= self._entries.pop(name).kept
        self._uncounted.discard(name)


def handle_of(keys: Keys, connection: HTTPConnection, deployment: str, task: str, body: Any) -> Handle | None:
    """The handle of a request, which may start several runs; None without a key. Raises InvalidInput for a bad key."""
    given = [value for name, value in connection.scope["headers"] if name == HEADER]
    if not given or connection.scope.get("method") != "POST":
        return None
    state: dict[str, Any] = connection.scope["state"]
    found: Handle | None = state.get(_HANDLE)
    if found is None:
        if len(given) > 1 or _KEY.fullmatch(given[0]) is None:
            raise InvalidInput("send one Idempotency-Key of 1 to 255 printable characters")
        path, query = connection.scope["path"], connection.scope["query_string"]
        asked = (path, query, deployment, task, body, state.get(ASKED))
        found = state[_HANDLE] = keys.handle(_caller(state), given[0].decode("ascii"), asked)
    return found


def _digest(asked: Any) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(_summed(asked))).digest()


def _summed(value: Any) -> Any:
    """The value with digests in place of the bytes of media and tensors, so that they are not copied. An extension can
    stand for nothing else."""
    if isinstance(value, bytes) and len(value) >= _APART_BYTES:
        return msgspec.msgpack.Ext(0, hashlib.sha256(value).digest())
    if isinstance(value, dict):
        return {key: _summed(child) for key, child in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple) and any(isinstance(child, dict | bytes) for child in cast(list[Any], value)):
        return [_summed(child) for child in cast(list[Any], value)]
    return cast(Any, value)


def _caller(state: dict[str, Any]) -> str:
    found = state.get("caller")
    return found.id if found is not None else ""


def _in_vain(run: LiveRun) -> bool:
    """True if the run failed in a way that a retry may change."""
    error = run.finished.error if run.finished is not None and not run.sufficed else None
    return error is not None and (error.retryable or error.code == "cancelled")
