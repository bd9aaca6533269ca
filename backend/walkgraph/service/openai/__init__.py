"""OpenAI's routes over tasks: which a task serves, and the way from its requests and back."""
