"""`starter:reach`: a small pi0.5 that drives a planar arm of two links to the coloured target that it is told."""
