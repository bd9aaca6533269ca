"""Seeing of Qwen3-Omni: pictures and videos to embeddings."""
