"""Statements on keys and the audit log, one function each. The caller owns the transaction."""

from collections.abc import Iterable, Mapping, Sequence

from sqlmodel import Session, col, delete, desc, func, select, update

from walkgraph.errors import Conflict, NotFound
from walkgraph.store.tables import AuditEntry, Key

MAX_KEYS = 1000
"""The most valid keys at once."""
KEPT_KEYS = 2000
"""The most keys in all; the oldest invalid ones are removed first."""
KEPT_ENTRIES = 100_000
"""The most entries of the audit log."""
KEPT_REFUSALS = 10_000
"""The most refusals among them, so that repeated refusals can't push out what was done."""


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def list_keys(session: Session) -> Sequence[Key]:
    """All keys, valid or not, oldest first."""
    return session.exec(select(Key).order_by(col(Key.created_at), col(Key.id))).all()


def add_key(session: Session, key: Key) -> Key:
    """Store a key. Raises Conflict if a valid key has its name, or there are too many."""
    now = key.created_at
    valid = [row for row in list_keys(session) if is_valid(row, now)]
    if any(row.name == key.name for row in valid):
        raise Conflict(f"there is a key `{key.name}` already; revoke it first, or choose another name")
    if len(valid) >= MAX_KEYS:
        raise Conflict(f"there are {len(valid)} keys already; revoke one that is not needed any more")
    session.add(key)
    session.flush()
    _forget_old_keys(session, now)
    return key


def revoke_key(session: Session, id_: str, now: float) -> Key:
    """Revoke a key. Raises NotFound, or Conflict if it is revoked already."""
    found = session.get(Key, id_)
    if found is None:
        raise NotFound(f"there is no key `{id_}`")
    if found.revoked_at is not None:
        raise Conflict(f"the key `{id_}` is revoked already")
    found.revoked_at = now
    session.add(found)
    return found


def note_used(session: Session, used: Mapping[str, float]) -> None:
    """Record when keys were last used (epoch seconds)."""
    for id_, at in used.items():
        session.exec(update(Key).where(col(Key.id) == id_).values(used_at=at))


def is_valid(key: Key, now: float) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _forget_old_keys(session: Session, now: float) -> None:
    rows = list_keys(session)
    surplus = len(rows) - KEPT_KEYS
    for row in [row for row in rows if not is_valid(row, now)][: max(0, surplus)]:
        session.delete(row)


# ── the audit log ───────────────────────────────────────────────────────────────────────────────


def add_entries(session: Session, entries: Iterable[AuditEntry]) -> None:
    session.add_all(list(entries))


def list_entries(
    session: Session,
    *,
    action: str | None = None,
    caller: str | None = None,
    target: str | None = None,
    outcome: str | None = None,
    since: float | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Sequence[AuditEntry]:
    """Entries, newest first. `action`: one, or all that begin with `NAME.`; `before`: an entry's id; `since`: epoch
    seconds."""
    query = select(AuditEntry)
    if action is not None:
        exact = "." in action
        query = query.where(
            AuditEntry.action == action if exact else col(AuditEntry.action).startswith(f"{action}.", autoescape=True)
        )
    for column, wanted in ((AuditEntry.caller, caller), (AuditEntry.target, target), (AuditEntry.outcome, outcome)):
        if wanted is not None:
            query = query.where(col(column) == wanted)
    if since is not None:
        query = query.where(AuditEntry.at >= since)
    if before is not None:
        query = query.where(col(AuditEntry.id) < before)
    return session.exec(query.order_by(desc(col(AuditEntry.id))).limit(limit)).all()


def prune_entries(
    session: Session, oldest: float, keep: int = KEPT_ENTRIES, keep_refusals: int = KEPT_REFUSALS
) -> None:
    """Remove entries older than `oldest` (epoch seconds), and all but the newest `keep`."""
    session.exec(delete(AuditEntry).where(col(AuditEntry.at) < oldest))
    refused = col(AuditEntry.outcome) == "refused"
    for which, count in ((refused, keep_refusals), (~refused, keep)):
        first = session.exec(
            select(AuditEntry.id).where(which).order_by(desc(col(AuditEntry.id))).offset(count - 1).limit(1)
        ).first()
        if first is not None:
            session.exec(delete(AuditEntry).where(which, col(AuditEntry.id) < first))


def count_entries(session: Session) -> int:
    return session.exec(select(func.count()).select_from(AuditEntry)).one()
