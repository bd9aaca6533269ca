"""W3C Trace Context: how a run takes part in its caller's trace, https://www.w3.org/TR/trace-context/.

A run without a caller's trace has one of its own; a run's id has 32 hex digits, like a trace's.
"""

import hashlib
import re

import msgspec

HEADER = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_FORBIDDEN_VERSION = "ff"
_FIRST_VERSION = "00"
_SAMPLED = 1


class Parent(msgspec.Struct, frozen=True):
    """A span of a caller."""

    trace: str
    """32 hex digits, not all 0."""
    span: str
    """16 hex digits, not all 0."""
    sampled: bool


def parse(header: str | None) -> Parent | None:
    """Read a header. None if it is missing or invalid: the trace then starts here, as the standard requires."""
    matched = _FORM.fullmatch(header) if header is not None else None
    if matched is None:
        return None
    version, trace, span, flags, rest = matched.groups()
    if version == _FORBIDDEN_VERSION or (version == _FIRST_VERSION and rest is not None):
        return None
    if not int(trace, 16) or not int(span, 16):
        return None
    return Parent(trace, span, bool(int(flags, 16) & _SAMPLED))


def write(parent: Parent) -> str:
    return f"{_FIRST_VERSION}-{parent.trace}-{parent.span}-{_SAMPLED if parent.sampled else 0:02x}"


def of_run(run: str, parent: Parent | None) -> Parent:
    """The run's own span: it is returned to the caller, and is the parent of the spans of Walks and nodes."""
    trace, sampled = (parent.trace, parent.sampled) if parent else (_trace_of(run), True)
    return Parent(trace, span_id("run", run), sampled)


def span_id(*path: object) -> str:
    """16 hex digits that depend only on the path, so that repeated exports give one span."""
    digest = hashlib.blake2b("\0".join(map(str, path)).encode(), digest_size=8).hexdigest()
    return digest if int(digest, 16) else "0" * 15 + "1"


def _trace_of(run: str) -> str:
    if re.fullmatch(r"[0-9a-f]{32}", run, re.ASCII) and int(run, 16):
        return run
    return hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
