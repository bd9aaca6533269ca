"""OpenAI's image routes."""
