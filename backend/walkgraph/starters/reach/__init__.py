"""`starter:reach`: a small pi0.5 that moves a planar arm of two links to the coloured target named in an
instruction."""
