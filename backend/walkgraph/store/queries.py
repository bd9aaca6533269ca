"""All other statements, one function each. The caller owns the transaction."""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import CursorResult
from sqlmodel import Session, col, delete, desc, func, select, update

from walkgraph.errors import Conflict, NotFound
from walkgraph.store.saving import age_order, save
from walkgraph.store.tables import Deployment, Document, DocumentKind, Run, Version, WaitingRun

KEPT_RUNS = 10_000
KEPT_VERSIONS = 200
"""The most versions of one document."""
ORIGINAL = "as it comes with Walkgraph"
"""Note of the version kept when a first draft replaces a bundled document."""


class PreconditionFailed(Conflict):
    """The document has changed since the caller last read it."""


def etag_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ── documents ───────────────────────────────────────────────────────────────────────────────────


def is_new(session: Session) -> bool:
    """True if no service has started on this database yet, so the bundled documents are missing."""
    return session.exec(select(Document.name).limit(1)).first() is None


def list_documents(session: Session, kind: DocumentKind) -> Sequence[Document]:
    return session.exec(select(Document).where(Document.kind == kind).order_by(col(Document.name))).all()


def get_document(session: Session, kind: DocumentKind, name: str) -> Document:
    found = session.get(Document, (kind, name))
    if found is None:
        raise NotFound(f"there is no {kind} `{name}`")
    return found


def put_document(session: Session, kind: DocumentKind, name: str, text: str, if_match: str | None) -> Document:
    """Write a draft. `if_match` is the etag the caller last saw, `*` for any, None for a new document.

    A draft over a bundled document keeps that one as a version.
    """
    found = session.get(Document, (kind, name))
    if if_match not in ("*", found.etag if found else None):
        raise PreconditionFailed(
            f"the {kind} `{name}` was changed by somebody else; get it again and repeat the change"
            if found
            else f"there is no {kind} `{name}` with that etag; leave `If-Match` out to make a new one"
        )
    document = found or Document(kind=kind, name=name, text="", etag="", updated_at=0.0)
    if document.bundled and document.text != text:
        add_version(session, kind, name, document.text, ORIGINAL)
        document.bundled = False
    document.text, document.etag, document.updated_at = text, etag_of(text), time.time()
    session.add(document)
    return document


def delete_document(
    session: Session, kind: DocumentKind, name: str, if_match: str | None, original: str | None = None
) -> None:
    """Delete a document. `original` is the bundled document under the draft, which is restored."""
    found = get_document(session, kind, name)
    if found.bundled:
        raise Conflict(f"the {kind} `{name}` comes with Walkgraph and can't be deleted")
    if if_match not in (None, "*", found.etag):
        raise PreconditionFailed(f"the {kind} `{name}` was changed by somebody else; get it again first")
    session.delete(found)
    if original is not None:
        session.flush()
        seed = Document(
            kind=kind, name=name, text=original, etag=etag_of(original), bundled=True, updated_at=time.time()
        )
        seed.tags = found.tags
        session.add(seed)


def set_tags(session: Session, kind: DocumentKind, name: str, tags: Sequence[str]) -> Document:
    """Set a document's tags, without duplicates, in order. The text, and so the etag, stays."""
    found = get_document(session, kind, name)
    found.tags = json.dumps(list(dict.fromkeys(tags)), ensure_ascii=False)
    session.add(found)
    return found


