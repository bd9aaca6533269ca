"""Text in and out, by the tokenizer of any family that holds one."""
