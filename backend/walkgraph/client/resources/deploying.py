"""Calls about deployments and the service itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, delete, described, get, send
from walkgraph.client.errors import ClientError

UNDEPLOY_SECONDS = 60.0
"""Seconds on top of the grace period for runs."""
_OK, _LOADING = 200, 503


class DeploymentCalls:
    @described
    def ready(self, deployment: str | None = None) -> Call[bool]:
        """True if the service, or one deployment, takes requests."""
        params: dict[str, str | int | float] = {} if deployment is None else {"deployment": deployment}
        return Call("GET", "/health/ready", _is_good, params=params, accepts=(_LOADING,))

    @described
    def fault(self) -> Call[str | None]:
        """The problem that an operator has to fix before the service is ready; None if there is none."""
        return Call("GET", "/health/ready", _detail, accepts=(_LOADING,))

    @described
    def live(self) -> Call[bool]:
        """True if the service runs at all."""
        return Call("GET", "/health/live", _is_good)

    @described
    def limits(self) -> Call[dict[str, float]]:
        """Limits on what a caller may send."""
        return get("/v1/limits")

    @described
    def settings(self) -> Call[shown.Environment]:
        """The service's settings, without secrets; needs the scope `admin`."""
        return get("/api/v1/settings")

    @described
    def hosts(self) -> Call[list[shown.Host]]:
        """The hosts that can be deployed to, with their devices and the ranks that run there."""
        return get("/api/v1/hosts")

    @described
    def metrics(self) -> Call[str]:
        """Metrics in Prometheus' text format."""
        return Call("GET", "/metrics", _text)

    @described
    def deployments(self) -> Call[list[shown.Deployment]]:
        """All deployments."""
        return get("/api/v1/deployments")

    @described
    def deployment(self, id_: str, *, after: int | None = None) -> Call[shown.Deployment]:
        """One deployment; with `after`, a revision: wait for a later one, at most 20 seconds."""
        return get("/api/v1/deployments/{deployment}", {"after": after}, deployment=id_)

    @described
    def deployed_graph(self, id_: str) -> Call[dict[str, Any]]:
        """The graph document that it was made from."""
        return get("/api/v1/deployments/{deployment}/graph", deployment=id_)

    @described
    def deployed_placement(self, id_: str) -> Call[dict[str, Any]]:
        """The placement document that it was made with."""
        return get("/api/v1/deployments/{deployment}/placement", deployment=id_)

    @described
    def deploy(self, graph: Any, placement: Any | None = None, name: str | None = None) -> Call[shown.Deployment]:
        """Deploy a graph. `graph` and `placement`: names of stored documents, or documents."""
        return send("POST", "/api/v1/deployments", {"graph": graph, "placement": placement, "name": name})

    @described
    def replace(self, id_: str, graph: Any, placement: Any | None = None) -> Call[shown.Deployment]:
        """Switch a deployment to another graph or placement; its `next` shows the progress."""
        body = {"graph": graph, "placement": placement}
        return send("PUT", "/api/v1/deployments/{deployment}", body, deployment=id_)

    @described
    def restart(self, id_: str) -> Call[shown.Deployment]:
        """Restart a deployment by switching it to the same documents."""
        return send("POST", "/api/v1/deployments/{deployment}/restart", {}, deployment=id_)

    @described
    def forget_next(self, id_: str) -> Call[None]:
        """Cancel a switch that is in progress, or clear one that failed."""
        return delete("/api/v1/deployments/{deployment}/next", deployment=id_)

    @described
    def undeploy(self, id_: str, grace: float = 5.0) -> Call[None]:
        """Undeploy; runs may finish for `grace` seconds. Answers when the deployment is gone."""
        route = "/api/v1/deployments/{deployment}"
        seconds = grace + UNDEPLOY_SECONDS
        return Call("DELETE", route, lambda _: None, {"deployment": id_}, {"grace": grace}, seconds=seconds)

    @described
    def serve_scratch(self, id_: str, graph: Any, placement: Any | None = None) -> Call[shown.Deployment]:
        """Have a scratch deployment serve a graph while it is being drawn. Answers once it does; the first time, once
        it starts. It isn't stored, and ends after ten minutes without use."""
        body = {"graph": graph, "placement": placement}
        # It answers once what is new in the graph is loaded.
        return replace(send("PUT", "/api/v1/scratch/{deployment}", body, deployment=id_), seconds=None)

    @described
    def end_scratch(self, id_: str) -> Call[None]:
        """End a scratch deployment and its runs."""
        return delete("/api/v1/scratch/{deployment}", deployment=id_)

    @described
    def studio_path(self) -> Call[str]:
        """The studio's path with a code that lets one browser in, once."""
        return Call("POST", "/api/v1/studio/codes", _path, body={})

    @described
    def access(self) -> Call[shown.Access]:
        """Paths of the service's home and its token on its machine."""
        return get("/api/v1/studio/access")


def serves(found: shown.Deployment) -> bool:
    """True if it takes requests. Raises ClientError for a deployment that can't get ready."""
    if found["state"] in ("failed", "stopped"):
        raise ClientError(f"the deployment `{found['id']}` is {found['state']}: {found['reason']}")
    return found["state"] in ("ready", "degraded")


def _is_good(answer: httpx.Response) -> bool:
    return answer.status_code == _OK


def _detail(answer: httpx.Response) -> str | None:
    return answer.json().get("detail")


def _text(answer: httpx.Response) -> str:
    return answer.text


def _path(answer: httpx.Response) -> str:
    return answer.json()["path"]
