"""Request bodies and response models."""
