"""Text in and out, through the tokenizer of any family that has one."""
