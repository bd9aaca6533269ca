"""Telemetry of a rank's work, and the gate of watched runs."""
