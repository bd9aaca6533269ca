"""What `graph.check` judges, a file per part of the document; each takes a `Context` and adds problems to it."""
