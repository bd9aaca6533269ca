"""Pictures as tensors, pixels and patches."""
