"""What a folder of weights says of itself: configs, headers, tokenizers, statistics. One home for whoever judges a
checkpoint (`importing`, plans) and whoever loads it (`architectures.weights`); no torch."""
