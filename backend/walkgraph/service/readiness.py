"""Whether what is wanted serves."""

from walkgraph.service.deployments import Deployments


def is_ready(deployments: Deployments, deployment: str | None) -> bool:
    """Of the service while it takes requests, or of one deployment."""
    found = deployments.listed()
    if deployments.draining:
        return False
    if deployment is not None:
        return any(managed.id == deployment and managed.state == "ready" for managed in found)
    return not found or any(managed.state in ("ready", "degraded") for managed in found)
