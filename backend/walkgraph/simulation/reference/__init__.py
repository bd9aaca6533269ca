"""Plain twins that say what is right: Walks, device loops, stream chunks and components, on Python values."""
