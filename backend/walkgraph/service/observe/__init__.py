"""Telemetry, traces and metrics."""
