"""One file per verb: its `command` is the function, its name the verb."""
