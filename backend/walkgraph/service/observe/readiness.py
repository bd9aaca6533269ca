"""Readiness of the service and of single deployments."""

from walkgraph.service.deployments.versions import serves
from walkgraph.service.deps import Services


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
            and (
                managed.state == "ready"
                or (managed.state == "degraded" and serves(managed.serving.plan, managed.serving.status.ranks))
            )
            for managed in found
        )
    if services.store.fault is not None:
        return False
    offered = services.deployments.offered()
    return not offered or any(managed.state in ("ready", "degraded") for managed in offered)
