"""Hearing of Qwen3-Omni: sound to embeddings."""
