"""OpenAI's realtime API."""
