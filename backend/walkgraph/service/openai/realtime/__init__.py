"""OpenAI's realtime socket."""
