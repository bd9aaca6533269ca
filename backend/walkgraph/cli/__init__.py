"""The command line: `walkgraph VERB`. One file a verb; heavy imports happen inside the verbs."""
