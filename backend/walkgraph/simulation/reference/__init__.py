"""Reference implementations on Python values: Walks, device loops, stream chunks and components."""
