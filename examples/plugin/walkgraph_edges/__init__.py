"""Components that find the edges of pictures."""
