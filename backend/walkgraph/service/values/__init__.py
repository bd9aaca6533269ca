"""Values of clients: tensors, pictures, sound."""
