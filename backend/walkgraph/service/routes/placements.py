"""Drafts of placements."""

from walkgraph.service import documents

router = documents.router("placement")
