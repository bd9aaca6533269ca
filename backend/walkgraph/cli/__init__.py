"""The command line: `walkgraph VERB`. One file per verb; heavy imports happen inside the verbs."""
