"""Linear layers and the operations right before and after them."""
