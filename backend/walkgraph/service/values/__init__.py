"""Values that clients send and receive: tensors, images, audio."""
