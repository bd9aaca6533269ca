"""The steps of a request: expanded from its task, kept where they are needed, handed out leg by leg."""
