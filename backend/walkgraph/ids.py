"""Identifiers that cross module borders, each its own type so that they can't be mixed up."""

from typing import NewType

DeploymentId = NewType("DeploymentId", str)
RunId = NewType("RunId", str)
"""Made by the control service: 128 random bits in hex. Also the key of everything a run owns on a worker."""
Rank = NewType("Rank", int)
"""Position of a worker in its deployment's placement, from 0."""
