"""What the service answers, as types: plain dictionaries when a program runs. Times are seconds since 1970, durations
seconds. A service may add keys."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Level = Literal["off", "summary", "full"]
Kind = Literal["graph", "placement"]
RunState = Literal["running", "done", "failed", "cancelled"]
Scope = Literal["infer", "read", "deploy", "admin"]
Scalar = bool | int | float | str


class Problem(TypedDict):
    code: str
    pointer: str
    message: str
    severity: Literal["error", "warning"]


class Check(TypedDict):
    ok: bool
    problems: list[Problem]


# ── documents ───────────────────────────────────────────────────────────────────────────────────


class Document(TypedDict):
    name: str
    etag: str
    bundled: bool
    updated_at: float
    description: str
    tags: list[str]


class Version(TypedDict):
    id: int
    etag: str
    note: str
    created_at: float


class GalleryTask(TypedDict):
    name: str
    label: str


class GalleryEntry(TypedDict):
    name: str
    description: str
    tasks: list[GalleryTask]
    modalities_in: list[str]
    modalities_out: list[str]
    starter: bool
    deployable: bool
    why: str | None
    tags: list[str]
    bundled: bool


class Component(TypedDict):
    name: str
    description: str
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    params: dict[str, dict[str, Any]]
    states: list[dict[str, Any]]
    cost: str
    weights: str | None
    families: list[str]
    """Whose weights fit."""
    host: bool
    available: bool


class Device(TypedDict):
    name: str
    title: str
    total: int
    free: int
    hypothetical: bool


class PlannedRank(TypedDict):
    rank: int
    device: str
    nodes: list[str]
    kv_bytes: int
    budget: dict[str, int]
    capacity: int


class Route(TypedDict):
    walk: str | None
    stream: str | None
    pointer: str
    source: int
    target: int
    transport: str


class Handed(TypedDict):
    task: str
    pointer: str
    result: str
    input: str
    source: int
    target: int
    transport: str


class Copy(TypedDict):
    state: str
    walk: str | None
    source: int
    target: int
    bytes: int
    largest: int


class Loop(TypedDict):
    walk: str
    loop: str
    resident: bool
    why: str
    within: str | None
    usual: list[int]


class Plan(TypedDict):
    ok: bool
    deployable: bool
    problems: list[Problem]
    placement: dict[str, Any] | None
    ranks: list[PlannedRank]
    devices: list[Device]
    routes: list[Route]
    handed: list[Handed]
    copies: list[Copy]
    loops: list[Loop]
    drawing: str | None
    digest: str | None


class Simulation(TypedDict):
    ok: bool
    problems: list[Problem]
    params: dict[str, Scalar]
    lanes: list[dict[str, Any]]


# ── deployments ─────────────────────────────────────────────────────────────────────────────────


class Next(TypedDict):
    """The version that is to come."""

    state: str
    reason: str | None
    ranks: list[dict[str, Any]]
    graph: str
    placement: str
    restarts: int
    digest: str | None


class Access(TypedDict):
    home: str
    own_home: bool
    token_file: str | None


class Deployment(TypedDict):
    id: str
    graph: str
    placement: str
    state: str
    revision: int
    reason: str | None
    ranks: list[dict[str, Any]]
    running: int
    waiting: int
    restarts: int
    created_at: float
    tasks: list[str]
    digest: str | None
    next: Next | None


class DeclaredInput(TypedDict):
    modality: str
    many: bool
    optional: bool
    description: str


class DeclaredTask(TypedDict):
    """What a task takes; `schema` is the JSON Schema of its requests."""

    deployment: str
    name: str
    label: str
    inputs: dict[str, DeclaredInput]
    outputs: list[str]
    params: dict[str, dict[str, Any]]
    session: bool
    schema: dict[str, Any]


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


class NodeTime(TypedDict):
    node: str
    rank: int
    calls: int
    busy: float
    queued: float
    walk: str
    inside: dict[str, int]
    spans: bool


class Held(TypedDict):
    """A call that a run is paused before."""

    rank: int
    walk: str
    use: str
    node: str
    step: int
    iteration: list[int]
    loop: str


class Paused(TypedDict):
    held: list[Held]
    breakpoint: str


class Run(TypedDict):
    """Without its outputs."""

    id: str
    deployment: str
    task: str
    state: RunState
    created_at: float
    seconds: float | None
    queued: float | None
    seed: int | None
    params: dict[str, Any]
    error: dict[str, Any] | None
    times: list[NodeTime]
    paused: Paused | None
    caller: str | None


class LeftOut(TypedDict):
    pointer: str
    bytes: int


class Asked(TypedDict):
    run: str
    deployment: str
    task: str
    request: dict[str, Any] | None
    left_out: list[LeftOut]


class SessionKept(TypedDict):
    name: str
    run: str | None
    waiting: int
    bytes: int
    idle: float
    ttl: float
    ending: bool


class Sessions(TypedDict):
    """What a deployment keeps for sessions."""

    deployment: str
    bytes: int
    sessions: list[SessionKept]


class Steered(TypedDict):
    run: str
    paused: Paused | None


class Differences(TypedDict):
    a: str
    b: str
    recorded: bool
    compared: int
    equal: int
    missing: dict[str, int]
    outputs: list[dict[str, Any]]
    first: dict[str, Any] | None
    rows: list[dict[str, Any]]


# ── looking inside ──────────────────────────────────────────────────────────────────────────────


class Tap(TypedDict):
    id: str
    walk: str
    source: str
    to: str
    interval: float
    preview: bool
    run: str | None
    expires_at: float
    inside: bool


class Breakpoint(TypedDict):
    id: str
    walk: str
    use: str
    iteration: int | None
    run: str | None
    expires_at: float
    inside: bool


class Watch(TypedDict):
    level: Level
    taps: list[Tap]
    breakpoints: list[Breakpoint]


class TraceListed(TypedDict):
    run: str
    task: str
    state: RunState
    level: Level
    seconds: float
    at: float
    blocks: int
    recorded: bool


class Piece(TypedDict):
    kind: str
    lane: int
    walk: str
    block: int | None
    hop: int | None
    rank: int
    began: int
    ended: int


class Bottleneck(TypedDict):
    lane: str
    rank: int
    seconds: float
    share: float
    kind: str
    loop: bool


class Why(TypedDict):
    run: str
    seconds: float
    shares: dict[str, float]
    path: list[Piece]
    bottleneck: Bottleneck | None
    says: str


class NodeFigures(TypedDict):
    node: str
    rank: int
    loop: bool
    nodes: list[str]
    calls: int
    p50: float
    p95: float
    p99: float
    queued_p50: float
    queued_p95: float
    batch_mean: float
    share: float
    busy: float


class Statistics(TypedDict):
    runs: int
    nodes: list[NodeFigures]


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


class Key(TypedDict):
    id: str
    name: str
    scopes: list[Scope]
    requests_per_minute: int | None
    concurrent: int | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    valid: bool
    running: int


class KeyMade(Key):
    secret: str
    """The key itself: it is told this once."""


class AuditEntry(TypedDict):
    id: int
    at: float
    caller: str
    caller_name: str
    address: str
    action: str
    target: str
    details: dict[str, Any]
    outcome: str
    reason: str
