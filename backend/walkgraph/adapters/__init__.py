"""What plug-ins bring, as operators: Python functions, modules of torch, model files. Only workers import it."""
