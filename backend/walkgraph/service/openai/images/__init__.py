"""OpenAI's routes of images."""
