"""What a plan needs of memory, and what a request may take of it."""
