"""Plain language models: Qwen3, dense and with experts, Llama 3 and Mistral."""
