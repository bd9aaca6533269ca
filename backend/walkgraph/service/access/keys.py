"""Clients' keys. All are in memory: requests are judged without reading the store.

A key is `wg_<8 hex digits: its id>_<secret>`. Only its SHA-256 is kept, so it is shown once, when it is made. The hash
needs no salt and no stretching, since a secret has 256 random bits. When a key is revoked or expires, its open requests
and sockets end too.
"""

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import structlog

from walkgraph.errors import NotFound, WalkgraphError
from walkgraph.service.access.auditing import Act, recorded
from walkgraph.service.access.callers import Caller, Scope, named
from walkgraph.service.access.rates import Meter
from walkgraph.store import keys as queries
from walkgraph.store.session import Store
from walkgraph.store.tables import Key

NOTE_SECONDS = 10.0
"""Time between two writes of the keys' last use."""
PREFIX = "wg_"

_FORM = re.compile(r"wg_([0-9a-f]{8})_[A-Za-z0-9_\-]{43}")
_NOBODY = bytes(32)

_log = structlog.get_logger("walkgraph.keys")


class _Held:
    """A valid key."""

    def __init__(self, row: Key) -> None:
        self.row = row
        self.digest = bytes.fromhex(row.digest)
        meter = Meter(row.requests_per_minute, row.concurrent)
        self.caller = Caller(row.id, row.name, named(row.scopes.split(",")), meter, row.id)
        self.open: set[asyncio.Timeout] = set()
        """Timeouts of its open requests and sockets."""


class Keyring:
    def __init__(self, store: Store, now: Callable[[], float] = time.time) -> None:
        """`now`: epoch seconds."""
        self._store, self._now = store, now
        self._held: dict[str, _Held] = {}
        self._former: dict[str, Key] = {}
        self._used: dict[str, float] = {}
        """Last use of each key that is not written yet, in epoch seconds."""
        self._changing = asyncio.Lock()
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for row in await self._store.read(queries.list_keys):
            if row.revoked_at is None:
                self._held[row.id] = _Held(row)
            else:
                self._former[row.id] = row
        self._noting = asyncio.create_task(self._note_again())

    async def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        await self._note()

    def find(self, shown: str) -> Caller | None:
        """The caller with this key; None if it isn't valid. Takes the same time for known and unknown ids."""
        form = _FORM.fullmatch(shown)
        held = self._held.get(form[1]) if form else None
        digest = hashlib.sha256(shown.encode("utf-8", "replace")).digest()
        same = hmac.compare_digest(digest, held.digest if held else _NOBODY)
        now = self._now()
        if held is None or not same or not queries.is_valid(held.row, now):
            return None
        self._used[held.row.id] = now
        return held.caller

    def owner(self, key: str | None) -> Caller | None:
        """The caller with this key, one without rights if it has ended; None for None."""
        held = self._held.get(key or "")
        return held.caller if held is not None else Caller(key, "", frozenset(), key=key) if key is not None else None

    def holds(self, caller: Caller) -> bool:
        """False if the caller's key was revoked, or has expired."""
        held = self._held.get(caller.key or "")
        return caller.key is None or (held is not None and queries.is_valid(held.row, self._now()))

    @contextmanager
    def during(self, caller: Caller, limit: asyncio.Timeout) -> Generator[None]:
        """Makes `limit` expire when the caller's key ends."""
        held = self._held.get(caller.key or "")
        if held is None:
            yield
            return
        if held.row.expires_at is not None:
            left = held.row.expires_at - self._now()
            limit.reschedule(asyncio.get_running_loop().time() + max(0.0, left))
        held.open.add(limit)
        try:
            yield
        finally:
            held.open.discard(limit)

    def listed(self) -> list[Key]:
        """All keys, former ones too, oldest first, with their last use."""
        rows = [*self._former.values(), *(held.row for held in self._held.values())]
        found = [
            Key.model_validate({**row.model_dump(), "used_at": self._used.get(row.id, row.used_at)}) for row in rows
        ]
        return sorted(found, key=lambda row: (row.created_at, row.id))

    def get(self, id_: str) -> Key:
        found = next((row for row in self.listed() if row.id == id_), None)
        if found is None:
            raise NotFound(f"there is no key `{id_}`")
        return found

    def is_valid(self, row: Key) -> bool:
        return queries.is_valid(row, self._now())

    def running(self, id_: str) -> int:
        """Number of unfinished runs with the key."""
        held = self._held.get(id_)
        return held.caller.meter.running if held else 0

    async def add(
        self,
        name: str,
        scopes: Iterable[Scope],
        requests_per_minute: int | None,
        concurrent: int | None,
        seconds: float | None,
        act: Act,
    ) -> tuple[Key, str]:
        """A new key and its text, which is not stored. Raises Conflict if the name is taken or there are too many."""
        async with self._changing:
            id_ = next(id_ for id_ in iter(lambda: secrets.token_hex(4), "") if id_ not in self._all())
            text = f"{PREFIX}{id_}_{secrets.token_urlsafe(32)}"
            now = self._now()
            row = Key(
                id=id_,
                name=name,
                digest=hashlib.sha256(text.encode()).hexdigest(),
                scopes=",".join(sorted(set(scopes))),
                requests_per_minute=requests_per_minute,
                concurrent=concurrent,
                created_at=now,
                expires_at=None if seconds is None else now + seconds,
            )
            entry = act.of(key=id_, scopes=row.scopes).entry("done")
            self._held[id_] = _Held(await self._store.write(recorded, entry, queries.add_key, row))
            return row, text

    async def revoke(self, id_: str, act: Act) -> Key:
        """Revokes a key and ends its open requests and sockets. Raises NotFound, Conflict if it was revoked before."""
        async with self._changing:
            entry = act.of(name=self.get(id_).name).entry("done")
            row = await self._store.write(recorded, entry, queries.revoke_key, id_, self._now())
            held = self._held.pop(id_)
            row.used_at = self._used.pop(id_, row.used_at)
            self._former[id_] = row
        now = asyncio.get_running_loop().time()
        for limit in tuple(held.open):
            if not limit.expired():
                limit.reschedule(now)
        return row

    def _all(self) -> set[str]:
        return {*self._held, *self._former}

    async def _note_again(self) -> None:
        while True:
            await asyncio.sleep(NOTE_SECONDS)
            await self._note()

    async def _note(self) -> None:
        used, self._used = self._used, {}
        for id_, at in used.items():
            with contextlib.suppress(KeyError):
                self._held[id_].row.used_at = at
        if not used:
            return
        try:
            await self._store.write(queries.note_used, used)
        except WalkgraphError as error:
            self._used = {**used, **self._used}
            _log.warning("use of keys not recorded", count=len(used), reason=str(error))
