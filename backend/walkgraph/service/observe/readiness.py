"""Whether what is wanted serves."""

from walkgraph.service.deps import Services


def is_ready(services: Services, deployment: str | None) -> bool:
    """Of the service while it takes requests and can save what it is told, or of one deployment: that one serves runs
    without the database, too."""
    found = services.deployments.listed()
    if services.shutdown.begun:
        return False
    if deployment is not None:
        return any(managed.id == deployment and managed.state == "ready" for managed in found)
    if services.store.fault is not None:
        return False
    return not found or any(managed.state in ("ready", "degraded") for managed in found)
