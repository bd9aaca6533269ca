"""Readiness of the service and of single deployments."""

from collections.abc import Iterable

from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.versions import Version
from walkgraph.service.deps import Services
from walkgraph.wire.spec import RankStatus


def is_ready(services: Services, deployment: str | None) -> bool:
    """True if the service takes requests, can write its database, and a deployment serves or none exists. With
    `deployment`, true if that one is ready, or serves with some of its replicas: it serves runs without the database
    too."""
    found = services.deployments.listed()
    if services.shutdown.begun:
        return False
    if deployment is not None:
        return any(
            managed.id == deployment
            and (managed.state == "ready" or (managed.state == "degraded" and _replicas_serve(managed.serving)))
            for managed in found
        )
    if services.store.fault is not None:
        return False
    offered = services.deployments.offered()
    return not offered or any(managed.state in ("ready", "degraded") for managed in offered)


def _replicas_serve(version: Version) -> bool:
    return version.plan is not None and serves(version.plan, version.status.ranks)


def serves(plan: Plan, ranks: Iterable[RankStatus]) -> bool:
    """True if runs find replicas of all nodes on ranks that are ready."""
    ready = {rank.rank for rank in ranks if rank.state == "ready"}
    return any(ready.issuperset(one.ranks) for one in plan.alternatives)
