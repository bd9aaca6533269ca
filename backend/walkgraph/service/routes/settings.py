"""The service's settings, for its operator."""

import anyio.to_thread
from fastapi import APIRouter

from walkgraph import __version__
from walkgraph.service.deps import ServicesDep
from walkgraph.service.environment import environment_of
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.wire.answers.environment import Environment

router = APIRouter(prefix="/api/v1/settings", tags=["health"], route_class=StrictRoute)


@router.get("")
async def get_settings(services: ServicesDep) -> Answer[Environment]:
    """The settings with which the service was started, what they mean, and the servers and plug-ins that they allow.
    Secrets are not shown."""
    return await anyio.to_thread.run_sync(environment_of, services.settings, __version__)
