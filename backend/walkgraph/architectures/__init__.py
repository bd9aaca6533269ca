"""What several model families are built of: vision towers, an autoencoder, decoding, the loading of weights."""
