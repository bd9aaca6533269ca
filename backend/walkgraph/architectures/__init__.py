"""Parts shared by several model families: vision towers, an autoencoder, decoding, the loading of weights."""
