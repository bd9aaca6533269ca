"""OpenAI's API over tasks: which routes a task serves, and the conversion of requests and answers."""
