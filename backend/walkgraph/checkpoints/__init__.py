"""The metadata of weights folders: configs, headers, tokenizers, statistics. Shared by the code that judges a
checkpoint (`importing`, plans) and the code that loads it (`architectures.weights`); no torch."""
