"""Export formats of telemetry: Chrome's trace format, OpenTelemetry spans, Prometheus text."""
