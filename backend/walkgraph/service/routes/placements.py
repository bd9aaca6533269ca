"""Placement drafts."""

from walkgraph.service.deployments import documents

router = documents.router("placement")
