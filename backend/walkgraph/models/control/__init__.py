"""Control: values that pass or don't, are chosen, collected into lists, or end a run."""