def seed_bundled(
    session: Session,
    kind: DocumentKind,
    documents: Mapping[str, str],
    tags: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Set the bundled documents to this package's. A user's own document of the same name stays. `tags`: those that a
    document has when it is new, by name."""
    found = {row.name: row for row in list_documents(session, kind)}
    for name, row in found.items():
        if row.bundled and name not in documents:
            session.delete(row)
    for name, text in documents.items():
        row = found.get(name)
        if row is None:
            now = time.time()
            new = Document(kind=kind, name=name, text=text, etag=etag_of(text), bundled=True, updated_at=now)
            new.tags = json.dumps(list(tags.get(name, ())), ensure_ascii=False)
            session.add(new)
        elif row.bundled and row.text != text:
            row.text, row.etag, row.updated_at = text, etag_of(text), time.time()
            session.add(row)


def add_version(session: Session, kind: DocumentKind, name: str, text: str, note: str) -> Version:
    """Keep a document's present content as a version; equal consecutive texts are kept once."""
    newest = session.exec(_versions(kind, name).limit(1)).first()
    if newest is not None and newest.etag == etag_of(text):
        return newest
    version = Version(kind=kind, name=name, text=text, etag=etag_of(text), note=note, created_at=time.time())
    session.add(version)
    session.flush()
    old = session.exec(_versions(kind, name).offset(KEPT_VERSIONS)).all()
    for row in old:
        session.delete(row)
    return version


def list_versions(session: Session, kind: DocumentKind, name: str) -> Sequence[Version]:
    """The versions of a document, newest first."""
    return session.exec(_versions(kind, name)).all()


def get_version(session: Session, kind: DocumentKind, name: str, number: int) -> Version:
    found = session.get(Version, number)
    if found is None or (found.kind, found.name) != (kind, name):
        raise NotFound(f"the {kind} `{name}` has no version {number}")
    return found


def _versions(kind: DocumentKind, name: str):  # noqa: ANN202  (SQLModel's own generic)
    return select(Version).where(Version.kind == kind, Version.name == name).order_by(desc(col(Version.id)))


# ── deployments ─────────────────────────────────────────────────────────────────────────────────


def list_deployments(session: Session) -> Sequence[Deployment]:
    """All wanted deployments, oldest first."""
    return session.exec(select(Deployment).order_by(col(Deployment.created_at))).all()


def add_deployment(session: Session, deployment: Deployment) -> Deployment:
    if session.get(Deployment, deployment.id) is not None:
        raise Conflict(f"there is a deployment `{deployment.id}` already; undeploy it first, or choose another name")
    session.add(deployment)
    return deployment


def replace_deployment(session: Session, deployment: Deployment) -> None:
    """Store other documents for an existing deployment."""
    if session.get(Deployment, deployment.id) is None:
        raise NotFound(f"there is no deployment `{deployment.id}`")
    session.merge(deployment)


def delete_deployment(session: Session, id_: str) -> None:
    found = session.get(Deployment, id_)
    if found is None:
        raise NotFound(f"there is no deployment `{id_}`")
    session.delete(found)


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def save_runs(session: Session, runs: Iterable[Run | Mapping[str, Any]]) -> None:
    """Insert or replace runs in order, given as rows or as columns by name."""
    save(session, Run, runs)


def get_run(session: Session, id_: str) -> Run:
    found = session.get(Run, id_)
    if found is None:
        raise NotFound(f"there is no run `{id_}`; `/api/v1/runs` lists those that are remembered")
    return found


def list_runs(
    session: Session, deployment: str | None, state: str | None, limit: int, before: float, caller: str | None = None
) -> Sequence[Run]:
    """Runs that came before `before` (epoch seconds), newest first; `caller`: only those of that key."""
    query = select(Run).where(Run.created_at < before)
    if caller is not None:
        query = query.where(Run.caller == caller)
    if deployment is not None:
        query = query.where(Run.deployment == deployment)
    if state is not None:
        query = query.where(Run.state == state)
    return session.exec(query.order_by(desc(col(Run.created_at))).limit(limit)).all()


def end_lost_runs(session: Session, error: str) -> int:
    """Mark as failed the runs that a dead service left unfinished, but for those that wait for a person; returns how
    many."""
    waits = select(WaitingRun.run)
    lost = col(Run.state).in_(("running", "waiting")) & col(Run.id).not_in(waits)
    ended: CursorResult[tuple[()]] = session.exec(  # pyright: ignore[reportAssignmentType]
        update(Run).where(lost).values(state="failed", error=error)
    )
    return ended.rowcount


def prune_runs(session: Session, keep: int = KEPT_RUNS) -> None:
    """Remove all but the newest `keep` runs."""
    if session.exec(select(func.count()).select_from(Run)).one() <= keep:
        return
    age = age_order(Run.created_at)
    oldest = session.exec(select(age).order_by(desc(age)).offset(keep - 1).limit(1)).one()
    session.exec(delete(Run).where(age < oldest))
