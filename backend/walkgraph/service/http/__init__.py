"""HTTP and WebSocket forms: bodies, frames, problems, limits."""
