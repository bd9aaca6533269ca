"""Plain values: texts, numbers, flags and lists, as small components take and give them."""
