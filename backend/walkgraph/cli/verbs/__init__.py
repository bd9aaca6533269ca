"""One file a verb: its `command` is the function, its name the verb."""
