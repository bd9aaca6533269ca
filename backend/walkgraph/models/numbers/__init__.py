"""Numbers: constants, arithmetic, comparisons, shapes and statistics of scalars and tensors."""
