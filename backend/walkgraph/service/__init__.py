"""The control service: documents, deployments, runs and telemetry over HTTP and WebSocket, one origin, one port."""
