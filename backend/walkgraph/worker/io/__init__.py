"""Traffic between ranks: messages, tensors, reports."""
