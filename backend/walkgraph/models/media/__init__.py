"""Pictures and sound at the border: encoded bytes outside, tensors inside."""
