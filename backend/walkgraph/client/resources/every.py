"""All calls of the service."""

from walkgraph.client.resources.blueprints import BlueprintCalls
from walkgraph.client.resources.deploying import DeploymentCalls
from walkgraph.client.resources.documents import DocumentCalls
from walkgraph.client.resources.judging import JudgingCalls
from walkgraph.client.resources.keys import KeyCalls
from walkgraph.client.resources.running import RunCalls
from walkgraph.client.resources.watching import WatchCalls


class ServiceCalls(DeploymentCalls, DocumentCalls, JudgingCalls, BlueprintCalls, RunCalls, WatchCalls, KeyCalls):
    """All calls, in the order in which they are documented."""
