"""What telemetry is turned into for others: Chrome's trace format, OpenTelemetry's spans, Prometheus' text."""
