"""The choice of a run's replicas."""
