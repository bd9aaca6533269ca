"""The checks behind `graph.check`, one file per part of the document; each takes a `Context` and adds problems to
it."""
