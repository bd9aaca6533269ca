"""`starter:shapes`: a small BAGEL that draws, describes and edits pictures of up to two coloured shapes."""
