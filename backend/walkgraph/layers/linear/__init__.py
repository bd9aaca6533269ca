"""Linear layers and what stands right before and after them."""
