"""What goes between ranks: messages, tensors, reports."""
