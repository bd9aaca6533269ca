"""Telemetry, traces and metrics of deployments."""
